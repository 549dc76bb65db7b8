"""The metadata of Hugging Face's folders: config.json and preprocessor_config.json."""

import json

import numpy as np

from zoo.checkpoints.errors import CheckpointError
from zoo.data.preprocessing import ImagePreprocessing

ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
ACTIVATION_NAMES = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
PROBLEMS = {f"{problem}_classification": problem for problem in ("single_label", "multi_label")}
# Pillow's numbers of filters
INTERPOLATIONS = {2: "bilinear", 3: "bicubic"}


def read_json(path, default=None):
    """A file of metadata as a dict; `default`, if it is given and there is no such file."""
    if default is not None and not path.is_file():
        return default
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not JSON: {error}.") from None
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} does not hold a JSON object.")
    return content


def activation(folder, config):
    """The activation of the feed-forward network, by its name in the zoo."""
    name = config.get("hidden_act") or config.get("activation_function")
    if name not in ACTIVATIONS:
        raise CheckpointError(f"{folder}: the activation {name!r} is not supported.")
    return ACTIVATIONS[name]


def class_names(folder, config, classes, options, problem=None):
    """The names of the classes of the head; [] if there is none, or `options` ask for another.

    If config.json names none, there are two, as in transformers. The head has `classes` outputs;
    a `problem` says why it cannot be used.
    """
    problem_type = config.get("problem_type") or "single_label_classification"
    fewest = 1 if problem_type == "multi_label_classification" else 2
    if problem_type not in PROBLEMS or classes < fewest:
        problem = problem or (
            f"its head has {classes} outputs and problem_type {problem_type!r}: it does not choose "
            "classes, as in a regression"
        )
    if problem and classes and "num_classes" not in options:
        advice = "Pass num_classes=..., for a new head, or 0 for an encoder."
        raise CheckpointError(f"{folder}: {problem}. {advice}")
    names = config.get("id2label") or {"0": "LABEL_0", "1": "LABEL_1"}
    try:
        return [] if problem else [str(names[str(index)]) for index in range(len(names))]
    except (KeyError, TypeError):
        raise CheckpointError(f"{folder}: id2label does not name classes 0, 1, ..") from None


def check_settings(path, settings, supported):
    """Raises `CheckpointError` where a file of settings has another value than `supported`."""
    for name, value in supported.items():
        if settings.get(name) not in (None, value):
            raise CheckpointError(f"{path}: {name}={settings[name]!r} is not supported.")


def preprocessing(folder, config, size):
    """What the folder's image processor does, for a model of images of `size` (H, W)."""
    path = folder / "preprocessor_config.json"
    channels = config.get("num_channels", 3)
    half = (0.5,) * channels
    if not path.is_file():
        return ImagePreprocessing(size, channels, half, half)
    settings = read_json(path)
    processor = str(settings.get("image_processor_type") or settings.get("feature_extractor_type"))
    check_settings(path, settings, {"do_resize": True, "do_rescale": True})
    scale = settings.get("rescale_factor") or 1 / 255
    if abs(scale * 255 - 1) > 1e-6:
        raise CheckpointError(f"{path}: rescale_factor {scale} is not supported.")
    mean, std = (settings.get(name, half) for name in ("image_mean", "image_std"))
    if not settings.get("do_normalize", True):
        mean, std = (0.0,) * channels, (1.0,) * channels
    resample = settings.get("resample", 3 if processor.startswith(("DeiT", "Bit")) else 2)
    if resample not in INTERPOLATIONS:
        raise CheckpointError(f"{path}: resample {resample} is not supported.")
    crop = _size(settings.get("crop_size")) if settings.get("do_center_crop") else None
    resize = _size(settings.get("size"))
    if crop and np.any(np.less(resize, crop)):
        raise CheckpointError(f"{path}: crop_size {crop} is larger than size {resize}.")
    return ImagePreprocessing(
        image_size=crop or (resize if isinstance(resize, tuple) else (resize, resize)),
        channels=3 if len(mean) == 3 else channels,  # until it is adapted
        mean=tuple(mean),
        std=tuple(std),
        resize=resize,
        interpolation=INTERPOLATIONS[resample],
    )


def _size(size):
    """224 or {"height": 224, "width": 224} -> (224, 224); {"shortest_edge": 256} -> 256."""
    if isinstance(size, dict):
        if "shortest_edge" in size:
            return int(size["shortest_edge"])
        return (int(size["height"]), int(size["width"]))
    return None if size is None else (int(size), int(size))
