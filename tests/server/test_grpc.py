"""TensorFlow Serving's gRPC method `Predict`."""

import concurrent.futures
import math
import pathlib
import re
import time
import tracemalloc

import grpc
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorflow.core.framework import tensor_pb2
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from tests.server import toys
from tests.server.conftest import MAX_BODY
from zoo.server import grpc_service
from zoo.server.errors import RequestError
from zoo.server.grpc_service import _check, _read


@pytest.fixture(scope="module")
def stub(served):
    with grpc.insecure_channel(served.grpc_address) as channel:
        yield prediction_service_pb2_grpc.PredictionServiceStub(channel)


def request(name, signature="", version=None, **inputs):
    found = predict_pb2.PredictRequest()
    found.model_spec.name = name
    found.model_spec.signature_name = signature
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
    fill(proto, **content)
    return found


def fill(proto, **content):
    for field, values in content.items():
        if field == "tensor_content":
            proto.tensor_content = values
        else:
            getattr(proto, field).extend(values)


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
    only = attention_of(110)
    only.output_filter.append("source_tokens")
    assert tf.make_ndarray(stub.Predict(only).outputs["source_tokens"]).shape == (1, 100)


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
    made.inputs["uint8"].ClearField("int_val")
    made.inputs["uint8"].int_val.append(value)
    return made


def attention_of(words):
    """A short message, whose answer has 100 weights for each word."""
    return request("en_es", "attention", texts=["a " * 100], translations=["a " * words])


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
            lambda: tensor("half_plus_three", "x", [1], float_val=[1.0], string_val=[b"1"]),
            "INVALID_ARGUMENT",
            "needs 1 in float_val.",
        ),
        (lambda: uint8(300), "INVALID_ARGUMENT", "Input 'uint8' cannot be read"),
        (lambda: texts(1000, b"a" * 100_000), "INVALID_ARGUMENT", "needs 1,000 in string_val"),
        (lambda: texts(1, b"a" * MAX_BODY), "RESOURCE_EXHAUSTED", "larger than max"),
        (lambda: attention_of(110), "RESOURCE_EXHAUSTED", "answer has 11,211 values, more than"),
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


@pytest.mark.parametrize("messages", [[], [b"\xff" * 9]])
def test_a_message_that_is_not_a_request(served, messages):
    with grpc.insecure_channel(served.grpc_address) as channel:
        call = channel.stream_unary("/tensorflow.serving.PredictionService/Predict")
        with pytest.raises(grpc.RpcError, match="message") as error:
            call(iter(messages), timeout=30)
    assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT


FIELDS = {
    "half_val": ["float16", "bfloat16"],
    "float_val": ["float32"],
    "double_val": ["float64"],
    "int_val": ["int8", "int16", "int32", "uint8", "uint16"],
    "int64_val": ["int64"],
    "uint32_val": ["uint32"],
    "uint64_val": ["uint64"],
    "bool_val": ["bool"],
    "string_val": ["string"],
    "scomplex_val": ["complex64"],
    "dcomplex_val": ["complex128"],
}
INT32 = st.integers(-(2**31), 2**31 - 1) | st.integers(-1, 300)
VALUES = {"int_val": INT32, "half_val": INT32, "int64_val": st.integers(-(2**63), 2**63 - 1)}
VALUES |= {"uint32_val": st.integers(0, 2**32 - 1), "uint64_val": st.integers(0, 2**64 - 1)}
VALUES |= {"bool_val": st.booleans(), "string_val": st.binary(max_size=3)}


