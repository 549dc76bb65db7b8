"""Hugging Face's folders of BART and PEGASUS (transformers: models/bart and models/pegasus)."""

import keras
import numpy as np

from zoo.checkpoints import hugging_face_translators as translators
from zoo.checkpoints.hugging_face_config import check_settings, warn_unknown_tokens
from zoo.checkpoints.hugging_face_tokenizers import encoder_tokenizer
from zoo.decoding import SpecialTokens
from zoo.errors import CheckpointError
from zoo.layers import SinusoidalPositions
from zoo.layers.positions import sinusoidal_positions
from zoo.tasks.text_to_text import TextToTextGenerator

MODEL_TYPES = ("bart", "pegasus")
ANCHOR = "encoder.layers.0.self_attn.k_proj.weight"
IGNORED = (r"model\.shared\.weight",)  # where the embeddings are not shared
SINUSOIDS = r"model\.(en|de)coder\.embed_positions\.weight"
HEADS = ("lm_head.", "final_logits_bias", "classification_head.")
DEFAULTS = {  # of config.json; sizes have none here
    "bart": {"pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2},
    "pegasus": {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0},
}
_PEGASUS = {"offset": 103, "mask_token": "<mask_2>", "mask_token_sent": "<mask_1>"}
# The first ids of PEGASUS, which are not text.
CONTROL = ("<pad>", "</s>", "<mask_1>", "<mask_2>", *(f"<unk_{i}>" for i in range(2, 103)))


def load(folder, config, tensors, options):
    """Loads a `TextToTextGenerator`; options are arguments of `zoo.transformer`."""
    _check_head(folder, config)
    kind = config["model_type"]
    config = {**DEFAULTS[kind], "activation_function": "gelu", "scale_embedding": False, **config}
    config.setdefault("forced_eos_token_id", config["eos_token_id"])
    if config.get("force_bos_token_to_be_generated"):  # as in transformers 4
        config.setdefault("forced_bos_token_id", config.get("bos_token_id", 0))
    tensors = tensors.renamed(lambda name: name if name.startswith(HEADS) else f"model.{name}")
    is_shared = config.get("tie_word_embeddings", True) or translators.SOURCE not in tensors
    special = SpecialTokens(
        start=config["decoder_start_token_id"],
        end=config["eos_token_id"],
        pad=config["pad_token_id"],
    )
    if kind == "bart":
        target, around = encoder_tokenizer(folder, config["vocab_size"])
        if around.end != special.end:
            raise CheckpointError(
                f"{folder}: the tokenizer ends texts with the id {around.end}, but eos_token_id of "
                f"config.json is {special.end}."
            )
        source = target.with_prefix(around.start)
        model = translators.build(
            tensors,
            config,
            options,
            is_shared,
            ignored=IGNORED,
            table=translators.LEARNED_POSITIONS,
            norm="post",
            positions="learned",
            normalize_embeddings=True,
        )
    else:
        _check_sinusoids(tensors)
        source = target = _pegasus_tokenizer(folder, config["vocab_size"])
        model = translators.build(
            tensors,
            config,
            options,
            is_shared,
            ignored=(*IGNORED, SINUSOIDS),
            norm="pre",
            positions=SinusoidalPositions("halves"),
        )
    return translators.translator(
        folder, config, model, [source, target], special, TextToTextGenerator
    )


def _check_head(folder, config):
    """Raises `CheckpointError` for models with another head than that of the tokens."""
    for name in config.get("architectures") or ():
        if not name.endswith(("Model", "ForConditionalGeneration")):
            raise CheckpointError(
                f"{folder}: the model is a {name}. Of BART and PEGASUS, only models that generate "
                "texts are supported, such as BartForConditionalGeneration."
            )


def _check_sinusoids(tensors):
    """Raises `CheckpointError` if positions of PEGASUS are stored, and are not what it computes."""
    for name in ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight"):
        if name not in tensors:
            continue
        [length, width] = tensors.shape(name, 2)
        expected = keras.ops.convert_to_numpy(sinusoidal_positions(length, width, "halves"))
        if not np.allclose(tensors[name].astype("float32"), expected, atol=0.01):  # in bfloat16
            raise CheckpointError(f"{tensors.path}: {name} must have the sinusoids of PEGASUS.")


def _pegasus_tokenizer(folder, size):
    """The id of a piece is 103 more than in the model; control tokens take the first places."""
    saved = translators.tokenizer_settings(folder)
    check_settings(folder / "tokenizer_config.json", saved, _PEGASUS)
    path = folder / "spiece.model"
    pieces = translators.tokenizer(path).proto.pieces
    vocab = {token: id for id, token in enumerate(CONTROL)}
    vocab |= {piece.piece: id for id, piece in enumerate(pieces[2:], len(CONTROL))}
    warn_unknown_tokens(folder, saved, vocab)
    return translators.tokenizer(path, vocab, vocab["<unk>"], (*CONTROL, "<unk>"), size)
