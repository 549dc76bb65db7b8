"""Hugging Face's folders of M2M100, NLLB and mBART-50 (transformers: models/m2m_100 and mbart)."""

from zoo.checkpoints import languages
from zoo.checkpoints.hugging_face_config import read_json
from zoo.checkpoints.hugging_face_translators import build, language, no_more, tokenizer, translator
from zoo.checkpoints.mapping import changed, same
from zoo.decoding import SpecialTokens
from zoo.errors import CheckpointError
from zoo.layers import SinusoidalPositions

ANCHOR = "model.encoder.layers.0.self_attn.k_proj.weight"
SPM = "sentencepiece.bpe.model"
IGNORED = (r"model\.(en|de)coder\.embed_positions\.weights",)  # the sinusoids of old files
CONTROL = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}
POSITIONS = {  # the first two rows are not used
    f"{side}_positions/embeddings": changed(
        same(f"model.{coder}.embed_positions.weight"), lambda x: x[2:]
    )
    for side, coder in (("source", "encoder"), ("target", "decoder"))
}


def load(folder, config, tensors, options):
    """The translator of a folder from `src_lang` to `tgt_lang`, see `zoo.load`."""
    saved = read_json(folder / "tokenizer_config.json", {})
    if saved.get("legacy_behaviour"):  # of NLLB
        raise CheckpointError(
            f"{folder / 'tokenizer_config.json'}: legacy_behaviour=True, with the language code "
            "after the text, is not supported."
        )
    if config["model_type"] == "mbart":
        settings = {"positions": "learned", "normalize_embeddings": True, "table": POSITIONS}
    else:
        half = config["d_model"] // 2
        wavelength = 10000.0 ** (half / (half - 1))
        positions = SinusoidalPositions("halves", max_wavelength=wavelength, offset=2)
        settings = {"positions": positions, "ignored": IGNORED}
    settings["dtype"] = options.pop("dtype", None)
    model = build(tensors, config, norm="pre", **settings)
    one, codes = _tokenizer(folder, config, saved)
    names = ("src_lang", "tgt_lang")
    given = [options.pop(name, saved.get(name)) for name in names]
    source, target = (language(folder, *pair, codes) for pair in zip(names, given))
    no_more(folder, options)
    start, end = config.get("decoder_start_token_id"), config["eos_token_id"]
    special = SpecialTokens(end if start is None else start, end, config["pad_token_id"], target)
    return translator(folder, config, model, [one.with_prefix(source), one], special)


def _tokenizer(folder, config, saved):
    """The tokenizer without a prefix, and {language code: id}."""
    size = config["vocab_size"]
    if (folder / "vocab.json").is_file():  # M2M100
        vocab = read_json(folder / "vocab.json")
        known = languages.WMT21 if saved.get("language_codes") == "wmt21" else languages.M2M100
        codes = dict(zip(known, range(len(vocab), size)))
        vocab = vocab | {f"__{code}__": id for code, id in codes.items()}
        control = (*CONTROL, *(f"__{code}__" for code in codes))
        unknown = vocab.get("<unk>", CONTROL["<unk>"])
        return tokenizer(folder / SPM, vocab, unknown, control, size), codes
    # The tokens of the model follow each other, but its first three are replaced by four others.
    pieces = tokenizer(folder / SPM).proto.pieces
    known = languages.MBART50 if config["model_type"] == "mbart" else languages.NLLB
    if size < len(pieces) + len(known) + 2:
        raise CheckpointError(
            f"{folder} has a vocabulary of {size} tokens, too few for the {len(known)} languages "
            "of NLLB or mBART-50. Earlier mBART models are not supported."
        )
    codes = dict(zip(known, range(len(pieces) + 1, size)))
    vocab = {piece.piece: id for id, piece in enumerate(pieces, 1) if id > 3}
    vocab |= {**CONTROL, **codes, "<mask>": len(pieces) + 1 + len(codes)}
    control = (*CONTROL, *codes, "<mask>")
    return tokenizer(folder / SPM, vocab, CONTROL["<unk>"], control, size), codes
