"""The metadata of timm's folders: config.json."""

import math

from zoo.checkpoints.errors import CheckpointError
from zoo.data.preprocessing import ImagePreprocessing

IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SUPPORTED = {"crop_mode": ("center", "squash"), "interpolation": ("bicubic", "bilinear")}


def preprocessing(path, config, input_shape, is_imagenet):
    """What timm does to evaluate: `zoo.data.preprocessing.ImagePreprocessing`.

    A file alone has an empty `config`; `is_imagenet` tells the default of mean and deviation.
    """
    *size, channels = input_shape
    mean, std = IMAGENET if is_imagenet else ((0.5,) * channels,) * 2
    config = {"crop_mode": "center", "interpolation": "bicubic", "crop_pct": 0.9, **config}
    for name, supported in SUPPORTED.items():
        if config[name] not in supported:
            raise CheckpointError(f"{path}: {name} {config[name]!r} is not supported.")
    resize = tuple(math.floor(side / config["crop_pct"]) for side in size)
    if config["crop_mode"] == "center":  # the ratio of the sides is kept
        resize = resize[0] if size[0] == size[1] else None
    return ImagePreprocessing(
        image_size=tuple(size),
        channels=channels,
        mean=tuple(config.get("mean", mean)),
        std=tuple(config.get("std", std)),
        resize=resize,
        interpolation=config["interpolation"],
    )
