"""TensorFlow Serving's gRPC service, of which `Predict` is answered.

Source: TensorFlow Serving, tensorflow_serving/apis/prediction_service.proto.
"""

import asyncio
import math

import grpc
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow_serving.apis import predict_pb2

from zoo.server.errors import RequestError, ServerError, release
from zoo.server.models import DEFAULT_SIGNATURE
from zoo.server.service import LARGE_BODIES

_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    404: grpc.StatusCode.NOT_FOUND,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    501: grpc.StatusCode.UNIMPLEMENTED,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}


async def start(service, address):
    """Starts a gRPC server at "host:port"; returns `grpc.aio.Server` and its port."""
    limits = service.limits
    # The size of a message is known when it has been received: only so many are at once.
    receiving = asyncio.Semaphore(LARGE_BODIES)

    async def predict(messages, context):
        try:
            async with service.accepted() as take:
                async with receiving:
                    message = await context.read()  # an iterator would keep it
                    take(len(message))
                return await _answer(service, message, take)
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
    # As a stream, of one message, because only of a stream the service decides when it is received.
    handler = grpc.stream_unary_rpc_method_handler(
        predict, response_serializer=predict_pb2.PredictResponse.SerializeToString
    )
    name, methods = "tensorflow.serving.PredictionService", {"Predict": handler}
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(name, methods)])
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise ServerError(f"Cannot listen on {address}: {error}. Choose another port.") from None
    await server.start()
    return server, port


async def _answer(service, message, take):
    """`PredictResponse` for the bytes of a `PredictRequest`."""
    request = await asyncio.to_thread(_read, predict_pb2.PredictRequest.FromString, message)
    spec = request.model_spec
    version = str(spec.version.value) if spec.HasField("version") else None
    batcher = service.batcher(spec.name, spec.version_label or version)  # versions have no labels
    model, name = batcher.model, spec.signature_name or DEFAULT_SIGNATURE
    signature = model.signature(name)
    keys = set(request.output_filter) or signature.outputs.keys()  # each is sent once
    for key in keys - signature.outputs.keys():
        raise RequestError(f"There is no output {key[:80]!r}.")
    if request.inputs.keys() != signature.inputs.keys():
        raise RequestError(f"The inputs must be {sorted(signature.inputs)}.")
    limit, protos = service.limits.max_values, request.inputs
    size = sum(_check(key, protos[key], spec, limit) for key, spec in signature.inputs.items())
    take(max(0, size - len(message)))
    inputs = {key: await asyncio.to_thread(_read, tf.make_ndarray, protos[key]) for key in protos}
    outputs = await batcher.run(name, inputs)
    spec = {"name": model.name, "version": {"value": model.version}, "signature_name": name}
    protos = {key: tf.make_tensor_proto(outputs[key]) for key in keys}
    return predict_pb2.PredictResponse(model_spec=spec, outputs=protos)


def _read(function, content):
    try:
        return function(content)
    except (DecodeError, OverflowError, TypeError, ValueError) as error:
        raise RequestError(f"The message cannot be read: {error}") from None


def _check(name, proto, spec, max_values):
    """Checks a `TensorProto`; returns the number of bytes of its array, without its strings.

    The last value stands for all that are missing, so that a short message makes a huge array.
    """
    shape = [axis.size for axis in proto.tensor_shape.dim[:65]]  # more than NumPy can have
    fits = proto.dtype == spec.dtype.as_datatype_enum and min(shape, default=0) >= 0
    if not fits or not spec.shape.is_compatible_with(shape):
        raise RequestError(f"Input {name!r} must be {spec.dtype.name} of shape {spec.shape}.")
    count = math.prod(shape)
    if count > max_values:
        raise RequestError(f"Input {name!r} has more than {max_values:,} values.", 413)
    if spec.dtype == tf.string and len(proto.string_val) != count:
        raise RequestError(f"Input {name!r} must have {count} strings.")
    return count * spec.dtype.size
