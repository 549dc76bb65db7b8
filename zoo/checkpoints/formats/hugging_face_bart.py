"""Hugging Face's folders of BART and PEGASUS (transformers: models/bart and models/pegasus)."""

from zoo.checkpoints import hugging_face_translators as translators
from zoo.checkpoints.hugging_face_config import check_settings, check_special_tokens
from zoo.checkpoints.hugging_face_tokenizers import encoder_tokenizer
from zoo.decoding import SpecialTokens
from zoo.errors import CheckpointError
from zoo.layers import SinusoidalPositions
from zoo.tasks.text_to_text import TextToTextGenerator

MODEL_TYPES = ("bart", "pegasus")
ANCHOR = "encoder.layers.0.self_attn.k_proj.weight"
HEADS = ("lm_head.", "final_logits_bias", "classification_head.")
IGNORED = (r"model\.shared\.weight",)  # where the embeddings are not shared
POSITIONS = "model.encoder.embed_positions.weight"
_PEGASUS = {"offset": 103, "mask_token": "<mask_2>", "mask_token_sent": "<mask_1>"}
# The first ids of PEGASUS, which are not text.
CONTROL = ("<pad>", "</s>", "<mask_1>", "<mask_2>", *(f"<unk_{i}>" for i in range(2, 103)))


def load(folder, config, tensors, options):
    """Loads a `TextToTextGenerator`; options are arguments of `zoo.transformer`."""
    _check_head(folder, config)
    special = SpecialTokens(
        start=config["decoder_start_token_id"],
        end=config["eos_token_id"],
        pad=config["pad_token_id"],
    )
    config = {"forced_eos_token_id": special.end, **config}
    if config.get("force_bos_token_to_be_generated"):  # as in transformers 4
        config.setdefault("forced_bos_token_id", config["bos_token_id"])
    tensors = tensors.renamed(lambda name: name if name.startswith(HEADS) else f"model.{name}")
    is_bart = config["model_type"] == "bart"
    positions = "learned"
    if not is_bart and POSITIONS not in tensors:
        positions = SinusoidalPositions("halves")
    model = translators.build(
        tensors,
        config,
        options,
        is_shared=config.get("tie_word_embeddings", True) or translators.SOURCE not in tensors,
        table=translators.learned_positions(2 if is_bart else 0),
        ignored=IGNORED,
        norm="post" if is_bart else "pre",
        positions=positions,
        normalize_embeddings=is_bart,
    )
    if is_bart:
        target, around = encoder_tokenizer(folder, config["vocab_size"])
        if around.end != special.end:
            raise CheckpointError(
                f"{folder}: eos_token_id in config.json is {special.end}, but the tokenizer ends "
                f"texts with the id {around.end}."
            )
        source = target.with_prefix(around.start)
    else:
        source = target = _pegasus_tokenizer(folder, config["vocab_size"])
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


def _pegasus_tokenizer(folder, size):
    """The id of a piece is 103 more than in the model; control tokens take the first places."""
    saved = translators.tokenizer_settings(folder)
    check_settings(folder / "tokenizer_config.json", saved, _PEGASUS)
    path = folder / "spiece.model"
    pieces = translators.tokenizer(path).proto.pieces
    vocab = {token: id for id, token in enumerate(CONTROL)}
    vocab |= {piece.piece: id for id, piece in enumerate(pieces[2:], len(CONTROL))}
    check_special_tokens(folder, saved, vocab)
    return translators.tokenizer(path, vocab, vocab["<unk>"], (*CONTROL, "<unk>"), size)
