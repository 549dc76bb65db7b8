"""Published weights: one file for each format, and here which of them reads a path.

A new format is a file with a table of names, see `zoo.checkpoints.mapping`, the name ANCHOR of a
tensor that all its models have, and a function ``load(path, config, tensors, options)``: of a file
or folder, the content of config.json, which is empty for a file, the
`zoo.checkpoints.tensors.Tensors`, and the options of `zoo.load`.
"""

import pathlib

from zoo.checkpoints import marian_file, marian_folder
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
from zoo.errors import CheckpointError, TaskError, UserError

_KEYS = ("model_type", "architecture", "class_name")  # of Hugging Face, timm, KerasHub
_READERS = {
    "vit": hugging_face_vit,
    "deit": hugging_face_vit,
    "dinov2": hugging_face_vit,
    "dinov2_with_registers": hugging_face_vit,
    "gpt2": hugging_face_gpt2,
    "bert": hugging_face_bert,
    "marian": hugging_face_marian,
    "m2m_100": hugging_face_m2m100,
    "mbart": hugging_face_m2m100,
    "ViTBackbone": kerashub,
    "DeiTBackbone": kerashub,
}


def is_checkpoint(path):
    """Whether a `pathlib.Path` is of published weights: a file, or a folder as a format has it.

    The config.json of a run does not name a type of model.
    """
    if (path / "config.json").is_file():
        return any(key in read_json(path / "config.json") for key in _KEYS)
    return path.is_file() or marian_folder.is_folder(path)


def load(path, **options):
    """What `zoo.load` returns for published weights, with its options; see there."""
    try:
        return _load(path, dict(options))
    except TaskError as error:  # tokens do not fit the model
        raise CheckpointError(f"{path}: {error}") from None
    except UserError:
        raise
    except OSError as error:
        if isinstance(error, FileNotFoundError) and error.filename:
            name = pathlib.Path(error.filename).name
            raise CheckpointError(f"{path} contains no {name}.") from None
        reason = error.strerror or error
        raise CheckpointError(f"{error.filename or path} cannot be read: {reason}.") from None
    # Metadata may hold anything, and options too; what does not fit fails wherever it is used.
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        source = f"metadata or the options {', '.join(options)}" if options else "metadata"
        reason = f"there is no {error}" if isinstance(error, KeyError) else error
        raise CheckpointError(f"{path}: the {source} cannot be used: {reason}.") from error


def _load(path, options):
    ema = options.pop("ema", True)
    if not isinstance(ema, bool):
        raise CheckpointError(f"ema must be True or False. Received: ema={ema!r}.")
    if path.name in WEIGHTS and (path.parent / "config.json").is_file():
        path = path.parent
    has_config, is_file = (path / "config.json").is_file(), path.is_file()
    if (path.suffix == ".zip" or marian_file.reader(path)) if is_file else not has_config:
        return marian.load(path, options)
    config, tensors = read_json(path / "config.json", {}), None
    format = reader(path, config)
    if format is not kerashub:  # which reads them itself
        tensors = read_folder(path) if has_config else read_file(path)
        tensors = tensors.unwrapped(format.ANCHOR, ema)
    loaded = format.load(path, config, tensors, options)
    if hasattr(loaded, "problem"):
        loaded.problem = PROBLEMS.get(config.get("problem_type"), loaded.problem)
    return loaded


def reader(path, config):
    """The module that reads a file, or a folder with this content of config.json."""
    name = str(config.get("model_type") or config.get("class_name"))
    if path.is_file():
        return google if path.suffix == ".npz" else timm
    if name not in _READERS and "architecture" not in config:
        raise CheckpointError(f"{path / 'config.json'}: the model {name!r} is not supported.")
    if quantized := config.get("quantization_config"):
        raise CheckpointError(f"{path}: its weights are quantized ({quantized}). Load others.")
    return _READERS.get(name, timm)
