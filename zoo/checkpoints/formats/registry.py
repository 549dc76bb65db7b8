"""The formats of published weights, and which of them loads a path.

To add one, such as Hugging Face's T5, write a module that offers what `Format` describes, as
`hugging_face_gpt2` does, and add it to `FORMATS`. A format that `zoo.save_hf` writes offers
`WritableFormat`, and is in `WRITABLE` as well.
"""

from typing import Protocol

from zoo.checkpoints import marian_folder
from zoo.checkpoints.formats import (
    google,
    hugging_face_bert,
    hugging_face_gpt2,
    hugging_face_m2m100,
    hugging_face_marian,
    hugging_face_vit,
    kerashub,
    marian,
    timm,
)
from zoo.checkpoints.hugging_face_config import PROBLEMS, read_json
from zoo.checkpoints.tensor_files import WEIGHTS, read_file, read_folder
from zoo.errors import CheckpointError


class Format(Protocol):
    """What the module of a format offers.

    Attributes:
        MODEL_TYPES: the models in config.json that it loads: values of `model_type` of Hugging Face
            or `class_name` of KerasHub.
        ANCHOR: the name of a tensor that all models have, from which the prefix of all names is
            known; see `zoo.checkpoints.tensors.Tensors.unwrapped`. None if the module reads the
            files itself.
    """

    MODEL_TYPES: tuple
    ANCHOR: str | None

    def recognizes(self, path, config):
        """Whether it loads a file, or a folder with this content of config.json.

        Args:
            path: `pathlib.Path`.
            config: dict; {} without config.json.
        """

    def load(self, path, config, tensors, options):
        """Loads a file or folder, usually by `zoo.checkpoints.mapping.assign` with a table.

        Args:
            path, config: as in `recognizes`.
            tensors: `zoo.checkpoints.tensors.Tensors`, or None if there is no ANCHOR.
            options: dict of the options of `zoo.load`.

        Returns:
            What `zoo.load` returns.
        """


class WritableFormat(Format, Protocol):
    """What the module of a format offers that `zoo.save_hf` writes."""

    def can_save(self, task):
        """Whether models like this one, such as an image classifier, have this format."""

    def contents(self, task):
        """Returns {name of a file: bytes or JSON} and {name of a tensor: array}.

        Raises:
            CheckpointError: if a setting of the model has no counterpart in the format.
        """


# The first that recognizes a path loads it.
FORMATS = (
    marian,
    google,
    hugging_face_vit,
    hugging_face_gpt2,
    hugging_face_bert,
    hugging_face_marian,
    hugging_face_m2m100,
    kerashub,
    timm,
)
WRITABLE = (hugging_face_vit, hugging_face_marian)
_KEYS = ("model_type", "architecture", "class_name")  # of Hugging Face, timm, KerasHub


def is_checkpoint(path):
    """Whether a `pathlib.Path` is a file or a folder of published weights.

    The config.json of a run names no type of model.
    """
    if (path / "config.json").is_file():
        config = read_json(path / "config.json")
        return any(key in config for key in _KEYS)
    return path.is_file() or marian_folder.is_folder(path)


def load(path, options):
    """Loads published weights; options are those of `zoo.load`."""
    ema = options.pop("ema", True)
    if not isinstance(ema, bool):
        raise CheckpointError(f"ema must be True or False. Received: ema={ema!r}.")
    if path.name in WEIGHTS and (path.parent / "config.json").is_file():
        path = path.parent
    config = read_json(path / "config.json", {})
    format = find_format(path, config)
    tensors = None
    if format.ANCHOR is not None:
        tensors = read_file(path) if path.is_file() else read_folder(path)
        tensors = tensors.unwrapped(format.ANCHOR, ema)
    loaded = format.load(path, config, tensors, options)
    if hasattr(loaded, "problem"):
        loaded.problem = PROBLEMS.get(config.get("problem_type"), loaded.problem)
    return loaded


def find_format(path, config):
    """Returns the module that loads a file, or a folder with this content of config.json.

    Raises `CheckpointError` if there is none.
    """
    for format in FORMATS:
        if format.recognizes(path, config):
            break
    else:
        name = str(config.get("model_type") or config.get("class_name"))
        supported = ", ".join(name for format in FORMATS for name in format.MODEL_TYPES)
        raise CheckpointError(
            f"{path / 'config.json'}: the model {name!r} is not supported. Supported are those of "
            f"timm, and {supported}."
        )
    quantized = config.get("quantization_config")
    if quantized:
        raise CheckpointError(f"{path}: quantized weights are not supported ({quantized}).")
    return format
