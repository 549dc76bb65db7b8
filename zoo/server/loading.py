"""Finds and loads the SavedModels named on the command line."""

import collections
import pathlib
import time

import tensorflow as tf
from google.protobuf import json_format
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import prediction_log_pb2

from zoo.errors import UserError, needed
from zoo.server.errors import ServerError
from zoo.server.models import DEFAULT_SIGNATURE, Model, Signature

_FILE = "saved_model.pb"


def load_all(folders):
    """Loads the models named on the command line; see `find` and `load`.

    Raises:
        ServerError: if one is missing, or two have the same name.
    """
    found = [find(folder) for folder in folders]
    for name, count in collections.Counter(name for name, *_ in found).items():
        if count > 1:
            raise ServerError(f"{count} models are named {name}. Rename one with OTHER=FOLDER.")
    return [load(*model) for model in found]


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
        versions = [f for f in folder.iterdir() if f.name.isdecimal() and (f / _FILE).is_file()]
        if not versions:
            raise ServerError(
                f"{folder} contains no SavedModel: no {_FILE} is in it or in a numbered subfolder. "
                "Export a run first: python -m zoo export."
            )
        folder = max(versions, key=lambda version: int(version.name))
    folder = folder.resolve()
    has_version = folder.name.isdecimal()
    version = int(folder.name) if has_version else 1
    name = name or (folder.parent.name if has_version else folder.name)
    if not name or set(name) & set("/:"):
        raise ServerError(f"The model name {name!r} cannot be used in a URL. Pass NAME={folder}.")
    return name, version, folder


def load(name, version, folder):
    """Loads a SavedModel and warms it up.

    Raises:
        ServerError: if it is damaged, has no signatures or cannot be warmed up.
        UserError: if tensorflow-text is required, but not installed.
    """
    started = time.monotonic()
    try:
        proto = saved_model_pb2.SavedModel.FromString((folder / _FILE).read_bytes())
        loaded = _loaded(folder)
        signatures = {
            key: Signature(f.structured_input_signature[1], f.structured_outputs, f)
            for key, f in loaded.signatures.items()
        }
        [graph] = [g for g in proto.meta_graphs if "serve" in g.meta_info_def.tags]
    except UserError:
        raise
    except Exception as error:  # TensorFlow raises various errors for a damaged file
        raise ServerError(
            f"The SavedModel in {folder} cannot be loaded. If it is damaged, export the model "
            f"again. ({type(error).__name__}: {str(error).strip()})"
        ) from None
    if not signatures:
        raise ServerError(f"The SavedModel in {folder} cannot be served: it has no signatures.")
    definitions = {
        key: json_format.MessageToDict(
            proto, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )
        for key, proto in graph.signature_def.items()
    }
    model = Model(name, version, signatures, definitions, loaded)
    _warm_up(model, folder)
    print(f"{name}, version {version}: ready in {time.monotonic() - started:.1f} s", flush=True)
    return model


def _loaded(folder):
    try:
        return tf.saved_model.load(str(folder))
    except Exception as error:
        if "Op type not registered" not in str(error):
            raise
        needed("tensorflow_text")  # registers the operations of tokenizers
        return tf.saved_model.load(str(folder))


def _warm_up(model, folder):
    """Makes the requests that are stored with the model, as first calls are slow.

    Source: TensorFlow Serving, "SavedModel Warmup" (tensorflow.org/tfx/serving).
    """
    path = folder / "assets.extra" / "tf_serving_warmup_requests"
    if not path.is_file():
        return
    try:
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            log = prediction_log_pb2.PredictionLog.FromString(record)
            if log.HasField("predict_log"):  # not of `Classify`, for example
                request = log.predict_log.request
                inputs = {key: tf.make_ndarray(value) for key, value in request.inputs.items()}
                model.call(request.model_spec.signature_name or DEFAULT_SIGNATURE, inputs)
    except Exception as error:
        raise ServerError(
            f"The warm-up requests in {path} cannot be answered. Export the model again, or delete "
            f"the file. ({type(error).__name__}: {error})"
        ) from None
