"""The files that `zoo.save_hf` writes for a Vision Transformer (transformers: models/vit)."""

from zoo.checkpoints.formats.hugging_face_vit import ANCHOR, SETTINGS, VIT
from zoo.checkpoints.hugging_face_config import ACTIVATION_NAMES, INTERPOLATIONS
from zoo.checkpoints.mapping import collect, patches
from zoo.errors import CheckpointError

# The settings of transformers' ViT, without a counterpart in its config.json.
_VIT = {
    "pool": "cls",
    "norm": "pre",
    "layer_scale": None,
    "num_prefix_tokens": 1,
    "num_registers": 0,
    "positions": "learned",
    "prefix_positions": True,
    "key_dim": None,
    "normalize_embeddings": False,
    "normalize_pooled": False,
    "representation_dim": None,
}
SIDES = ("height", "width")


def contents(classifier):
    """Returns {name of a JSON file: content} and {name of a tensor: array}."""
    vit = classifier.model
    files = {
        "config.json": _config(vit, classifier.class_names, classifier.problem),
        "preprocessor_config.json": _preprocessor(classifier.preprocessing),
    }
    table = {**VIT, "patch_embed/projection/kernel": patches(ANCHOR, vit.input_shape[-1])}
    tensors = {
        name if name.startswith("classifier.") else f"vit.{name}": array
        for name, array in collect(vit, table).items()
    }
    return files, tensors


def _config(vit, class_names, problem):
    wrong = [name for name, value in _VIT.items() if getattr(vit, name) != value]
    wrong += ["activation"] if vit.activation not in ACTIVATION_NAMES else []
    wrong += ["attention"] if vit.attention == "linear" else []
    height, width, channels = vit.input_shape
    wrong += ["input_shape"] if height != width else []
    if wrong:
        given = ", ".join(f"{name}={getattr(vit, name)!r}" for name in wrong)
        raise CheckpointError(f"transformers' ViT has no counterpart of {given}.")
    return {
        "architectures": ["ViTForImageClassification"],
        "model_type": "vit",
        **{theirs: getattr(vit, ours) for ours, (theirs, _) in SETTINGS.items()},
        "intermediate_size": vit.ff_dim or 4 * vit.embed_dim,
        "hidden_act": ACTIVATION_NAMES[vit.activation],
        "hidden_dropout_prob": vit.dropout,
        "attention_probs_dropout_prob": vit.attention_dropout,
        "image_size": height,
        "num_channels": channels,
        "problem_type": f"{problem}_classification",
        "id2label": {str(index): name for index, name in enumerate(class_names)},
        "label2id": {name: index for index, name in enumerate(class_names)},
    }


def _preprocessor(settings):
    if not settings.antialias:
        raise CheckpointError("The image processors of transformers always antialias.")
    size, resize = settings.image_size, settings.resize or settings.image_size[0]
    if not isinstance(resize, int):
        resize = dict(zip(SIDES, map(int, resize)))
    filters = {name: number for number, name in INTERPOLATIONS.items()}
    return {
        "image_processor_type": "BitImageProcessor",
        "do_convert_rgb": settings.channels == 3,
        "do_resize": True,
        "size": {"shortest_edge": resize} if isinstance(resize, int) else resize,
        "resample": filters[settings.interpolation],
        "do_center_crop": True,
        "crop_size": dict(zip(SIDES, size)),
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(settings.mean),
        "image_std": list(settings.std),
    }
