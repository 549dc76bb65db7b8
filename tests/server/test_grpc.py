"""TensorFlow Serving's gRPC method `Predict`."""

import concurrent.futures
import tracemalloc

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from tests.server import toys
from tests.server.conftest import MAX_BODY


@pytest.fixture(scope="module")
def stub(served):
    with grpc.insecure_channel(served.grpc_address) as channel:
        yield prediction_service_pb2_grpc.PredictionServiceStub(channel)


def request(name, signature="", version=None, **inputs):
    found = predict_pb2.PredictRequest()
    found.model_spec.name, found.model_spec.signature_name = name, signature
    if version is not None:
        found.model_spec.version.value = version
    for key, value in inputs.items():
        found.inputs[key].CopyFrom(tf.make_tensor_proto(value))
    return found


def half(signature="", version=None, **inputs):
    return request("half_plus_three", signature, version, **inputs)


def tensor(name, key, shape, signature="", dtype="float32", **content):
    """A request whose tensor may have fewer values than its shape: the last stands for the rest."""
    found = request(name, signature)
    proto = found.inputs[key]
    proto.dtype = tf.as_dtype(dtype).as_datatype_enum
    for size in shape:
        proto.tensor_shape.dim.add().size = size
    for field, values in content.items():
        getattr(proto, field).extend(values)
    return found


def test_grpc_answers_as_rest_does(stub):
    answer = stub.Predict(half(x=np.array([1, 2, 5], "float32")))
    np.testing.assert_array_equal(tf.make_ndarray(answer.outputs["y"]), [3.5, 4.0, 5.5])
    spec = answer.model_spec
    assert (spec.name, spec.version.value) == ("half_plus_three", 123)
    assert spec.signature_name == "serving_default"
    answer = stub.Predict(request("en_es", texts=["hola", "x" * 101]))
    assert tf.make_ndarray(answer.outputs["translations"]).tolist() == [
        [b"HOLA", b"HOLA!"],
        [b"", b""],
    ]
    only = request("en_es", version=1, texts=["hola"])
    only.output_filter.append("error")
    assert list(stub.Predict(only).outputs) == ["error"]


def test_one_value_stands_for_all_that_are_missing(stub):
    answer = stub.Predict(tensor("half_plus_three", "x", [3], float_val=[1.0, 2.0]))
    assert tf.make_ndarray(answer.outputs["y"]).tolist() == [3.5, 4.0, 4.0]


def test_an_output_that_is_asked_for_often_is_sent_once(stub):
    many = half(x=[1.0])
    many.output_filter.extend(["y"] * 50_000)
    assert list(stub.Predict(many, timeout=30).outputs) == ["y"]
    many.output_filter.append("z")
    with pytest.raises(grpc.RpcError, match="no output 'z'"):
        stub.Predict(many, timeout=30)


def uint8(value):
    numbers = {"bool": [True], "int8": [1], "uint8": [1], "int64": [1]}
    numbers |= {"float16": [1], "bfloat16": [1], "float64": [1]}
    made = request("toy", "numbers", **{n: tf.constant(v, n).numpy() for n, v in numbers.items()})
    made.inputs["uint8"].ClearField("tensor_content")
    made.inputs["uint8"].int_val.append(value)
    return made


def many_floats(*shape):
    return tensor("half_plus_three", "x", shape, float_val=[1.0])


def texts(count, *values):
    return tensor("toy", "data", [count], "raw", dtype="string", string_val=values)


