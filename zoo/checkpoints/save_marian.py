"""The files that `zoo.save_hf` writes for a translator (transformers: models/marian)."""

from zoo.checkpoints.formats.hugging_face_marian import CONTROL, UNKNOWN
from zoo.checkpoints.hugging_face_config import ACTIVATION_NAMES
from zoo.checkpoints.hugging_face_translators import SETTINGS, SHARED, SOURCE, TABLE, TARGET
from zoo.checkpoints.mapping import collect, same
from zoo.errors import CheckpointError
from zoo.text.sentencepiece import LANGUAGE

# The settings of transformers' Marian, without a counterpart in its config.json.
_MODEL = {
    "norm": "post",
    "key_dim": None,
    "qkv_bias": True,
    "normalize_embeddings": False,
    "epsilon": 1e-5,
    "decoder": "attention",
}
_POSITIONS = {"layout": "halves", "max_wavelength": 10000.0, "offset": 0}


def contents(translator):
    """Returns {name of a file: content, bytes or JSON} and {name of a tensor: array}."""
    model = translator.model
    wrong = [*_wrong_settings(translator), *_wrong_tokenizers(translator)]
    if wrong:
        raise CheckpointError(f"transformers' Marian has no counterpart of {', '.join(wrong)}.")
    source, target = translator.source_tokenizer, translator.target_tokenizer
    tokenizer = {
        "tokenizer_class": "MarianTokenizer",
        "model_max_length": model.max_length,
        "separate_vocabs": source.vocab != target.vocab,
    }
    if source.prefix:  # `zoo.load` reads it; texts for transformers begin with the language code
        tokenizer["tgt_lang"] = source.tokens[source.prefix[0]][2:-2]
    files = {
        "config.json": _config(translator),
        "generation_config.json": _search(translator),
        "tokenizer_config.json": tokenizer,
        "source.spm": source.model,
        "target.spm": target.model,
        "vocab.json": source.vocab,
    }
    if source.vocab != target.vocab:
        files["target_vocab.json"] = target.vocab
    embeddings = {"source_embedding/embeddings": SOURCE, "target_embedding/embeddings": TARGET}
    if model.shared == "all":
        embeddings = {"target_embedding/embeddings": SHARED}
    table = {**TABLE, **{path: same(name) for path, name in embeddings.items()}}
    return files, collect(model, table)


def _wrong_settings(translator):
    """The settings of the model and the search without a counterpart in Marian."""
    model = translator.model
    names = [name for name, value in _MODEL.items() if getattr(model, name) != value]
    names += ["activation"] if model.activation not in ACTIVATION_NAMES else []
    wrong = [f"{name}={getattr(model, name)!r}" for name in names]
    positions = {name: getattr(model.positions, name, None) for name in _POSITIONS}
    if positions != _POSITIONS:
        is_name = isinstance(model.positions, str)
        wrong.append(f"positions={model.positions if is_name else positions!r}")
    if translator.special_tokens.first is not None:
        wrong.append(f"special_tokens.first={translator.special_tokens.first}")
    if translator.length_offset:
        wrong.append(f"length_offset={translator.length_offset}")
    return wrong


def _wrong_tokenizers(translator):
    """The properties of the tokenizers without a counterpart in Marian."""
    special, wrong = translator.special_tokens, []
    for side in ("source", "target"):
        tokenizer = getattr(translator, f"{side}_tokenizer")
        if tokenizer.vocab is None:
            wrong.append(f"a {side} tokenizer that was trained here")
            continue
        vocab = tokenizer.vocab
        control = (special.end, special.pad, tokenizer.unknown, tokenizer.control)
        names = [tokenizer.tokens.get(id, "") for id in tokenizer.prefix]
        is_language = side == "source" and len(names) == 1 and LANGUAGE.fullmatch(names[0])
        if control != (vocab.get("</s>"), vocab.get("<pad>"), vocab.get(UNKNOWN, 0), CONTROL):
            wrong.append(f"the control tokens of the {side} tokenizer")
        elif names and not is_language:
            wrong.append(f"the prefix {names} of the {side} tokenizer")
    return wrong


def _config(translator):
    model, special = translator.model, translator.special_tokens
    ff_dim = model.ff_dim or 4 * model.embed_dim
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "is_encoder_decoder": True,
        **{theirs: getattr(model, ours) for ours, theirs in SETTINGS.items()},
        "decoder_vocab_size": model.target_vocab_size,
        "num_hidden_layers": model.num_layers,
        "decoder_layers": len(model.decoder_blocks),
        "decoder_attention_heads": model.decoder_num_heads or model.num_heads,
        "encoder_ffn_dim": ff_dim,
        "decoder_ffn_dim": model.decoder_ff_dim or ff_dim,
        "dropout": model.dropout,
        "attention_dropout": model.attention_dropout,
        "activation_function": ACTIVATION_NAMES[model.activation],
        "share_encoder_decoder_embeddings": model.shared == "all",
        "tie_word_embeddings": model.shared != "none",
        "decoder_start_token_id": special.start,
        "eos_token_id": special.end,
    }


def _search(translator):
    """The content of generation_config.json, with which `generate` searches like the translator."""
    special, options = translator.special_tokens, dict(translator.search_options)
    if options.pop("forced_eos", False):
        options["forced_eos_token_id"] = special.end
    return {
        **options,
        "num_beams": translator.beam_size,
        "length_penalty": translator.length_penalty,
        "early_stopping": translator.early_stopping,
        # transformers counts the start token.
        "max_length": (translator.max_length or translator.model.max_length) + 1,
        "bad_words_ids": [[special.pad]],
        "decoder_start_token_id": special.start,
        "eos_token_id": special.end,
        "pad_token_id": special.pad,
    }
