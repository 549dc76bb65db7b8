"""SavedModels: how they are found, loaded, called and replaced by other versions."""

import asyncio
import contextlib
import ctypes
import gc
import re
import reprlib
import sys
import time
import weakref
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from google.protobuf import json_format
from tensorflow_serving.apis import get_model_metadata_pb2, prediction_log_pb2

from zoo.errors import ServerError, needed
from zoo.files import as_path, without_pattern
from zoo.server.errors import STATUS, RequestError

DEFAULT_SIGNATURE = "serving_default"
_STATUS = {getattr(tf.errors, name): status for name, status in STATUS.items()}
_FILE = "saved_model.pb"


class Signature(NamedTuple):
    """A signature of a SavedModel."""

    inputs: dict  # {name: `tf.TensorSpec`}
    outputs: dict  # the same
    function: Callable  # takes arrays by the names of the inputs, returns {output name: array}

    @property
    def is_batched(self):
        """Whether requests can be batched and their outputs split again.

        All inputs and outputs must have a dynamic first dimension. Outputs must have no other: it
        could depend on the other rows, as the width of attention maps depends on the longest row.
        """
        inputs = [spec.shape for spec in self.inputs.values()]
        outputs = [spec.shape for spec in self.outputs.values()]
        if not inputs or not all(shape.rank and shape[0] is None for shape in inputs + outputs):
            return False
        return all(shape[1:].is_fully_defined() for shape in outputs)


class Model(NamedTuple):
    """A served model."""

    name: str  # as in the URL, like the version
    version: int
    signatures: dict  # {name: `Signature`}
    metadata: dict  # the SavedModel's `SignatureDefMap` as JSON

    def signature(self, name):
        """Returns the `Signature` of this name.

        Raises:
            RequestError: 400 if there is none.
        """
        if not isinstance(name, str) or name not in self.signatures:
            raise RequestError(
                f"Serving signature name: {reprlib.repr(name)} not found in signature def. "
                f"Available: {sorted(self.signatures)}."
            )
        return self.signatures[name]

    def call(self, signature_name, inputs):
        """Calls a signature with {name: NumPy array}.

        Returns:
            {name: NumPy array}; strings are bytes in object arrays.

        Raises:
            RequestError: if the model raises an error.
        """
        signature = self.signatures[signature_name]
        try:
            outputs = signature.function(**inputs)
        except Exception as error:
            status = _STATUS.get(getattr(error, "error_code", None), 500)
            raise RequestError(f"The model raised an error: {_reason(error)}", status) from None
        return {
            name: np.asarray(value, object if signature.outputs[name].dtype == tf.string else None)
            for name, value in outputs.items()
        }


def _reason(error):
    """The message of an error, without TensorFlow's lines about the graph."""
    if not isinstance(error, tf.errors.OpError):
        return f"{type(error).__name__}: {error}"
    noise = r"(?m)^\s*(Graph execution error|Detected at node|<stack traces|\[\[\{\{node).*$"
    return " ".join(re.sub(noise, "", error.message).split()) or error.message