@pytest.mark.parametrize(
    "make, code, message",
    [
        (lambda: half(version=0, x=[1.0]), "NOT_FOUND", "version 0"),
        (lambda: half(version=8, x=[1.0]), "NOT_FOUND", "version 8"),
        (lambda: many_floats(-1), "INVALID_ARGUMENT", "must be float32"),
        (lambda: many_floats(*[1] * 10_000), "INVALID_ARGUMENT", "must be float32"),
        (lambda: many_floats(10**12), "RESOURCE_EXHAUSTED", "more than 10,000 values"),
        (
            lambda: tensor("half_plus_three", "x", [1], float_val=[1.0, 2.0]),
            "INVALID_ARGUMENT",
            "cannot be",
        ),
        (lambda: uint8(300), "INVALID_ARGUMENT", "cannot be read"),
        (lambda: uint8(-3), "INVALID_ARGUMENT", "cannot be read"),
        (lambda: texts(1000, b"a" * 100_000), "INVALID_ARGUMENT", "must have 1000 strings"),
        (lambda: texts(1, b"a" * MAX_BODY), "RESOURCE_EXHAUSTED", "larger than max"),
        (lambda: request("nope"), "NOT_FOUND", "nope"),
        (lambda: half("nope", x=[1.0]), "INVALID_ARGUMENT", "nope"),
        (lambda: half(), "INVALID_ARGUMENT", "inputs must be"),
        (lambda: half(z=[1.0]), "INVALID_ARGUMENT", "inputs must be"),
        (lambda: half(x=[1]), "INVALID_ARGUMENT", "must be float32"),
        (lambda: half(x=[[1.0]]), "INVALID_ARGUMENT", "of shape"),
        (lambda: half(x=[1.0] * 200), "INVALID_ARGUMENT", "200 rows"),
        (lambda: request("toy", "checked", x=[-1.0]), "INVALID_ARGUMENT", "x is negative"),
    ],
)
def test_bad_grpc_requests(stub, make, code, message):
    with pytest.raises(grpc.RpcError) as error:
        stub.Predict(make(), timeout=30)
    assert error.value.code() == getattr(grpc.StatusCode, code)
    assert message in error.value.details()


def test_a_message_that_is_not_a_request(served):
    with grpc.insecure_channel(served.grpc_address) as channel:
        call = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
        with pytest.raises(grpc.RpcError) as error:
            call(b"\xff" * 9, timeout=30)
    assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_messages_count_in_the_memory_of_all_requests():
    """With the values that are missing in them; what is not finished has its place."""
    gate = toys.Gate()
    address = f"127.0.0.1:{toys.free_port()}"
    limits = {"max_body": 1250, "max_rows": 2000}
    message = tensor("toy", "x", [1000], float_val=[1.0])
    with (
        toys.running([gate.model], limits=limits, grpc_address=address) as (_, service, _),
        grpc.insecure_channel(address) as channel,
        concurrent.futures.ThreadPoolExecutor(5) as clients,
    ):
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        begun = [clients.submit(stub.Predict, message, timeout=30) for _ in range(5)]
        toys.wait_until(lambda: sum(one.done() for one in begun) == 3)
        assert 8000 <= service.memory <= 10_000
        gate.open.set()
        codes = [one.exception() and one.exception().code() for one in begun]
        assert codes.count(None) == 2 and codes.count(grpc.StatusCode.UNAVAILABLE) == 3
        toys.wait_until(lambda: service.memory == 0)


def test_messages_leave_nothing_to_the_garbage_collector(stub):
    message = texts(1, b"a" * (MAX_BODY - 1000))
    with toys.memory_traced():
        stub.Predict(message, timeout=30)
        tracemalloc.start()
        for _ in range(9):
            stub.Predict(message, timeout=30)
        toys.wait_until(lambda: tracemalloc.get_traced_memory()[0] < 4 * MAX_BODY, seconds=5.0)


def test_messages_that_do_not_come_shut_nobody_out():
    """Of eight that are received at once, all are late."""
    address = f"127.0.0.1:{toys.free_port()}"
    limits = {"request_timeout": 1.0}
    with (
        toys.running([toys.python_model()], limits=limits, grpc_address=address),
        grpc.insecure_channel(address) as channel,
    ):
        silent = channel.stream_unary("/tensorflow.serving.PredictionService/Predict")
        wait, calls = concurrent.futures.Future(), []
        for _ in range(8):
            calls.append(silent.future(iter(wait.result, None), timeout=30))
        for call in calls:
            with pytest.raises(grpc.RpcError, match="more than 1 s"):
                call.result(timeout=30)
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        answer = stub.Predict(request("toy", x=[1.0]), timeout=30)
        assert tf.make_ndarray(answer.outputs["y"]).tolist() == [10.0]
        wait.set_result(None)
