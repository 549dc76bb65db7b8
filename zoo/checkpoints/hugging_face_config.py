"""Metadata in Hugging Face's folders: config.json and preprocessor_config.json."""

import re
import warnings

import numpy as np

from zoo.checkpoints.unsupported import unsupported_settings
from zoo.data.preprocessing import MAX_SIDE, ImagePreprocessing
from zoo.errors import CheckpointError, as_number
from zoo.files import read_json

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
INTERPOLATIONS = {2: "bilinear", 3: "bicubic"}  # `PIL.Image.Resampling`
# Default settings of transformers' image processors.
_PROCESSOR = {
    "do_resize": True, "size": 224, "resample": 2,
    "do_center_crop": False, "crop_size": 224,
    "do_rescale": True, "rescale_factor": 1 / 255,
    "do_normalize": True, "image_mean": 0.5, "image_std": 0.5,
}  # fmt: skip
_SUPPORTED = {
    "do_resize": True,
    "do_rescale": True,
    "rescale_factor": round(1 / 255, 8),
    "resample": (*INTERPOLATIONS,),
}
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
_CLIP = {"resample": 3, "do_center_crop": True, "image_mean": CLIP_MEAN, "image_std": CLIP_STD}
_PROCESSORS = {  # other defaults, by the beginning of a processor's name
    "ViT": {},
    "Beit": {"resample": 3},
    "DeiT": {"size": 256, "do_center_crop": True, "resample": 3},
    "Bit": _CLIP,
    "CLIP": _CLIP,
    "Siglip": {"resample": 3, "size": {"height": 224, "width": 224}},
    "DINOv3": {"image_mean": IMAGENET_MEAN, "image_std": IMAGENET_STD},
}
_NO_EFFECT = (  # settings that do not affect pixels
    r"_.*|.*_type|.*_class|do_convert_rgb|default_to_square|(input_)?data_format|device"
    r"|return_tensors|disable_grouping|image_seq_length|(do_)?reduce_labels"
)


def check_downloaded(folder, *names):
    """Raises `CheckpointError` if a cache has not all of these files; see `not_downloaded`."""
    missing = not_downloaded(folder, names)
    if missing:
        repo = folder.parents[1].name.removeprefix("models--").replace("--", "/")
        raise CheckpointError(
            f"{folder} contains no {', '.join(missing)}, which the published model may have: "
            f"another program downloaded only a part of it. Load hf://{repo} once with a network "
            f"connection, or run `hf download {repo}`."
        )


def not_downloaded(folder, names):
    """Returns the names of files that the model may have, and that a cache does not contain.

    In the cache of the Hugging Face Hub, the folder ``.no_exist`` lists files that a model does not
    have. Where the cache has neither the file nor this entry, another program did not ask for it.
    ``.gitattributes`` is only there if all files were downloaded.
    """
    if folder.parent.name != "snapshots" or (folder / ".gitattributes").is_file():
        return []
    absent = folder.parents[1] / ".no_exist" / folder.name
    known = [name for name in names if (folder / name).is_file() or (absent / name).exists()]
    return [name for name in names if name not in known]


def activation(folder, config):
    """Returns our name of the activation of the feed-forward networks."""
    name = config.get("hidden_act") or config.get("activation_function")
    if name not in ACTIVATIONS:
        raise CheckpointError(f"{folder}: the activation {name!r} is not supported.")
    return ACTIVATIONS[name]


def class_names(folder, config, classes, options, problem=None):
    """Returns the class names of the head in a file; [] if there is none, or it cannot be used.

    Args:
        folder, config: the folder, and the content of config.json.
        classes: number of outputs of the head; 0 without one.
        options: options of `zoo.load`.
        problem: why the head cannot be used, if it cannot. This is an error unless the options
            have `num_classes`.
    """
    problem_type = config.get("problem_type") or "single_label_classification"
    fewest = 1 if problem_type == "multi_label_classification" else 2
    if problem is None and (problem_type not in PROBLEMS or classes < fewest):
        problem = (
            f"its head has {classes} outputs and problem_type {problem_type!r}: it does not choose "
            "classes, as in a regression"
        )
    if problem and classes and "num_classes" not in options:
        advice = "Pass num_classes for a new head, or num_classes=0 for an encoder."
        raise CheckpointError(f"{folder}: {problem}. {advice}")
    if problem:
        return []
    names = config.get("id2label") or {"0": "LABEL_0", "1": "LABEL_1"}  # as in transformers
    try:
        return [str(names[str(index)]) for index in range(len(names))]
    except (KeyError, TypeError):
        raise CheckpointError(f"{folder}: id2label does not name classes 0, 1, ..") from None


def check_settings(path, settings, supported):
    """Raises `CheckpointError` for other values than in {name: supported value, or a tuple}."""
    for name, values in supported.items():
        if not isinstance(values, tuple):
            values = (values,)
        if settings.get(name) not in (None, *values):
            raise CheckpointError(f"{path}: {name}={settings[name]!r} is not supported.")


def check_counterparts(kind, model, required, others):
    """Raises `CheckpointError` if transformers' model of this kind has no counterpart of a setting.

    Args:
        kind, model: name of transformers' model, and our model.
        required: {name of an argument: the only value that has a counterpart}.
        others: descriptions of other settings that have none.
    """
    wrong = unsupported_settings(model, required)
    if model.activation not in ACTIVATION_NAMES:
        wrong.append(f"activation={model.activation!r}")
    wrong += others
    if wrong:
        raise CheckpointError(f"transformers' {kind} has no counterpart of {', '.join(wrong)}.")