def load_all(folders):
    """Loads the models named on the command line; see `find` and `load`.

    Raises:
        ServerError: if one is missing, or two have the same name.
    """
    found = [find(folder) for folder in folders]
    names = sorted(name for name, *_ in found)
    if len({*names}) < len(names):
        raise ServerError(f"The names of models must differ: pass NAME=FOLDER. Received: {names}.")
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
    if not equals or "/" in name or as_path(given).exists():
        name = ""
        path = given
    folder = as_path(path)
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
        # As in TensorFlow Serving, each model has a session of its own: with the session, the
        # programs that XLA compiled are freed. Those of `tf.saved_model.load` never are.
        session = tf.compat.v1.Session(graph=tf.Graph())
        with without_pattern(folder) as readable, session.graph.as_default():
            graph = tf.compat.v1.saved_model.load(session, ["serve"], str(readable))
        signatures = {
            name: _signature(session, signature)
            for name, signature in graph.signature_def.items()
            if signature.outputs and not name.startswith("__saved_model")
        }
    except Exception as error:  # TensorFlow raises various errors for a damaged file
        if "Op type not registered" in str(error) and not sys.modules.get("tensorflow_text"):
            needed("tensorflow_text")  # registers the operations of tokenizers
            return load(name, version, folder)
        raise ServerError(
            f"The SavedModel in {folder} cannot be loaded. If it is damaged, export the model "
            f"again. ({type(error).__name__}: {str(error).strip()})"
        ) from None
    if not signatures:
        raise ServerError(f"The SavedModel in {folder} cannot be served: it has no signatures.")
    metadata = json_format.MessageToDict(
        get_model_metadata_pb2.SignatureDefMap(signature_def=graph.signature_def),
        preserving_proto_field_name=True,
        always_print_fields_with_no_presence=True,
    )
    model = Model(name, version, signatures, metadata)
    _warm_up(model, folder)
    print(f"{name}, version {version}: ready in {time.monotonic() - started:.1f} s", flush=True)
    return model


def _signature(session, signature):
    """The `Signature` of a `SignatureDef`."""
    inputs = {name: signature.inputs[name] for name in sorted(signature.inputs)}
    outputs = {name: signature.outputs[name] for name in sorted(signature.outputs)}
    call = session.make_callable(
        {name: tensor.name for name, tensor in outputs.items()},
        [tensor.name for tensor in inputs.values()],
    )
    return Signature(
        {name: _spec(tensor) for name, tensor in inputs.items()},
        {name: _spec(tensor) for name, tensor in outputs.items()},
        lambda **arrays: call(*(arrays[name] for name in inputs)),
    )


def _spec(tensor):
    """The `tf.TensorSpec` of a `TensorInfo`."""
    return tf.TensorSpec(tensor.tensor_shape, tensor.dtype)


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


async def watch(service, folders, seconds):
    """Checks for other versions of models, named as on the command line, until it is cancelled.

    A version is loaded when its files are the same in two checks. If that fails, it is loaded again
    only when they have changed, as a failed attempt can leave much in memory. An old version is
    freed at the first check after its last request.
    """
    seen = {}  # {argument: the files of its last check}
    tried = {}  # {argument: the files of the last attempt to load them}
    reported = set()
    old = []  # weak references to the batchers of versions that were replaced
    while True:
        await asyncio.sleep(seconds)
        if any(batcher() is None for batcher in old):
            old = [batcher for batcher in old if batcher() is not None]
            await asyncio.to_thread(_collect_garbage)
        for given in folders:
            try:
                name, version, folder = await asyncio.to_thread(find, given)
                if version == service.batchers[name].model.version:
                    continue
                files = await asyncio.to_thread(_files, folder)
                is_complete = files == seen.get(given)
                seen[given] = files
                if is_complete and files != tried.get(given):
                    tried[given] = files
                    model = await asyncio.to_thread(load, name, version, folder)
                    old.append(weakref.ref(service.batchers[name]))
                    service.serve(model)
            except Exception as error:  # for example, while a version is copied
                reason = f"{type(error).__name__}: {error}"
                line = f"Another version of {given} is not served yet. {reason}"
                if line not in reported:
                    reported.add(line)
                    print(line, flush=True)


def _collect_garbage():
    """Frees the graphs of old versions, which the garbage collector would find much later."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()  # as in `zoo.server.serve`
    give_back_memory()


def give_back_memory():
    """Returns freed memory to the system, of which the C library would keep gigabytes."""
    with contextlib.suppress(AttributeError, OSError, TypeError):  # it is not glibc
        ctypes.CDLL(None).malloc_trim(0)


def _files(folder):
    """{path: (modification time, size)} of all files in a folder."""
    found = {str(path): path.stat() for path in folder.rglob("*")}
    return {path: (status.st_mtime_ns, status.st_size) for path, status in found.items()}
