"""Hugging Face's folders of Marian models, such as OPUS-MT (transformers: models/marian)."""

from zoo.checkpoints import hugging_face_translators as translators
from zoo.checkpoints.hugging_face_config import read_json
from zoo.decoding import SpecialTokens
from zoo.layers import SinusoidalPositions

ANCHOR = "model.encoder.layers.0.self_attn.k_proj.weight"
IGNORED = (r"model\.(en|de)coder\.embed_positions\.weight",)  # sinusoids
UNKNOWN, CONTROL = "<unk>", ("</s>", "<unk>", "<pad>")


def load(folder, config, tensors, options):
    """Loads the translator of a folder; options are `dtype` and, if it has several, `tgt_lang`."""
    model = translators.build(
        tensors,
        config,
        config.get("share_encoder_decoder_embeddings", True),
        ignored=IGNORED,
        positions=SinusoidalPositions("halves"),
        dtype=options.pop("dtype", None),
    )
    source_vocab = read_json(folder / "vocab.json")
    target_vocab = read_json(folder / "target_vocab.json", source_vocab)
    sides = [
        translators.tokenizer(
            folder / f"{side}.spm",
            vocab,
            vocab.get(UNKNOWN, 0),
            CONTROL,
            getattr(model, f"{side}_vocab_size"),
            language_prefixes=True,
        )
        for side, vocab in (("source", source_vocab), ("target", target_vocab))
    ]
    saved = read_json(folder / "tokenizer_config.json", {})
    target = options.pop("tgt_lang", saved.get("tgt_lang"))
    if target is not None:
        codes = {token[2:-2]: id for token, id in source_vocab.items() if token.startswith(">>")}
        sides[0] = sides[0].with_prefix(translators.language_id(folder, "tgt_lang", target, codes))
    translators.reject_options(folder, options)
    ids = (config[f"{name}_token_id"] for name in ("decoder_start", "eos", "pad"))
    return translators.translator(folder, config, model, sides, SpecialTokens(*ids))
