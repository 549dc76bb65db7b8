"""From the words of a command line to models."""

import json
import pathlib
import time

import tensorflow as tf
from google.protobuf import json_format
from tensorflow.core.protobuf import saved_model_pb2

from zoo.server.errors import ServerError
from zoo.server.models import DEFAULT_SIGNATURE, Model, Signature

_FILE = "saved_model.pb"


def load_all(folders):
    """Loads the models of the command line; see `load`.

    Raises:
        ServerError: also if there is none, or if two have the same name.
    """
    if not folders:
        raise ServerError("Name at least one folder with an exported model.")
    places = [find(folder) for folder in folders]
    homes = {}
    for name, _, folder in places:
        if name in homes:
            raise ServerError(
                f"Two models are named {name}: {homes[name]} and {folder}. "
                f"Give one of them another name: OTHER={folder}."
            )
        homes[name] = folder
    return [load(*place) for place in places]


def find(given):
    """Where the model is that a word of the command line names.

    Args:
        given: "…/NAME/1"; "…/NAME", of whose versions the highest is taken; or "NAME=path".

    Returns:
        Its name, its version and its folder.

    Raises:
        ServerError: if there is none.
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
        raise ServerError(f"{name!r} cannot be a model's name in a URL. Say NAME={folder}.")
    return name, version, folder


def load(name, version, folder):
    """Loads a SavedModel.

    Raises:
        ServerError: if it is damaged, or has no signatures.
    """
    started = time.monotonic()
    try:
        proto = saved_model_pb2.SavedModel.FromString((folder / _FILE).read_bytes())
        loaded = tf.saved_model.load(str(folder))
        graphs = [g for g in proto.meta_graphs if "serve" in g.meta_info_def.tags]
        signatures = {key: _signature(f) for key, f in loaded.signatures.items()}
    except Exception as error:  # TensorFlow has no type of error for a damaged file
        raise ServerError(
            f"The SavedModel in {folder} cannot be loaded ({type(error).__name__}: "
            f"{_first_line(error)}). If it is damaged, export the model again."
        ) from None
    if not signatures or not graphs:
        raise ServerError(f"The SavedModel in {folder} has no signatures, so it cannot be served.")
    signature_def = {key: _json(value) for key, value in sorted(graphs[0].signature_def.items())}
    return Model(
        name,
        version,
        _kind(signatures),
        folder,
        signatures,
        signature_def,
        time.monotonic() - started,
        loaded,
    )


def _signature(function):
    inputs = function.structured_input_signature[1]
    return Signature(dict(inputs), dict(function.structured_outputs), function)


def _kind(signatures):
    """What the signatures say a model is; see `zoo.export`."""
    if DEFAULT_SIGNATURE in signatures:
        default = signatures[DEFAULT_SIGNATURE]
        ends = (set(default.inputs), set(default.outputs))
        if ends == ({"texts"}, {"translations", "scores", "error"}):
            return "translator"
        if ends == ({"image_bytes"}, {"labels", "probabilities", "error"}):
            return "classifier"
    return "model"


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
        return (
            f"{folder} holds no SavedModel: there is no {_FILE} in it or in a folder of it that is "
            "named by a version number. Export a model first."
        )
    return f"{folder} holds an export in the format {kind}. What is served is a SavedModel."


def _first_line(error):
    return next((line for line in str(error).splitlines() if line.strip()), "no reason given")
