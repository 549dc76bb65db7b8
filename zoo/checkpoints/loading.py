"""Which format a path has."""

import pathlib

from zoo.checkpoints.errors import CheckpointError
from zoo.checkpoints.hugging_face import read_json
from zoo.checkpoints.tensors import read_file, read_folder
from zoo.errors import UserError

FILES = (".safetensors", ".npz", ".bin", ".pth", ".pt")
_TEXT = ("gpt2", "bert")
_TRANSLATORS = ("marian", "m2m_100", "mbart")
_KERAS_HUB = ("ViTBackbone", "DeiTBackbone")
_KEYS = ("model_type", "architecture", "class_name")  # of Hugging Face, timm, KerasHub
_VIT = ("vit", "deit", "dinov2", "dinov2_with_registers")


def is_checkpoint(path):
    """Whether a path looks like published weights: a file of tensors, or a folder with a config.

    The config.json of a run of the zoo names no kind of model.
    """
    path = pathlib.Path(path)
    config = path / "config.json"
    if config.is_file():
        return any(key in read_json(config) for key in _KEYS)
    return path.is_file() and path.suffix in FILES


def load(path, **options):
    """Loads published weights.

    Args:
        path: of a file of tensors or of a folder with config.json.
        **options: arguments of the model that differ from the published ones, such as
            `num_classes` and `input_shape`; of translation models `src_lang` and `tgt_lang`.

    Raises:
        CheckpointError: if the format is not supported or the weights do not fit.
    """
    path = pathlib.Path(path)
    try:
        return (_load_file if path.is_file() else _load_folder)(path, dict(options))
    except UserError:
        raise
    # Metadata may hold anything, and options too; what does not fit fails wherever it is used.
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        what = f"metadata or the options {', '.join(options)}" if options else "metadata"
        reason = f"there is no {error}" if isinstance(error, KeyError) else error
        raise CheckpointError(f"{path}: the {what} cannot be used: {reason}.") from error


def _load_folder(path, options):
    config = read_json(path / "config.json")
    kind = config.get("model_type")
    if kind in _VIT:
        from zoo.checkpoints import hugging_face_vit

        return hugging_face_vit.load(path, config, read_folder(path), options)
    if kind in _TEXT:
        from zoo.checkpoints import hugging_face_bert, hugging_face_gpt2

        of_kind = hugging_face_gpt2 if kind == "gpt2" else hugging_face_bert
        return of_kind.load(path, config, read_folder(path), options)
    if kind in _TRANSLATORS:
        from zoo.checkpoints import hugging_face_m2m100, hugging_face_marian

        of_kind = hugging_face_marian if kind == "marian" else hugging_face_m2m100
        try:
            return of_kind.load(path, config, read_folder(path), options)
        except KeyError as name:
            raise CheckpointError(f"{path / 'config.json'} has no {name}.") from None
    if config.get("class_name") in _KERAS_HUB:
        from zoo.checkpoints import kerashub_vit

        return kerashub_vit.load(path, options)
    if "architecture" in config:
        from zoo.checkpoints import timm_vit

        return timm_vit.load(read_folder(path), config, options)
    kind = kind or config.get("class_name")
    raise CheckpointError(f"{path / 'config.json'}: the model {kind!r} is not supported.")


def _load_file(path, options):
    tensors = read_file(path)
    if path.suffix == ".npz":
        from zoo.checkpoints import google_vit

        return google_vit.load(tensors, options)
    from zoo.checkpoints import timm_vit

    return timm_vit.load(tensors, {}, options)