@settings(max_examples=300, deadline=None)
@given(st.data(), st.sampled_from([(f, d) for f, dtypes in FIELDS.items() for d in dtypes]))
def test_tensors_are_read_correctly_or_refused_by_name(data, own):
    """Values or bytes in any field; only the right number and range are accepted."""
    field, dtype = own
    kind = tf.as_dtype(dtype)
    shape = data.draw(st.lists(st.integers(0, 3) | st.just(-1) | st.just(2**40), max_size=2))
    given_ = data.draw(st.sampled_from([field] * 5 + [*FIELDS, "tensor_content"]))
    values = data.draw(
        st.binary(max_size=20)
        if given_ == "tensor_content"
        else st.lists(VALUES.get(given_, st.floats(width=32)), max_size=5)
    )
    proto = tensor_pb2.TensorProto(dtype=kind.as_datatype_enum)
    for size in shape:
        proto.tensor_shape.dim.add().size = size
    fill(proto, **{given_: values})
    count = math.prod(shape)
    each = 2 if kind.is_complex else 1
    is_full = len(values) == count * (kind.size if given_ == "tensor_content" else each)
    if given_ == "tensor_content":
        is_right = is_full and (dtype != "string" or count == 0)
    else:
        one_stands_for_all = dtype != "string" and 0 < len(values) < count * each
        is_right = (is_full or one_stands_for_all) and len(values) % each == 0
        is_right &= given_ == field or not values
    if given_ == field and field in ("int_val", "half_val"):
        high = np.iinfo(np.uint16).max if given_ == "half_val" else kind.max
        low = 0 if given_ == "half_val" else kind.min
        is_right = is_right and all(low <= value <= high for value in values)
    is_right &= all(size >= 0 for size in shape) and count <= 1000
    try:
        size = _check("x", proto, tf.TensorSpec(None, dtype), 1000)
        array = _read(tf.make_ndarray, proto, "Input 'x'")
    except RequestError as error:
        assert error.status_code in (400, 413) and error.detail.startswith("Input 'x'")
        assert not is_right, error.detail
    else:
        assert is_right and (list(array.shape), size) == (shape, count * kind.size)
        assert array.dtype == (object if dtype == "string" else kind.as_numpy_dtype)
        if given_ == "int_val" and count:
            padded = values + values[-1:] * (count - len(values))
            assert array.reshape(-1).tolist() == padded


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
        wait = concurrent.futures.Future()
        calls = []
        for _ in range(8):
            calls.append(silent.future(iter(wait.result, None), timeout=30))
        for call in calls:
            with pytest.raises(grpc.RpcError, match="more than 1 s"):
                call.result(timeout=30)
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        answer = stub.Predict(request("toy", x=[1.0]), timeout=30)
        assert tf.make_ndarray(answer.outputs["y"]).tolist() == [10.0]
        wait.set_result(None)


def test_silent_clients_make_room_for_others(monkeypatch):
    """Of eight that are received at once; as long as a place is free, they are not hurried."""
    monkeypatch.setattr(grpc_service, "_SILENT_SECONDS", 0.3)
    address = f"127.0.0.1:{toys.free_port()}"
    with (
        toys.running([toys.python_model()], grpc_address=address),
        grpc.insecure_channel(address) as channel,
    ):
        silent = channel.stream_unary("/tensorflow.serving.PredictionService/Predict")
        wait = concurrent.futures.Future()
        calls = [silent.future(iter(wait.result, None), timeout=30) for _ in range(7)]
        time.sleep(1)
        assert not any(call.done() for call in calls)
        calls += [silent.future(iter(wait.result, None), timeout=30) for _ in range(9)]
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        answer = stub.Predict(request("toy", x=[1.0]), timeout=5)
        assert tf.make_ndarray(answer.outputs["y"]).tolist() == [10.0]
        ended = [call for call in calls if call.done()]
        assert ended and all(call.code() == grpc.StatusCode.UNAVAILABLE for call in ended)
        assert "No message came within 0.3 s" in ended[0].details()
        wait.set_result(None)


@pytest.mark.slow
def test_many_silent_clients_that_come_again():
    """A place is free in a moment: of 100, each had time to send while it waited."""
    address = f"127.0.0.1:{toys.free_port()}"
    with (
        toys.running([toys.python_model()], grpc_address=address),
        grpc.insecure_channel(address) as channel,
    ):
        silent = channel.stream_unary("/tensorflow.serving.PredictionService/Predict")
        wait = concurrent.futures.Future()

        def again(_):
            if not wait.done():
                call = silent.future(iter(wait.result, None), timeout=100)
                call.add_done_callback(again)

        for _ in range(100):
            again(None)
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        answer = stub.Predict(request("toy", x=[1.0]), timeout=40)  # it takes 17 s
        assert tf.make_ndarray(answer.outputs["y"]).tolist() == [10.0]
        wait.set_result(None)


@pytest.mark.slow
def test_large_messages_do_not_fill_the_memory(home):
    """The memory of 8 received, 8 waiting and 2 parsed messages, with few copies each, is freed."""
    port = toys.free_port()
    process, *_ = toys.start([home / "vit"], grpc_port=port)
    status = pathlib.Path(f"/proc/{process.pid}/status")

    def memory(name):
        return int(re.search(rf"{name}:\s+(\d+) kB", status.read_text())[1]) / 1024

    with (
        grpc.insecure_channel(
            f"127.0.0.1:{port}", [("grpc.max_send_message_length", -1)]
        ) as channel,
        concurrent.futures.ThreadPoolExecutor(20) as clients,
    ):
        predict = prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict
        predict(request("vit", image_bytes=[b"a"]), timeout=60)
        before = memory("VmRSS")
        message = request("vit", image_bytes=[b"a" * 20_000_000])
        for call in [clients.submit(predict, message, timeout=60) for _ in range(40)]:
            assert call.exception() is None or "memory for requests" in call.exception().details()
    assert memory("VmHWM") - before < 4 * 8 * 32
    toys.wait_until(lambda: memory("VmRSS") - before < 8 * 32)
    process.terminate()
    assert toys.end(process)[0] == 0
