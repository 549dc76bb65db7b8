"""TensorFlow Serving's gRPC service, with the method `Predict`.

Source: TensorFlow Serving, tensorflow_serving/apis/prediction_service.proto.
"""

import asyncio
import functools
import math
import reprlib
import time
from collections.abc import Collection
from typing import NamedTuple

import grpc
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.framework import types_pb2
from tensorflow_serving.apis import predict_pb2

from zoo.errors import ServerError
from zoo.server.batching import Batcher
from zoo.server.errors import STATUS, RequestError, release
from zoo.server.models import DEFAULT_SIGNATURE
from zoo.server.rest_app import LARGE_BODIES

_CODES = {status: getattr(grpc.StatusCode, name) for name, status in STATUS.items()}
_CODES[413] = grpc.StatusCode.RESOURCE_EXHAUSTED
_SILENT_SECONDS = 5.0  # a client may send no message while others need its place
_NAMES = {value: name for name, value in types_pb2.DataType.items()}


async def start(service, address):
    """Starts a gRPC server at "host:port"; returns `grpc.aio.Server` and its port."""
    limits = service.limits
    # The size of a message is only known when it is in memory, so few are received at once.
    receiving = asyncio.Semaphore(LARGE_BODIES)

    async def predict(messages, context):
        arrived = time.monotonic()
        try:
            async with service.accepted() as take:
                async with receiving:
                    # After it has waited for a place, a client is only given a moment.
                    left = max(arrived + _SILENT_SECONDS - time.monotonic(), _SILENT_SECONDS / 5)
                    request = await _received(service, context, take, receiving, left)
                return await _answer(request)
        except RequestError as error:
            release(error)
            code = _CODES.get(error.status_code, grpc.StatusCode.INTERNAL)
            await context.abort(code, error.detail)

    server = grpc.aio.server(
        maximum_concurrent_rpcs=limits.max_queue,
        options=[
            ("grpc.max_receive_message_length", limits.max_body),
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 0),
        ],
    )
    # A stream of one message, as the service decides only for streams when to receive a message.
    handler = grpc.stream_unary_rpc_method_handler(
        predict, response_serializer=predict_pb2.PredictResponse.SerializeToString
    )
    handlers = grpc.method_handlers_generic_handler(
        "tensorflow.serving.PredictionService", {"Predict": handler}
    )
    server.add_generic_rpc_handlers([handlers])
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise ServerError(f"Cannot listen on {address}: {error}. Choose another port.") from None
    await server.start()
    return server, port


class _Request(NamedTuple):
    batcher: Batcher
    signature_name: str
    inputs: dict  # {name: NumPy array}
    output_names: Collection


async def _received(service, context, take, receiving, seconds):
    """Receives a message; returns its `_Request`.

    A large message is in memory once while it waits, and a few times while it is parsed.
    """
    reading = asyncio.ensure_future(context.read())  # an iterator would keep it in memory
    while not (await asyncio.wait([reading], timeout=seconds))[0]:
        if receiving.locked():  # others may wait
            reading.cancel()
            raise RequestError(f"No message came within {_SILENT_SECONDS:g} s.", 503)
    message = reading.result()
    del reading
    if message is grpc.aio.EOF:
        raise RequestError("There is no message.")
    size = len(message)
    take(size)
    convert = functools.partial(asyncio.get_running_loop().run_in_executor, service.converters)
    request = await convert(_read, predict_pb2.PredictRequest.FromString, message, "The message")
    del message
    spec = request.model_spec
    version = str(spec.version.value) if spec.HasField("version") else None
    batcher = service.batcher(spec.name, spec.version_label or version)  # versions have no labels
    name = spec.signature_name or DEFAULT_SIGNATURE
    signature = batcher.model.signature(name)
    keys = set(request.output_filter) or signature.outputs.keys()  # each is sent once
    for key in keys - signature.outputs.keys():
        raise RequestError(f"There is no output {key[:80]!r}.")
    specs = signature.inputs
    protos = request.inputs
    if protos.keys() != specs.keys():
        received = reprlib.repr(sorted(protos))
        raise RequestError(f"The inputs must be {sorted(specs)}. Received: {received}.")
    limit = service.limits.max_values
    array_size = sum(_check(key, protos[key], specs[key], limit) for key in specs)
    take(max(0, array_size - size))
    inputs = {
        key: await convert(_read, tf.make_ndarray, protos[key], f"Input {key!r}") for key in specs
    }
    return _Request(batcher, name, inputs, keys)


async def _answer(request):
    """Calls the model; returns `PredictResponse` with the requested outputs."""
    name = request.signature_name
    outputs = await request.batcher.run(name, request.inputs, request.output_names)
    model = request.batcher.model
    spec = {"name": model.name, "version": {"value": model.version}, "signature_name": name}
    protos = {key: tf.make_tensor_proto(value) for key, value in outputs.items()}
    return predict_pb2.PredictResponse(model_spec=spec, outputs=protos)


def _read(function, content, what):
    try:
        return function(content)
    except (DecodeError, OverflowError, TypeError, ValueError) as error:
        raise RequestError(f"{what} cannot be read: {error}.") from None


def _check(name, proto, spec, max_values):
    """Validates a `TensorProto`; returns the number of bytes of its array, without its strings.

    The last value is repeated for all that are missing, so a short message can be a huge array.
    """
    shape = [axis.size for axis in proto.tensor_shape.dim[:65]]  # more than NumPy can have
    kind = spec.dtype
    fits = proto.dtype == kind.as_datatype_enum and min(shape, default=0) >= 0
    if not fits or not spec.shape.is_compatible_with(shape):
        received = f"{_NAMES.get(proto.dtype, proto.dtype)}, {reprlib.repr(shape)}"
        reason = f"must be {kind.name} of shape {spec.shape}. Received: {received}."
        raise RequestError(f"Input {name!r} {reason}")
    count = math.prod(shape)
    if count > max_values:
        raise RequestError(f"Input {name!r} has more than {max_values:,} values.", 413)
    given = _filled(proto)
    if "tensor_content" in given and kind != tf.string:  # bytes of all values
        field = "tensor_content"
        unit = kind.size
        least = count
    else:
        # The proto of a single value shows in which field values of this dtype are.
        one = tf.make_tensor_proto("" if kind == tf.string else kind.as_numpy_dtype(0), kind)
        [(field, unit)] = _filled(one).items()
        least = count if kind == tf.string else min(count, 1)
    found = given.get(field, 0)
    if given.keys() - {field} or found % unit or not least * unit <= found <= count * unit:
        wanted = f"{count * unit:,} in {field}"
        raise RequestError(f"Input {name!r} of shape {shape} needs {wanted}. Received: {given}.")
    return count * kind.size


def _filled(proto):
    """The number of values in each field of a `TensorProto` that has some: {name: int}."""
    fields = ((field.name, value) for field, value in proto.ListFields())
    return {name: len(value) for name, value in fields if name.endswith(("_val", "_content"))}
