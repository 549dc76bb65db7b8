"""The formats of published weights, and which of them loads a path.

The module of a format offers:

- `ANCHOR`: the name of a tensor that all models have, from which the prefix of all names is known,
  see `zoo.checkpoints.tensors.Tensors.unwrapped`; None if the module reads the files itself.
- `load(path, config, tensors, options)`: loads a file or folder, usually by
  `zoo.checkpoints.mapping.assign` with a table. `config` is the content of config.json, {} without
  one; `tensors` are `zoo.checkpoints.tensors.Tensors`, None without an `ANCHOR`; `options` is a
  dict of the options of `zoo.load`. It returns what `zoo.load` returns.
- `MODEL_TYPES`: the types of models in config.json: `model_type` of Hugging Face, `class_name` of
  KerasHub.
- `contents(task)`, if `zoo.save_hf` writes the format: returns {name of a file: bytes or JSON} and
  {name of a tensor: array}, or raises `CheckpointError` if the format lacks a setting of the model.

To add one, write a module like `hugging_face_gpt2`, and add it to `FORMATS`; see
docs/adding_a_format.md.
"""

from zoo.checkpoints import marian_file, marian_folder
from zoo.checkpoints.formats import (
    google,
    hugging_face_bart,
    hugging_face_beit,
    hugging_face_bert,
    hugging_face_clip,
    hugging_face_dinov3,
    hugging_face_distilbert,
    hugging_face_gpt2,
    hugging_face_m2m100,
    hugging_face_marian,
    hugging_face_t5,
    hugging_face_vit,
    kerashub,
    marian,
    timm,
)
from zoo.checkpoints.hugging_face_config import PROBLEMS, read_json
from zoo.checkpoints.tensor_files import WEIGHTS, read_file, read_folder
from zoo.errors import CheckpointError

FORMATS = (  # with a type of model in config.json; the others are in `find_format`
    hugging_face_vit,
    hugging_face_beit,
    hugging_face_dinov3,
    hugging_face_gpt2,
    hugging_face_bert,
    hugging_face_distilbert,
    hugging_face_clip,
    hugging_face_marian,
    hugging_face_m2m100,
    hugging_face_t5,
    hugging_face_bart,
    kerashub,
)


def is_checkpoint(path):
    """Whether a `pathlib.Path` is a file or a folder of published weights, and not a run."""
    if (path / "config.json").is_file():
        config = read_json(path / "config.json")  # that of a run has none of these names
        return any(name in config for name in ("model_type", "class_name", "architecture"))
    has_modules = (path / "modules.json").is_file()
    return path.is_file() or has_modules or marian_folder.is_folder(path)


def load(path, options):
    """Loads published weights; options are those of `zoo.load`."""
    ema = options.pop("ema", True)
    if not isinstance(ema, bool):
        raise CheckpointError(f"ema must be True or False. Received: ema={ema!r}.")
    if path.name in WEIGHTS and (path.parent / "config.json").is_file():
        path = path.parent
    path = hugging_face_bert.transformer_folder(path)
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
    """Returns the module that loads a file, or a folder with this content of config.json."""
    if path.is_file():
        if path.suffix == ".zip" or marian_file.reader(path) is not None:
            return marian
        return google if path.suffix == ".npz" else timm
    if not (path / "config.json").is_file():
        if not marian_folder.is_folder(path):
            raise CheckpointError(f"{path} contains no config.json.")
        return marian
    types = (config.get("model_type"), config.get("class_name"))
    named = [each for each in FORMATS if any(name in each.MODEL_TYPES for name in types)]
    if named:
        format = named[0]
    elif "architecture" in config:
        format = timm
    else:
        supported = ", ".join(name for each in FORMATS for name in each.MODEL_TYPES)
        raise CheckpointError(
            f"{path / 'config.json'}: the model {str(types[0] or types[1])!r} is not supported. "
            f"Supported are those of timm, and {supported}."
        )
    quantized = config.get("quantization_config")
    if quantized:
        raise CheckpointError(f"{path}: quantized weights are not supported ({quantized}).")
    return format
