"""KerasHub's presets of image models: folders with config.json, loaded by keras-hub itself."""

import re

import numpy as np

from zoo.checkpoints.errors import CheckpointError
from zoo.checkpoints.hugging_face import INTERPOLATIONS
from zoo.checkpoints.tensors import Tensors
from zoo.data.preprocessing import ImagePreprocessing


def read_preset(folder):
    """(config of the backbone, `Tensors`, image converter or None) of a preset."""
    import keras_hub

    is_task = (folder / "task.json").is_file()
    kind = keras_hub.models.ImageClassifier if is_task else keras_hub.models.Backbone
    try:
        # A relative path may be the name of a published preset, which keras-hub would download.
        model = kind.from_preset(str(folder.resolve()))
    except Exception as error:  # keras-hub raises anything
        raise CheckpointError(f"{folder} cannot be loaded by keras-hub: {error}") from None
    if is_task and model.pooling != "token":
        raise CheckpointError(f"{folder}: pooling {model.pooling!r} is not supported.")
    weights = {_name(weight.path): weight for weight in model.weights}
    shapes = {name: tuple(weight.shape) for name, weight in weights.items()}
    tensors = Tensors(folder, {name: weight.numpy for name, weight in weights.items()}, shapes)
    converter = getattr(getattr(model, "preprocessor", None), "image_converter", None)
    return (model.backbone if is_task else model).get_config(), tensors, converter


def _name(path):
    """The name of a weight; blocks are counted from 1 in KerasHub."""
    path = re.sub(r"^(vit|deit)_(patching_and_embedding/)?", "", path)
    return re.sub(r"(?<=_block_)\d+", lambda match: str(int(match[0]) - 1), path)


def preprocessing(input_shape, converter):
    """What a preset's image converter does; it may be None."""
    *size, channels = input_shape
    scale, offset, interpolation = 1 / 127.5, -1.0, "bilinear"
    crops, antialias = True, False
    if converter is not None:
        crops, antialias = converter.crop_to_aspect_ratio, converter.antialias
        scale = 1.0 if converter.scale is None else converter.scale
        offset = 0.0 if converter.offset is None else converter.offset
        interpolation = converter.interpolation
        if converter.pad_to_aspect_ratio or interpolation not in INTERPOLATIONS.values():
            raise CheckpointError(
                "The preset's image converter must interpolate bilinearly or bicubically, without "
                f"padding. Received: {converter.get_config()}"
            )
    scale, offset = (np.broadcast_to(value, channels).astype(float) for value in (scale, offset))
    return ImagePreprocessing(
        image_size=tuple(size),
        channels=channels,
        mean=tuple((-offset / scale / 255).tolist()),
        std=tuple((1 / scale / 255).tolist()),
        resize=None if crops else tuple(size),
        interpolation=interpolation,
        antialias=antialias,
    )
