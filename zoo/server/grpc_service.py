"""TensorFlow Serving's gRPC service, of which `Predict` is answered.

Source: TensorFlow Serving, tensorflow_serving/apis/prediction_service.proto.
"""

import asyncio
import math

import grpc
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2
from tensorflow_serving.apis import prediction_service_pb2_grpc as prediction_service

from zoo.server.errors import RequestError, ServerError, bad_request, release
from zoo.server.models import DEFAULT_SIGNATURE

_POINTER = 8  # bytes for each string of an array
_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    404: grpc.StatusCode.NOT_FOUND,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    501: grpc.StatusCode.UNIMPLEMENTED,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}


class PredictionService(prediction_service.PredictionServiceServicer):
    """Answers `Predict` by the models of a service.

    Args:
        service: `zoo.server.app.Service`.
    """

    def __init__(self, service):
        self._service = service

    async def Predict(self, request, context):
        try:
            return await self._answer(request)
        except RequestError as error:
            release(error)
            code = _CODES.get(error.status_code, grpc.StatusCode.INTERNAL)
            await context.abort(code, error.detail)

    async def _answer(self, request):
        service, spec = self._service, request.model_spec
        version = spec.version.value if spec.HasField("version") else None
        batcher = service.batcher(spec.name, version, spec.version_label)
        model, name = batcher.model, spec.signature_name or DEFAULT_SIGNATURE
        signature = model.signature(name)
        keys = set(request.output_filter) or signature.outputs.keys()  # each is sent once
        for key in keys - signature.outputs.keys():
            raise bad_request(f"There is no output {key[:80]!r}.")
        async with service.accepted(batcher) as take:
            take(request.ByteSize())
            inputs = await asyncio.to_thread(
                _arrays, request.inputs, signature.inputs, service.limits, take
            )
            outputs = await batcher.run(name, inputs)
            version = {"value": model.version}
            spec = {"name": model.name, "version": version, "signature_name": name}
            protos = {key: tf.make_tensor_proto(outputs[key]) for key in keys}
            return predict_pb2.PredictResponse(model_spec=spec, outputs=protos)


async def start(service, address):
    """Starts a gRPC server; returns `grpc.aio.Server` and its port.

    Args:
        service: `zoo.server.app.Service`.
        address: "host:port".

    Raises:
        ServerError: if the address cannot be used.
    """
    limits = service.limits
    server = grpc.aio.server(
        maximum_concurrent_rpcs=limits.max_queue,
        options=[
            ("grpc.max_receive_message_length", limits.max_body),
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 0),
        ],
    )
    prediction_service.add_PredictionServiceServicer_to_server(PredictionService(service), server)
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise ServerError(f"Cannot listen on {address}: {error}. Choose another port.") from None
    await server.start()
    return server, port


def _arrays(protos, specs, limits, take):
    """Converts {name: `TensorProto`} to NumPy arrays that fit the signature."""
    if protos.keys() != specs.keys():
        names = sorted(name[:80] for name in protos)
        raise bad_request(f"The inputs must be {sorted(specs)}. Received: {names[:9]}.")
    return {name: _array(name, protos[name], spec, limits, take) for name, spec in specs.items()}


def _array(name, proto, spec, limits, take):
    shape = [axis.size for axis in proto.tensor_shape.dim[:65]]  # more than NumPy can have
    fits = proto.dtype == spec.dtype.as_datatype_enum and min(shape, default=0) >= 0
    if not fits or not spec.shape.is_compatible_with(shape):
        raise bad_request(
            f"Input {name!r} must be {spec.dtype.name} of shape {spec.shape}. "
            f"Received: data type {proto.dtype} of shape {shape[:9]}."
        )
    # The last value stands for all that are missing, so that a short message makes a huge array.
    count, strings = math.prod(shape), proto.string_val
    if count > limits.max_values:
        raise RequestError(413, f"Input {name!r} has more than {limits.max_values:,} values.")
    size = count * (spec.dtype.size or _POINTER)
    if spec.dtype == tf.string and strings:
        size += max(0, count - len(strings)) * len(strings[-1])
    if size > limits.max_body:
        raise RequestError(413, f"Input {name!r} is larger than {limits.max_body} bytes.")
    take(max(0, size - proto.ByteSize()))
    try:
        return tf.make_ndarray(proto)
    except (TypeError, ValueError) as error:
        raise bad_request(f"Input {name!r} cannot be read: {error}") from None
