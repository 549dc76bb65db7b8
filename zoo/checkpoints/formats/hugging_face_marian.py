"""Hugging Face's folders of Marian models, such as OPUS-MT (transformers: models/marian).

`contents` is the inverse of `load`.
"""

from zoo.checkpoints import hugging_face_translators as translators
from zoo.checkpoints.hugging_face_config import ACTIVATION_NAMES, check_counterparts, read_json
from zoo.checkpoints.mapping import collect, same
from zoo.decoding import SpecialTokens
from zoo.layers import SinusoidalPositions
from zoo.text.sentencepiece import LANGUAGE

ANCHOR = "model.encoder.layers.0.self_attn.k_proj.weight"
IGNORED = (r"model\.(en|de)coder\.embed_positions\.weight",)  # sinusoids
UNKNOWN, CONTROL = "<unk>", ("</s>", "<unk>", "<pad>")

# The values of settings that have no counterpart in config.json.
REQUIRED = {
    "norm": "post",
    "key_dim": None,
    "qkv_bias": True,
    "normalize_embeddings": False,
    "epsilon": 1e-5,
    "decoder": "attention",
}
POSITIONS = {"layout": "halves", "max_wavelength": 10000.0, "offset": 0}


def load(folder, config, tensors, options):
    """Loads the translator of a folder; options are `tgt_lang`, if it has several languages, and
    arguments of `zoo.transformer`.
    """
    saved = read_json(folder / "tokenizer_config.json", {})
    target = options.pop("tgt_lang", saved.get("tgt_lang"))
    is_shared = config.get("share_encoder_decoder_embeddings", True)
    settings = {"ignored": IGNORED, "positions": SinusoidalPositions("halves")}
    model = translators.build(tensors, config, options, is_shared, **settings)
    vocabs = {"source": read_json(folder / "vocab.json")}
    vocabs["target"] = read_json(folder / "target_vocab.json", vocabs["source"])
    sides = []
    for side, vocab in vocabs.items():
        unknown, size = vocab.get(UNKNOWN, 0), getattr(model, f"{side}_vocab_size")
        arguments = (folder / f"{side}.spm", vocab, unknown, CONTROL, size)
        sides.append(translators.tokenizer(*arguments, language_prefixes=True))
    if target is not None:
        codes = {token[2:-2]: id for token, id in vocabs["source"].items() if token[:2] == ">>"}
        sides[0] = sides[0].with_prefix(translators.language_id(folder, "tgt_lang", target, codes))
    ids = (config[f"{name}_token_id"] for name in ("decoder_start", "eos", "pad"))
    return translators.translator(folder, config, model, sides, SpecialTokens(*ids))


def contents(translator):
    """Returns {name of a file: content, bytes or JSON} and {name of a tensor: array}."""
    model = translator.model
    check_counterparts("Marian", model, REQUIRED, _wrong(translator))
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
    embeddings = {
        "source_embedding/embeddings": translators.SOURCE,
        "target_embedding/embeddings": translators.TARGET,
    }
    if model.shared == "all":
        embeddings = {"target_embedding/embeddings": translators.SHARED}
    table = {**translators.TABLE, **{path: same(name) for path, name in embeddings.items()}}
    return files, collect(model, table)


def _wrong(translator):
    """What else of a translator has no counterpart in Marian."""
    positions, special, wrong = translator.model.positions, translator.special_tokens, []
    given = {name: getattr(positions, name, None) for name in POSITIONS}
    if given != POSITIONS:
        wrong.append(f"positions={positions if isinstance(positions, str) else given!r}")
    if special.first is not None:
        wrong.append(f"special_tokens.first={special.first}")
    if translator.length_offset:
        wrong.append(f"length_offset={translator.length_offset}")
    for side in ("source", "target"):
        tokenizer = getattr(translator, f"{side}_tokenizer")
        vocab = tokenizer.vocab or {}  # of one that was trained here
        control = (special.end, special.pad, tokenizer.unknown, tokenizer.control)
        names = [tokenizer.tokens.get(id, "") for id in tokenizer.prefix]
        is_language = side == "source" and len(names) == 1 and LANGUAGE.fullmatch(names[0])
        if control != (vocab.get("</s>"), vocab.get("<pad>"), vocab.get(UNKNOWN, 0), CONTROL):
            wrong.append(f"the {side} tokenizer")
        elif names and not is_language:
            wrong.append(f"the prefix {names} of the {side} tokenizer")
    return wrong


def _config(translator):
    """The content of config.json."""
    model, special = translator.model, translator.special_tokens
    ff_dim = model.ff_dim or 4 * model.embed_dim
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "is_encoder_decoder": True,
        **{theirs: getattr(model, ours) for ours, theirs in translators.SETTINGS.items()},
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