def tokenizer_settings(folder):
    """Reads special_tokens_map.json and tokenizer_config.json, which takes precedence.

    Special tokens are str, also those that the files describe by a dict.
    """
    check_downloaded(folder, "tokenizer_config.json")
    settings = read_json(folder / "special_tokens_map.json", {})
    settings |= read_json(folder / "tokenizer_config.json", {})
    return {name: _as_text(value) for name, value in settings.items()}


def _as_text(token):
    return token["content"] if isinstance(token, dict) and "content" in token else token


def added_tokens(folder, settings):
    """Returns the tokens that were added to a tokenizer: dicts of "content", "id" and "special"."""
    added = settings.get("added_tokens_decoder")
    if added:
        return [{"id": int(id), **token} for id, token in added.items()]
    values = [*settings.values()]  # an older folder
    return [
        {"content": token, "id": id, "special": token in values}
        for token, id in read_json(folder / "added_tokens.json", {}).items()
    ]


def check_added_tokens(folder, tokens):
    """Raises `CheckpointError` if an added token is text, which would be found in texts."""
    for token in tokens:
        if not token.get("special"):
            raise CheckpointError(
                f"{folder}: the added token {token['content']!r} is text, which is not supported."
            )


def check_special_tokens(folder, settings, vocab):
    """Warns of special tokens in `settings` that are not in the vocabulary.

    Raises:
        CheckpointError: if `check_added_tokens` does so for those that are not.
    """
    added = added_tokens(folder, settings)
    check_added_tokens(folder, [token for token in added if token["content"] not in vocab])
    for name in ("additional_special_tokens", "extra_special_tokens"):
        tokens = settings.get(name) or ()
        tokens = tokens.values() if isinstance(tokens, dict) else tokens
        unknown = [token for token in map(_as_text, tokens) if token not in vocab]
        if unknown:
            text = f"{folder}: {name} that are not in the vocabulary are read as text: {unknown}."
            warnings.warn(text, stacklevel=3)


def warn_ignored(path, settings, names):
    """Warns that the settings with these names are ignored."""
    if names:
        named = ", ".join(f"{name}={settings[name]!r}" for name in sorted(names))
        warnings.warn(f"{path}: settings that are ignored: {named}.", stacklevel=3)


def sides(value):
    """(height, width) of a list of both, or of one number for both."""
    return tuple(value) if isinstance(value, list) else (value, value)


def patch_side(folder, value):
    """The side of square patches; raises `CheckpointError` for others."""
    height, width = sides(value)
    if height != width or not isinstance(width, int):
        raise CheckpointError(f"{folder}: patch_size={value!r} is not supported.")
    return height


def preprocessing(folder, config, size):
    """Returns `ImagePreprocessing` like the image processor of a folder; `size` is (H, W)."""
    path = folder / "preprocessor_config.json"
    check_downloaded(folder, path.name)
    channels = as_number("num_channels", config.get("num_channels", 3), int, 1, MAX_SIDE)
    half = (0.5,) * channels
    # transformers 5 writes the settings of images and texts to one file.
    settings = read_json(folder / "processor_config.json", {}).get("image_processor")
    if settings is None and not path.is_file():
        print(f"{folder} contains no {path.name}: mean and standard deviation of images are 0.5.")
        return ImagePreprocessing(size, channels, half, half)
    if settings is None:
        settings = read_json(path)
    settings |= {name: bool(value) for name, value in settings.items() if name.startswith("do_")}
    settings = {name: value for name, value in settings.items() if value is not None}
    name = settings.get("image_processor_type") or settings.get("feature_extractor_type")
    kind = "ViT"
    for beginning in _PROCESSORS:
        if str(name).startswith(beginning):
            kind = beginning
    settings = {**_PROCESSOR, **_PROCESSORS[kind], **settings}
    settings["rescale_factor"] = round(settings["rescale_factor"], 8)  # some write it in float32
    check_settings(path, settings, _SUPPORTED)
    if kind == "DINOv3":  # bicubic pixels would not be clipped to the range of an image
        check_settings(path, settings, {"resample": 2})
    others = {name for name in settings.keys() - _PROCESSOR.keys() if settings[name]}
    warn_ignored(path, settings, {x for x in others if not re.fullmatch(_NO_EFFECT, x)})
    if settings["do_normalize"]:
        mean = np.ravel(settings["image_mean"]).tolist()
        std = np.ravel(settings["image_std"]).tolist()
    else:
        mean = [0.0]
        std = [1.0]
    is_square = settings.get("default_to_square", kind in ("ViT", "Beit", "DeiT", "DINOv3"))
    resize = _size(path, settings["size"], is_square)
    image_size = resize if isinstance(resize, tuple) else (resize, resize)
    if settings["do_center_crop"]:
        image_size = _size(path, settings["crop_size"])
        if isinstance(image_size, int):
            raise CheckpointError(f"{path}: crop_size={settings['crop_size']} is not supported.")
        if np.any(np.less(resize, image_size)):
            raise CheckpointError(f"{path}: crop_size {image_size} is larger than size {resize}.")
    return ImagePreprocessing(
        image_size=image_size,
        channels=3 if len(mean) == 3 else channels,  # adapted to the model later
        mean=tuple(mean),
        std=tuple(std),
        resize=resize,
        interpolation=INTERPOLATIONS[settings["resample"]],
    )


def _size(path, size, is_square=True):
    """Returns (H, W) for a dict or list of both, or an int for {"shortest_edge": 256}.

    A number is (H, W) if `is_square`, and otherwise the shortest edge.
    """
    if isinstance(size, list) and len(size) == 2:
        return int(size[0]), int(size[1])
    if isinstance(size, dict):
        if size.keys() == {"shortest_edge"}:
            return int(size["shortest_edge"])
        if size.keys() != {"height", "width"}:
            raise CheckpointError(f"{path}: the size {size} is not supported.")
        return int(size["height"]), int(size["width"])
    return (int(size), int(size)) if is_square else int(size)
