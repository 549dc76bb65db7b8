"""Hugging Face's folders of Marian models, such as OPUS-MT (transformers: models/marian)."""

from zoo.checkpoints import hugging_face_translators as translators
from zoo.checkpoints.hugging_face_config import (
    ACTIVATION_NAMES,
    check_counterparts,
    check_special_tokens,
    read_json,
)
from zoo.checkpoints.mapping import collect, same
from zoo.decoding import SpecialTokens
from zoo.layers import SinusoidalPositions
from zoo.text.sentencepiece import LANGUAGE

MODEL_TYPES = ("marian",)
ANCHOR = "model.encoder.layers.0.self_attn.k_proj.weight"
IGNORED = (r"model\.(en|de)coder\.embed_positions\.weight",)  # sinusoids
UNKNOWN = "<unk>"
_SHARED = "share_encoder_decoder_embeddings"
CONTROL = ("</s>", "<unk>", "<pad>")
# The values of arguments that have no counterpart in config.json.
REQUIRED = {
    "norm": "post", "key_dim": None, "qkv_bias": True, "use_bias": True,
    "normalize_embeddings": False,
    "epsilon": 1e-5, "decoder": "attention",
}  # fmt: skip
POSITIONS = {"layout": "halves", "max_wavelength": 10000.0, "offset": 0}


def load(folder, config, tensors, options):
    """Loads a translator; options are `tgt_lang` and arguments of `zoo.transformer`."""
    saved = translators.tokenizer_settings(folder)
    language = options.pop("tgt_lang", saved.get("tgt_lang"))
    model = translators.build(
        tensors,
        config,
        options,
        is_shared=config.get(_SHARED, True),
        ignored=IGNORED,
        positions=SinusoidalPositions("halves"),
    )
    source_vocab = read_json(folder / "vocab.json")
    are_separate = saved.get("separate_vocabs", not config.get(_SHARED, True))
    target_vocab = read_json(folder / "target_vocab.json", None if are_separate else source_vocab)
    source = _tokenizer(folder / "source.spm", source_vocab, model.source_vocab_size)
    target = _tokenizer(folder / "target.spm", target_vocab, model.target_vocab_size)
    check_special_tokens(folder, saved, source_vocab)
    if language is not None:
        codes = {token[2:-2]: id for token, id in source_vocab.items() if token[:2] == ">>"}
        code = translators.language_id(folder, "tgt_lang", language, codes)
        source = source.with_prefix(code)
    special = SpecialTokens(
        start=config["decoder_start_token_id"],
        end=config["eos_token_id"],
        pad=config["pad_token_id"],
    )
    return translators.translator(folder, config, model, [source, target], special)


def _tokenizer(path, vocab, vocab_size):
    unknown = vocab.get(UNKNOWN, 0)
    has_codes = any(LANGUAGE.fullmatch(token) for token in vocab)
    return translators.tokenizer(
        path, vocab, unknown, CONTROL, vocab_size, language_prefixes=has_codes
    )


def contents(translator):
    """The inverse of `load`; see `registry`."""
    model = translator.model
    check_counterparts("Marian", model, REQUIRED, _without_counterparts(translator))
    source = translator.source_tokenizer
    target = translator.target_tokenizer
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
    if model.shared == "all":
        embeddings = {"decoder_embedding/tokens/embeddings": same(translators.SHARED)}
    else:
        embeddings = {
            "encoder_embedding/tokens/embeddings": same(translators.SOURCE),
            "decoder_embedding/tokens/embeddings": same(translators.TARGET),
        }
    return files, collect(model, {**translators.TABLE, **embeddings})


def _without_counterparts(translator):
    """Describes other settings of a translator that have no counterpart in Marian."""
    wrong = []
    positions = translator.model.positions
    given = {name: getattr(positions, name, None) for name in POSITIONS}
    if given != POSITIONS:
        wrong.append(f"positions={positions if isinstance(positions, str) else given!r}")
    if translator.model.shared == "embeddings":
        wrong.append("shared='embeddings'")
    special = translator.special_tokens
    if special.prefix:
        wrong.append(f"special_tokens.prefix={special.prefix}")
    if translator.length_offset:
        wrong.append(f"length_offset={translator.length_offset}")
    for side in ("source", "target"):
        tokenizer = getattr(translator, f"{side}_tokenizer")
        vocab = tokenizer.vocab or {}  # of one that was trained here
        own = getattr(tokenizer, "control", None)  # None in a `LibraryTokenizer`
        control = (special.end, special.pad, tokenizer.unknown, own)
        names = [tokenizer.tokens.get(id, "") for id in tokenizer.prefix]
        is_language = side == "source" and len(names) == 1 and LANGUAGE.fullmatch(names[0])
        if control != (vocab.get("</s>"), vocab.get("<pad>"), vocab.get(UNKNOWN, 0), CONTROL):
            wrong.append(f"the {side} tokenizer")
        elif names and not is_language:
            wrong.append(f"the prefix {names} of the {side} tokenizer")
    return wrong


def _config(translator):
    """The content of config.json."""
    model = translator.model
    special = translator.special_tokens
    ff_dim = model.ff_dim or 4 * model.embed_dim
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "is_encoder_decoder": True,
        **{theirs: getattr(model, ours) for ours, theirs in translators.ARGUMENTS.items()},
        "decoder_vocab_size": model.target_vocab_size,
        "num_hidden_layers": model.num_layers,
        "decoder_layers": len(model.decoder_blocks),
        "decoder_attention_heads": model.decoder_num_heads or model.num_heads,
        "encoder_ffn_dim": ff_dim,
        "decoder_ffn_dim": model.decoder_ff_dim or ff_dim,
        "dropout": model.dropout,
        "attention_dropout": model.attention_dropout,
        "activation_function": ACTIVATION_NAMES[model.activation],
        _SHARED: model.shared == "all",
        "tie_word_embeddings": model.shared != "none",
        "decoder_start_token_id": special.start,
        "eos_token_id": special.end,
    }


def _search(translator):
    """The content of generation_config.json: the search of the translator."""
    special = translator.special_tokens
    options = dict(translator.search_options)
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
