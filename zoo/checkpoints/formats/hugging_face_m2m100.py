"""Hugging Face's folders of M2M100, NLLB and mBART-50 (transformers: models/m2m_100 and mbart)."""

from zoo.checkpoints import hugging_face_translators as translators
from zoo.checkpoints.hugging_face_config import check_special_tokens, read_json
from zoo.checkpoints.languages import M2M100, MBART50, NLLB, WMT21
from zoo.decoding import SpecialTokens
from zoo.errors import CheckpointError

MODEL_TYPES = ("m2m_100", "mbart")
ANCHOR = "model.encoder.layers.0.self_attn.k_proj.weight"
SPM = "sentencepiece.bpe.model"
IGNORED = (r"model\.(en|de)coder\.embed_positions\.weights",)  # sinusoids, in older files
CONTROL = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}


def load(folder, config, tensors, options):
    """Loads a translator; options are `src_lang`, `tgt_lang`, arguments of `zoo.transformer`."""
    saved = translators.tokenizer_settings(folder)
    source_language = options.pop("src_lang", saved.get("src_lang"))
    target_language = options.pop("tgt_lang", saved.get("tgt_lang"))
    shared_tokenizer, codes = _tokenizer(folder, config, saved)
    check_special_tokens(folder, saved, shared_tokenizer.vocab)
    source = translators.language_id(folder, "src_lang", source_language, codes)
    target = translators.language_id(folder, "tgt_lang", target_language, codes)
    is_mbart = config["model_type"] == "mbart"
    positions = "learned"
    if not is_mbart:
        positions = translators.sinusoidal_positions(config["d_model"], offset=2)
    model = translators.build(
        tensors,
        config,
        options,
        table=translators.learned_positions(),
        ignored=IGNORED,
        norm="pre",
        positions=positions,
        normalize_embeddings=is_mbart,
    )
    end = config["eos_token_id"]
    start = config.get("decoder_start_token_id")
    if start is None:
        start = end
    special = SpecialTokens(start=start, end=end, pad=config["pad_token_id"], prefix=(target,))
    tokenizers = [shared_tokenizer.with_prefix(source), shared_tokenizer]
    return translators.translator(folder, config, model, tokenizers, special)


def _tokenizer(folder, config, saved):
    """The tokenizer without a prefix, and {language code: id}."""
    size = config["vocab_size"]
    if (folder / "vocab.json").is_file():  # M2M100
        vocab = read_json(folder / "vocab.json")
        known = WMT21 if saved.get("language_codes") == "wmt21" else M2M100
        if size - len(vocab) < len(known):
            raise CheckpointError(
                f"{folder}: {size - len(vocab)} of {size} tokens are not in vocab.json, too few "
                f"for {len(known)} languages. Others are named in tokenizer_config.json."
            )
        codes = dict(zip(known, range(len(vocab), size)))
        vocab = vocab | {f"__{code}__": id for code, id in codes.items()}
        control = (*CONTROL, *(f"__{code}__" for code in codes))
        unknown = vocab.get("<unk>", CONTROL["<unk>"])
        return translators.tokenizer(folder / SPM, vocab, unknown, control, size), codes
    # Ids are those of the pieces plus 1; four control tokens replace the first three pieces.
    pieces = translators.tokenizer(folder / SPM).proto.pieces
    known = MBART50 if config["model_type"] == "mbart" else NLLB
    if size < len(pieces) + len(known) + 2:
        raise CheckpointError(
            f"{folder} has a vocabulary of {size} tokens, too few for the {len(known)} languages "
            "of NLLB or mBART-50. Earlier mBART models are not supported."
        )
    codes = dict(zip(known, range(len(pieces) + 1, size)))
    vocab = {piece.piece: id for id, piece in enumerate(pieces, 1) if id > 3}
    vocab |= {**CONTROL, **codes, "<mask>": len(pieces) + 1 + len(codes)}
    control = (*CONTROL, *codes, "<mask>")
    return translators.tokenizer(folder / SPM, vocab, CONTROL["<unk>"], control, size), codes
