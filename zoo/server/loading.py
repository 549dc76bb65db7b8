"""Finds and loads the SavedModels named on the command line."""

import json
import pathlib
import time

import tensorflow as tf
from google.protobuf import json_format
from tensorflow.core.protobuf import saved_model_pb2

from zoo.server.errors import ServerError
from zoo.server.models import DEFAULT_SIGNATURE, Model, Signature

_FILE = "saved_model.pb"
_KINDS = {  # the inputs and the outputs of the default signature; see `zoo.export`
    "translator": ({"texts"}, {"translations", "scores", "error"}),
    "generator": ({"texts"}, {"generated_texts", "scores", "error"}),
    "classifier": ({"image_bytes"}, {"labels", "probabilities", "error"}),
    "text_classifier": ({"texts"}, {"labels", "probabilities", "error"}),
}


def load_all(folders):
    """Loads the models named on the command line; see `find` and `load`.

    Raises:
        ServerError: if there is no model, it may not be read, or two have the same name.
    """
    if not folders:
        raise ServerError("Name at least one folder with an exported model.")
    try:
        located = [find(folder) for folder in folders]
    except OSError as error:
        raise ServerError(f"A model cannot be read: {error}.") from None
    found = {}
    for name, version, folder in located:
        if name in found:
            raise ServerError(
                f"Two models are named {name}: {found[name][2]} and {folder}. "
                f"Rename one of them with OTHER={folder}."
            )
        found[name] = name, version, folder
    return [load(*model) for model in found.values()]


def find(given):
    """Finds the model for a command-line argument.

    Args:
        given: "…/NAME/1"; "…/NAME", which selects its highest version; or "NAME=path".

    Returns:
        The name, version and folder of the model.

    Raises:
        ServerError: if there is no such model.
    """
    name, equals, path = str(given).partition("=")
    if not equals or "/" in name or pathlib.Path(given).exists():
        name, path = "", given
    folder = pathlib.Path(path)
    if not folder.is_dir():
        raise ServerError(f"There is no folder {folder}.")
    if not (folder / _FILE).is_file():
        versions = [f for f in folder.iterdir() if _is_version(f.name) and (f / _FILE).is_file()]
        if not versions:
            raise ServerError(_not_a_model(folder))
        folder = max(versions, key=lambda version: int(version.name))
    absolute = folder.resolve()
    has_version = _is_version(absolute.name)
    version = int(absolute.name) if has_version else 1
    name = name or (absolute.parent.name if has_version else absolute.name)
    if not name or set(name) & set("/:"):
        raise ServerError(f"The model name {name!r} cannot be used in a URL. Pass NAME={folder}.")
    return name, version, folder


def load(name, version, folder):
    """Loads a SavedModel.

    Raises:
        ServerError: if it is damaged or has no signatures.
    """
    started = time.monotonic()
    try:
        proto = saved_model_pb2.SavedModel.FromString((folder / _FILE).read_bytes())
        loaded = tf.saved_model.load(str(folder))
        graphs = [g for g in proto.meta_graphs if "serve" in g.meta_info_def.tags]
        signatures = {key: _signature(f) for key, f in loaded.signatures.items()}
    except Exception as error:  # TensorFlow raises various errors for a damaged file
        raise ServerError(
            f"The SavedModel in {folder} cannot be loaded ({type(error).__name__}: "
            f"{_first_line(error)}). If it is damaged, export the model again."
        ) from None
    if not signatures or not graphs:
        raise ServerError(f"The SavedModel in {folder} cannot be served: it has no signatures.")
    signature_def = {key: _json(value) for key, value in sorted(graphs[0].signature_def.items())}
    seconds, kind = time.monotonic() - started, _kind(signatures)
    return Model(name, version, kind, folder, signatures, signature_def, seconds, loaded)


def _signature(function):
    inputs = function.structured_input_signature[1]
    return Signature(dict(inputs), dict(function.structured_outputs), function)


def _kind(signatures):
    if DEFAULT_SIGNATURE not in signatures:
        return "model"
    default = signatures[DEFAULT_SIGNATURE]
    names = default.inputs.keys(), default.outputs.keys()
    return next((kind for kind, found in _KINDS.items() if found == names), "model")


def _json(message):
    return json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )


def _is_version(name):
    return name.isascii() and name.isdigit()


def _not_a_model(folder):
    try:
        kind = json.loads((folder / "export.json").read_text())["format"]
    except (OSError, ValueError, KeyError, TypeError):
        found = f"there is no {_FILE} in it or a numbered subfolder. Export a model first."
        return f"{folder} contains no SavedModel: {found}"
    return f"{folder} contains an export in the format {kind}. Only SavedModels can be served."


def _first_line(error):
    return next((line for line in str(error).splitlines() if line.strip()), "no reason given")
