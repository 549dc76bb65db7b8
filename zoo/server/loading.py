"""Finds and loads the SavedModels named on the command line."""

import collections
import pathlib
import time

import tensorflow as tf
from google.protobuf import json_format
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import prediction_log_pb2

from zoo.server.errors import ServerError
from zoo.server.models import DEFAULT_SIGNATURE, Model, Signature

_FILE = "saved_model.pb"


def load_all(folders):
    """Loads the models named on the command line; see `find` and `load`.

    Raises:
        ServerError: if there is no model, or two have the same name.
    """
    if not folders:
        raise ServerError("Name at least one folder with an exported model.")
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
                f"{folder} contains no SavedModel: no {_FILE} is in it or in a numbered subfolder."
            )
        folder = max(versions, key=lambda version: int(version.name))
    absolute = folder.resolve()
    has_version = absolute.name.isdecimal()
    version = int(absolute.name) if has_version else 1
    name = name or (absolute.parent.name if has_version else absolute.name)
    if not name or set(name) & set("/:"):
        raise ServerError(f"The model name {name!r} cannot be used in a URL. Pass NAME={folder}.")
    return name, version, folder


def load(name, version, folder):
    """Loads a SavedModel, and warms it up.

    Raises:
        ServerError: if it is damaged, has no signatures, needs a package that is not installed, or
            cannot be warmed up.
    """
    started = time.monotonic()
    try:
        proto = saved_model_pb2.SavedModel.FromString((folder / _FILE).read_bytes())
        loaded = _loaded(folder)
        signatures = {key: _signature(f) for key, f in loaded.signatures.items()}
        [graph] = [g for g in proto.meta_graphs if "serve" in g.meta_info_def.tags]
    except ServerError:
        raise
    except Exception as error:  # TensorFlow raises various errors for a damaged file
        reason = next(iter(str(error).strip().splitlines()), "no reason given")
        raise ServerError(
            f"The SavedModel in {folder} cannot be loaded ({type(error).__name__}: {reason}). "
            "If it is damaged, export the model again."
        ) from None
    if not signatures:
        raise ServerError(f"The SavedModel in {folder} cannot be served: it has no signatures.")
    signature_def = {key: _json(value) for key, value in sorted(graph.signature_def.items())}
    model = Model(name, version, signatures, signature_def, loaded)
    loaded_at = time.monotonic()
    _warm_up(model, folder)
    times = (
        f"loaded in {loaded_at - started:.1f} s, warmed up in {time.monotonic() - loaded_at:.1f} s"
    )
    print(f"{name}, version {version}: {times}", flush=True)
    return model


def _loaded(folder):
    try:
        return tf.saved_model.load(str(folder))
    except Exception as error:
        if "Op type not registered" not in str(error):
            raise
        try:
            import tensorflow_text  # noqa: F401 (which registers its operations)
        except ImportError:
            raise ServerError(
                f"The SavedModel in {folder} has operations that are not TensorFlow's own. If it "
                "reads texts, install the package tensorflow-text."
            ) from None
        return tf.saved_model.load(str(folder))


def _warm_up(model, folder):
    """Makes the requests that the model's export contains for this, as TensorFlow Serving does.

    The first call of a model, or of new shapes, is slower than later ones. Requests of other kinds
    than `Predict` are left out.

    Source: TensorFlow Serving, "SavedModel Warmup" (tensorflow.org/tfx/serving).
    """
    path = folder / "assets.extra" / "tf_serving_warmup_requests"
    if not path.is_file():
        return
    try:
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            log = prediction_log_pb2.PredictionLog.FromString(record)
            if log.HasField("predict_log"):
                request = log.predict_log.request
                inputs = {key: tf.make_ndarray(value) for key, value in request.inputs.items()}
                model.call(request.model_spec.signature_name or DEFAULT_SIGNATURE, inputs)
    except Exception as error:
        reason = getattr(error, "detail", f"{type(error).__name__}: {error}")
        raise ServerError(
            f"The warm-up requests in {path} cannot be answered. Export the model again, or delete "
            f"the file. {reason}"
        ) from None


def _signature(function):
    inputs = function.structured_input_signature[1]
    return Signature(dict(inputs), dict(function.structured_outputs), function)


def _json(message):
    return json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
