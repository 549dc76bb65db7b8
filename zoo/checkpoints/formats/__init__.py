"""The formats of published weights: a module for each, and here which of them loads a path.

A module has a table of names, see `zoo.checkpoints.mapping`; ANCHOR, the name of a tensor that all
its models have; and a function ``load(path, config, tensors, options)``. Its arguments are the path
of the file or folder, the content of config.json ({} for a file), the
`zoo.checkpoints.tensors.Tensors`, and the options of `zoo.load`; it returns what `zoo.load` does.
"""

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
from zoo.errors import CheckpointError

_KEYS = ("model_type", "architecture", "class_name")  # of Hugging Face, timm, KerasHub
_FORMATS = {
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
    """Whether a `pathlib.Path` is a file or a folder of published weights.

    The config.json of a run names no type of model.
    """
    if (path / "config.json").is_file():
        return any(key in read_json(path / "config.json") for key in _KEYS)
    return path.is_file() or marian_folder.is_folder(path)


def load(path, options):
    """Loads published weights; options are those of `zoo.load`."""
    ema = options.pop("ema", True)
    if not isinstance(ema, bool):
        raise CheckpointError(f"ema must be True or False. Received: ema={ema!r}.")
    if path.name in WEIGHTS and (path.parent / "config.json").is_file():
        path = path.parent
    is_file = path.is_file()
    is_marian = not is_file and not (path / "config.json").is_file()
    if is_marian or is_file and (path.suffix == ".zip" or marian_file.reader(path)):
        return marian.load(path, options)
    config, tensors = read_json(path / "config.json", {}), None
    format = find_format(path, config)
    if format is not kerashub:  # keras-hub reads them itself
        tensors = read_file(path) if is_file else read_folder(path)
        tensors = tensors.unwrapped(format.ANCHOR, ema)
    loaded = format.load(path, config, tensors, options)
    if hasattr(loaded, "problem"):
        loaded.problem = PROBLEMS.get(config.get("problem_type"), loaded.problem)
    return loaded


def find_format(path, config):
    """Returns the module that loads a file, or a folder with this content of config.json.

    Raises `CheckpointError` if there is none.
    """
    name = str(config.get("model_type") or config.get("class_name"))
    if path.is_file():
        return google if path.suffix == ".npz" else timm
    if name not in _FORMATS and "architecture" not in config:
        raise CheckpointError(
            f"{path / 'config.json'}: the model {name!r} is not supported. Supported are those of "
            f"timm, and {', '.join(_FORMATS)}."
        )
    if quantized := config.get("quantization_config"):
        raise CheckpointError(f"{path}: quantized weights are not supported ({quantized}).")
    return _FORMATS.get(name, timm)
