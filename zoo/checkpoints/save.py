"""`zoo.save_hf`: writes models in Hugging Face's layout."""

import json
import pathlib

from zoo.checkpoints.errors import CheckpointError
from zoo.checkpoints.hugging_face import ACTIVATIONS, INTERPOLATIONS
from zoo.checkpoints.hugging_face_vit import VIT
from zoo.checkpoints.mapping import collect, patches
from zoo.classifier import ImageClassifier

# What transformers' ViT does; other settings have no counterpart in its config.json.
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


def save_hf(model, folder):
    """Writes a classifier in the layout of transformers' ViT.

    Args:
        model: `zoo.classifier.ImageClassifier` with a `zoo.models.ViT`.
        folder: path of a new folder: config.json, model.safetensors, preprocessor_config.json.

    Raises:
        CheckpointError: if the model has a setting that transformers' ViT does not have, or the
            folder is not empty.
    """
    from safetensors.numpy import save_file

    if not isinstance(model, ImageClassifier) or type(model.model).__name__ != "ViT":
        raise CheckpointError("save_hf writes an ImageClassifier with a zoo.models.ViT.")
    folder, vit = pathlib.Path(folder), model.model
    config, preprocessor = _config(vit, model.class_names), _preprocessor(model.preprocessing)
    if folder.exists() and any(folder.iterdir()):
        raise CheckpointError(f"{folder} is not empty. Choose a new folder.")
    kernel = "embeddings.patch_embeddings.projection.weight"
    table = {**VIT, "patch_embed/projection/kernel": patches(kernel, vit.input_shape[-1])}
    tensors = {
        name if name.startswith("classifier.") else f"vit.{name}": array.copy()
        for name, array in collect(vit, table).items()
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in (("config", config), ("preprocessor_config", preprocessor)):
        (folder / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n")
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def _config(vit, class_names):
    wrong = [name for name, value in _VIT.items() if getattr(vit, name) != value]
    activations = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
    wrong += ["activation"] if vit.activation not in activations else []
    wrong += ["attention"] if vit.attention == "linear" else []
    height, width, channels = vit.input_shape
    wrong += ["input_shape"] if height != width else []
    if wrong:
        given = ", ".join(f"{name}={getattr(vit, name)!r}" for name in wrong)
        raise CheckpointError(f"transformers' ViT has no counterpart of {given}.")
    return {
        "architectures": ["ViTForImageClassification"],
        "model_type": "vit",
        "hidden_size": vit.embed_dim,
        "num_hidden_layers": vit.num_layers,
        "num_attention_heads": vit.num_heads,
        "intermediate_size": vit.ff_dim or 4 * vit.embed_dim,
        "hidden_act": activations[vit.activation],
        "layer_norm_eps": vit.epsilon,
        "image_size": height,
        "patch_size": vit.patch_size,
        "num_channels": channels,
        "qkv_bias": vit.qkv_bias,
        "id2label": {str(index): name for index, name in enumerate(class_names)},
        "label2id": {name: index for index, name in enumerate(class_names)},
    }


def _preprocessor(settings):
    if not settings.antialias:
        raise CheckpointError("The image processors of transformers always antialias.")
    size, resize = settings.image_size, settings.resize or settings.image_size[0]
    sides = ("height", "width")
    return {
        "image_processor_type": "BitImageProcessor",
        "do_convert_rgb": settings.channels == 3,
        "do_resize": True,
        "size": {"shortest_edge": resize}
        if isinstance(resize, int)
        else dict(zip(sides, map(int, resize))),
        "resample": {name: number for number, name in INTERPOLATIONS.items()}[
            settings.interpolation
        ],
        "do_center_crop": True,
        "crop_size": dict(zip(sides, size)),
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(settings.mean),
        "image_std": list(settings.std),
    }
