"""KerasHub's presets of ViT and DeiT (keras_hub/src/models/vit and deit), read by keras-hub."""

import functools
import re
import types

import numpy as np

from zoo.checkpoints.hugging_face_config import INTERPOLATIONS, check_settings
from zoo.checkpoints.mapping import Source, feed_forward, merged_dense, norm, stacked
from zoo.checkpoints.tensors import Tensors
from zoo.checkpoints.vision_transformer import registers_with_positions, vit_classifier
from zoo.data.preprocessing import ImagePreprocessing
from zoo.errors import CheckpointError, needed
from zoo.files import read_json
from zoo.tasks.weight_names import check_size

MODEL_TYPES = ("ViTBackbone", "DeiTBackbone")
ANCHOR = None  # keras-hub reads the files
_SUPPORTED = {"interpolation": (*INTERPOLATIONS.values(),), "pad_to_aspect_ratio": False}
_DEFAULT_CONVERTER = types.SimpleNamespace(
    scale=1 / 127.5,
    offset=-1.0,
    interpolation="bilinear",
    crop_to_aspect_ratio=True,
    antialias=False,
)
BLOCK = "encoder/transformer_block_{i}/"
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
DISTILLED = "distillation_token"
DEIT = {
    **VIT,
    **registers_with_positions(DISTILLED, "position_embedding", 1, 1),
    **feed_forward(FEED_FORWARD, f"{BLOCK}mlp/dense", f"{BLOCK}output_layer/output", merged_dense),
}


def load(folder, config, tensors, options):
    """Loads the classifier or encoder of a preset; options are arguments of `zoo.vit`."""
    config, tensors, converter = read_preset(folder)
    table = DEIT if DISTILLED in tensors else VIT
    if not config["use_mha_bias"]:
        bias = Source((), lambda: np.zeros(config["hidden_dim"]))
        table = {**table, "encoder_{i}/attention/output_projection/bias": bias}
    arguments = {
        **_sizes(config),
        "num_heads": config["num_heads"],
        "epsilon": config["layer_norm_epsilon"],
        "qkv_bias": config["use_mha_bias"],
        "num_registers": int(table is DEIT),
        "representation_dim": tensors.shapes.get("pre_logits/bias", (None,))[0],
    }
    images = preprocessing(arguments["input_shape"], converter)
    return vit_classifier(tensors, table, arguments, images, options)


def read_preset(folder):
    """Returns the config of a preset's backbone, `Tensors`, and its image converter or None."""
    keras_hub = needed("keras_hub")
    is_task = (folder / "task.json").is_file()
    if is_task and not (folder / "task.weights.h5").is_file():  # the head would be random
        raise CheckpointError(f"{folder} contains no task.weights.h5, the weights of its head.")
    backbones = [read_json(folder / "config.json")]
    if is_task:  # it describes the backbone again
        backbones.append(read_json(folder / "task.json")["config"]["backbone"])
    most = sum(path.stat().st_size for path in folder.glob("*.h5"))
    for backbone in backbones:  # before keras-hub builds it
        check_size(folder, _sizes(backbone["config"]), most)
    preset_class = keras_hub.models.ImageClassifier if is_task else keras_hub.models.Backbone
    try:
        # A relative path might be the name of a published preset, which keras-hub would download.
        model = preset_class.from_preset(str(folder.resolve()))
    except Exception as error:  # keras-hub raises errors of many types
        raise CheckpointError(f"{folder} cannot be loaded by keras-hub: {error}") from None
    if is_task and model.pooling != "token":
        raise CheckpointError(f"{folder}: pooling {model.pooling!r} is not supported.")
    entries = {_name(weight.path): (weight.shape, weight.numpy) for weight in model.weights}
    backbone = model.backbone if is_task else model
    preprocessor = getattr(model, "preprocessor", None)
    converter = getattr(preprocessor, "image_converter", None)
    return backbone.get_config(), Tensors(folder, entries), converter


def _sizes(config):
    """The arguments of `zoo.vit` for the sizes in the config of a backbone."""
    return {
        "input_shape": tuple(config["image_shape"]),
        "patch_size": config["patch_size"][0],
        "embed_dim": config["hidden_dim"],
        "num_layers": config["num_layers"],
        "ff_dim": config.get("mlp_dim", config.get("intermediate_dim")),
    }


def _name(path):
    """The name of a weight, with blocks counted from 0 instead of 1."""
    path = re.sub(r"^(vit|deit)_(patching_and_embedding/)?", "", path)
    return re.sub(r"(?<=_block_)\d+", lambda match: str(int(match[0]) - 1), path)


def preprocessing(input_shape, converter):
    """Returns `ImagePreprocessing` like an image converter; None is the default converter."""
    *size, channels = input_shape
    converter = converter or _DEFAULT_CONVERTER
    check_settings("The image converter of the preset", vars(converter), _SUPPORTED)
    scale = 1.0 if converter.scale is None else converter.scale
    scale = np.broadcast_to(scale, channels).astype(float)
    offset = 0.0 if converter.offset is None else converter.offset
    offset = np.broadcast_to(offset, channels).astype(float)
    return ImagePreprocessing(
        image_size=tuple(size),
        channels=channels,
        mean=tuple((-offset / scale / 255).tolist()),
        std=tuple((1 / scale / 255).tolist()),
        resize=None if converter.crop_to_aspect_ratio else tuple(size),
        interpolation=converter.interpolation,
        antialias=converter.antialias,
    )
