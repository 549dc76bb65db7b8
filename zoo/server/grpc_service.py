"""TensorFlow Serving's gRPC service, of which `Predict` is answered.

Source: TensorFlow Serving, tensorflow_serving/apis/prediction_service.proto.
"""

import asyncio
import math

import grpc
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from zoo.server.errors import RequestError, ServerError, release
from zoo.server.models import DEFAULT_SIGNATURE

_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    404: grpc.StatusCode.NOT_FOUND,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    501: grpc.StatusCode.UNIMPLEMENTED,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}


class PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Answers `Predict` by the models of a service.

    Args:
        service: `zoo.server.app.Service`.
    """

    def __init__(self, service):
        self._service = service

    async def Predict(self, request, context):
        seconds = self._service.limits.request_timeout
        try:
            async with asyncio.timeout(seconds):
                return await self._answer(request)
        except TimeoutError:
            message = f"The request took more than {seconds:g} s."
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, message)
        except RequestError as error:
            release(error)
            code = _CODES.get(error.status, grpc.StatusCode.INTERNAL)
            await context.abort(code, error.message)

    async def _answer(self, request):
        spec = request.model_spec
        version = spec.version.value if spec.HasField("version") else None
        batcher = self._service.batcher(spec.name, version, spec.version_label)
        model, name = batcher.model, spec.signature_name or DEFAULT_SIGNATURE
        signature = model.signature(name)
        with self._service.accepted(batcher, request.ByteSize()):
            limits = self._service.limits
            inputs = await asyncio.to_thread(_arrays, request.inputs, signature.inputs, limits)
            names = await asyncio.to_thread(_names, request.output_filter, signature.outputs)
            outputs = await batcher.run(name, inputs)
            answer = predict_pb2.PredictResponse()
            answer.model_spec.name = model.name
            answer.model_spec.version.value = model.version
            answer.model_spec.signature_name = name
            for key in names:
                answer.outputs[key].CopyFrom(tf.make_tensor_proto(outputs[key]))
        return answer


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
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
        PredictionService(service), server
    )
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise ServerError(f"Cannot listen on {address}: {error}. Choose another port.") from None
    await server.start()
    return server, port


def _names(output_filter, specs):
    """The outputs to answer, each once: those of a filter, or all."""
    names = set(output_filter) or specs.keys()
    for name in names - specs.keys():
        raise RequestError(400, f"There is no output {name[:80]!r}.")
    return names


def _arrays(protos, specs, limits):
    """Converts {name: `TensorProto`} to NumPy arrays that fit the signature."""
    if protos.keys() != specs.keys():
        names = sorted(name[:80] for name in protos)
        raise RequestError(400, f"The inputs must be {sorted(specs)}. Received: {names[:9]}.")
    return {name: _array(name, protos[name], spec, limits) for name, spec in specs.items()}


def _array(name, proto, spec, limits):
    shape = [axis.size for axis in proto.tensor_shape.dim[:65]]  # more than NumPy can have
    fits = proto.dtype == spec.dtype.as_datatype_enum and min(shape, default=0) >= 0
    if not fits or not spec.shape.is_compatible_with(shape):
        raise RequestError(
            400,
            f"Input {name!r} must be {spec.dtype.name} of shape {spec.shape}. "
            f"Received: data type {proto.dtype} of shape {shape[:9]}.",
        )
    # The last value stands for all that are missing, so that a short message makes a huge array.
    count, strings = math.prod(shape), proto.string_val
    if count > limits.max_values:
        raise RequestError(413, f"Input {name!r} has more than {limits.max_values:,} values.")
    if strings and (count - len(strings)) * len(strings[-1]) > limits.max_body:
        raise RequestError(413, f"Input {name!r} is larger than {limits.max_body} bytes.")
    try:
        return tf.make_ndarray(proto)
    except (TypeError, ValueError) as error:
        raise RequestError(400, f"Input {name!r} cannot be read: {error}") from None
