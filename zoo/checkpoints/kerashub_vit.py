"""KerasHub's presets of ViT and DeiT: folders with config.json, loaded by keras-hub itself."""

import functools

import numpy as np

from zoo.checkpoints.errors import CheckpointError
from zoo.checkpoints.images import first_head_alone, vit_classifier
from zoo.checkpoints.mapping import feed_forward, merged_dense, norm, stacked
from zoo.checkpoints.tensors import Tensors
from zoo.data.preprocessing import ImagePreprocessing

BLOCK = "transformer_block_{i}/"
QKV = [f"{BLOCK}mha/{name}" for name in ("query", "key", "value")]
FEED_FORWARD = "encoder_{i}/feed_forward"
norm = functools.partial(norm, gamma="/gamma", beta="/beta")
VIT = {
    **merged_dense("patch_embed/projection", "patch_embedding"),
    "class_token/tokens": stacked("class_token"),
    "patch_positions/embeddings": stacked("position_embedding/embeddings"),
    **norm("encoder_{i}/attention_norm", f"{BLOCK}ln_1"),
    **merged_dense("encoder_{i}/attention/qkv", *QKV, to_heads=True),
    **merged_dense("encoder_{i}/attention/output_projection", f"{BLOCK}mha/attention_output"),
    **norm("encoder_{i}/feed_forward_norm", f"{BLOCK}ln_2"),
    **feed_forward(FEED_FORWARD, f"{BLOCK}mlp/dense_1", f"{BLOCK}mlp/dense_2", merged_dense),
    **norm("encoder_norm", "encoder/ln"),
    **merged_dense("representation", "pre_logits"),
    **merged_dense("head", "predictions"),
}
DEIT = {
    **VIT,
    "class_token/tokens": stacked("class_token", "distillation_token"),
    "patch_positions/embeddings": stacked("position_embedding"),
    **feed_forward(FEED_FORWARD, f"{BLOCK}mlp/dense", f"{BLOCK}output_layer/output", merged_dense),
    **first_head_alone(VIT),
}


def load(folder, options):
    """The classifier of a preset, see `zoo.load`."""
    import keras_hub

    is_task = (folder / "task.json").is_file()
    kind = keras_hub.models.ImageClassifier if is_task else keras_hub.models.Backbone
    try:
        model = kind.from_preset(str(folder))
    except Exception as error:  # keras-hub raises anything
        raise CheckpointError(f"{folder} cannot be loaded by keras-hub: {error}") from None
    config = (model.backbone if is_task else model).get_config()
    if is_task and model.pooling != "token":
        raise CheckpointError(f"{folder}: pooling {model.pooling!r} is not supported.")
    weights = {_name(weight.path): weight for weight in model.weights}
    shapes = {name: tuple(weight.shape) for name, weight in weights.items()}
    tensors = Tensors(folder, {name: weight.numpy for name, weight in weights.items()}, shapes)
    is_distilled = "distillation_token" in tensors
    settings = {
        "input_shape": tuple(config["image_shape"]),
        "patch_size": config["patch_size"][0],
        "embed_dim": config["hidden_dim"],
        "num_layers": config["num_layers"],
        "num_heads": config["num_heads"],
        "ff_dim": config.get("mlp_dim", config.get("intermediate_dim")),
        "epsilon": config["layer_norm_epsilon"],
        "qkv_bias": config["use_mha_bias"],
        "num_class_tokens": 1 + is_distilled,
        "representation_dim": tensors.shapes.get("pre_logits/bias", (None,))[0],
    }
    images = _preprocessing(settings["input_shape"], getattr(model, "preprocessor", None))
    return vit_classifier(tensors, DEIT if is_distilled else VIT, settings, images, options)


def _name(path):
    """The path of a weight without the first layer; blocks are counted from 1 in KerasHub."""
    *_, block, name = path.rpartition("transformer_block_")
    if block:
        index, _, rest = name.partition("/")
        return f"transformer_block_{int(index) - 1}/{rest}"
    first, _, rest = path.partition("/")
    return "encoder/" + rest if first.endswith("_encoder") else rest if "_" in first else path


def _preprocessing(shape, preprocessor):
    *size, channels = shape
    converter = getattr(preprocessor, "image_converter", None)
    scale, offset = getattr(converter, "scale", 1 / 127.5), getattr(converter, "offset", -1.0)
    scale, offset = (np.broadcast_to(value, channels).astype(float) for value in (scale, offset))
    stretched = not getattr(converter, "crop_to_aspect_ratio", True)
    return ImagePreprocessing(
        image_size=tuple(size),
        channels=channels,
        mean=tuple((-offset / scale / 255).tolist()),
        std=tuple((1 / scale / 255).tolist()),
        resize=tuple(size) if stretched else None,
        interpolation=getattr(converter, "interpolation", "bilinear"),
        antialias=getattr(converter, "antialias", False),
    )
