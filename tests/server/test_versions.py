"""Versions that appear on disk while the server runs, warm-up requests, gRPC and figures."""

import asyncio
import concurrent.futures
import contextlib
import json
import shutil
import threading

import grpc
import httpx
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2, prediction_service_pb2_grpc

from tests.server import toys
from tests.server.toys import post
from zoo.deploy.warm_up_requests import FILE, write_warm_up_requests
from zoo.server import grpc_service
from zoo.server.batching import Batcher
from zoo.server.errors import RequestError, ServerError
from zoo.server.limits import Limits
from zoo.server.loading import find, load, load_all
from zoo.server.warm_up import warm_up


class Times(tf.Module):
    """x -> factor * x."""

    def __init__(self, factor):
        super().__init__()
        self.factor = tf.Variable(float(factor))

    def signatures(self):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, "x")])
        def call(x):
            return {"y": self.factor * x}

        return {"serving_default": call.get_concrete_function()}


def status(url, name):
    return httpx.get(f"{url}/v1/models/{name}").json()["model_version_status"][0]["version"]


# --- versions ------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    """Of one version, which answers what it gets."""
    toys.save(Times(1), tmp_path / "times" / "1")
    return tmp_path / "times"


@contextlib.contextmanager
def watching(folder, models=None, poll_seconds=0.05):
    """A server of the newest version of a folder: yields (URL, `Service`, what it has reported)."""
    lines = []
    settings = {"folders": [folder], "poll_seconds": poll_seconds, "report": lines.append}
    with toys.running(models or load_all([folder]), settings=settings) as (url, service, _):
        yield url, service, lines


def test_a_new_version_is_served_and_no_request_is_lost(folder, tmp_path):
    """Under load from eight clients; each answer is that of one of the versions."""
    stop = threading.Event()

    def client(url):
        answers = []
        while not stop.is_set():
            answers.append(post(url, {"instances": [3.0]}, "times"))
        return answers

    with watching(folder) as (url, service, lines):
        with concurrent.futures.ThreadPoolExecutor(8) as clients:
            begun = [clients.submit(client, url) for _ in range(8)]
            for version in (2, 10):
                toys.save(Times(version), tmp_path / "other" / str(version))
                shutil.move(tmp_path / "other" / str(version), folder / str(version))
                toys.wait_until(lambda v=version: status(url, "times") == str(v))
                answer = post(url, {"instances": [3.0]}, "times")
                assert answer.json() == {"predictions": [3.0 * version]}
            shutil.rmtree(folder / "10")  # back to the one before
            toys.wait_until(lambda: status(url, "times") == "2")
            toys.wait_until(lambda: len(service._all) == 1)
            stop.set()
        answers = [answer for one in begun for answer in one.result()]
    assert {answer.status_code for answer in answers} == {200}
    assert {answer.json()["predictions"][0] for answer in answers} <= {3.0, 6.0, 30.0}
    assert sum("times, version 10" in line for line in lines) == 1


def test_requests_of_the_old_version_are_finished(tmp_path):
    gate = toys.Gate()
    toys.save(Times(2), tmp_path / "other" / "2")
    with watching(tmp_path / "toy", [gate.model]) as (url, service, _):
        found = []
        client = threading.Thread(target=lambda: found.append(post(url, {"instances": [3.0]})))
        client.start()
        toys.wait_until(lambda: service.is_calling)
        shutil.move(tmp_path / "other", tmp_path / "toy")
        toys.wait_until(lambda: status(url, "toy") == "2")
        assert post(url, {"instances": [3.0]}).json() == {"predictions": [6.0]}
        assert not found and len(service._all) == 2
        gate.open.set()
        client.join()
        toys.wait_until(lambda: len(service._all) == 1)
    assert found[0].json() == {"predictions": [30.0]}


def test_a_request_whose_body_comes_after_the_change_is_answered(folder):
    body = b'{"instances": [3.0]}'
    with watching(folder) as (url, service, _), toys.connected(url) as client:
        client.sendall(toys.head(len(body)).replace(b"toy", b"times"))
        toys.wait_until(lambda: service.in_flight == 1)
        toys.save(Times(2), folder / "2")
        toys.wait_until(lambda: status(url, "times") == "2")
        client.sendall(body)
        code, answer = toys.answer_on(client)
    assert (code, json.loads(answer)) == (200, {"predictions": [3.0]})


def test_a_folder_that_cannot_be_read_stops_nothing(folder, monkeypatch):
    with watching(folder) as (url, _, lines):

        def broken(given):
            raise PermissionError(13, "Permission denied", str(given))

        monkeypatch.setattr("zoo.server.versions.find", broken)
        toys.wait_until(lambda: any("Permission denied" in line for line in lines))
        assert post(url, {"instances": [3.0]}, "times").status_code == 200
        monkeypatch.undo()
        toys.save(Times(2), folder / "2")
        toys.wait_until(lambda: status(url, "times") == "2")


def test_a_version_that_cannot_be_loaded_yet_is_told_once(folder, tmp_path):
    whole = toys.save(Times(2), tmp_path / "whole")
    with watching(folder) as (url, _, lines):
        (folder / "2").mkdir()
        shutil.copy(whole / "saved_model.pb", folder / "2")  # the variables are still missing
        toys.wait_until(lambda: any("not served yet" in line for line in lines))
        assert post(url, {"instances": [3.0]}, "times").json() == {"predictions": [3.0]}
        shutil.copytree(whole, folder / "2", dirs_exist_ok=True)
        toys.wait_until(lambda: status(url, "times") == "2")
    assert sum("not served yet" in line for line in lines) == 1


def test_a_broken_version_is_loaded_again_only_when_it_changes(folder, monkeypatch):
    looks, loads = [], []

    def counted_find(given):
        looks.append(given)
        return find(given)

    def counted_load(*model):
        loads.append(model)
        return load(*model)

    def wait_for_looks():
        before = len(looks)
        toys.wait_until(lambda: len(looks) > before + 5)

    monkeypatch.setattr("zoo.server.versions.find", counted_find)
    monkeypatch.setattr("zoo.server.versions.load", counted_load)
    with watching(folder, poll_seconds=0.02) as (url, *_):
        (folder / "2").mkdir()
        (folder / "2" / "saved_model.pb").write_bytes(b"damaged")
        wait_for_looks()
        assert len(loads) == 1
        (folder / "2" / "saved_model.pb").write_bytes(b"damaged otherwise")
        wait_for_looks()
        assert len(loads) == 2
        assert post(url, {"instances": [3.0]}, "times").json() == {"predictions": [3.0]}


# --- warm-up -------------------------------------------------------------------------------------


def test_warm_up_requests_are_those_of_tensorflow_serving(tmp_path):
    """Its own messages read them; inputs of any length, as lengths are written in seven bits."""
    images = {"image_bytes": np.array([b"x" * 200, b"y" * 20_000], object)}
    numbers = {"a": np.arange(300, dtype="float32"), "b": np.array([7], "int64")}
    write_warm_up_requests(tmp_path, [images, numbers])
    records = list(tf.data.TFRecordDataset(str(tmp_path / FILE)).as_numpy_iterator())
    assert len(records) == 2
    for record, expected in zip(records, (images, numbers)):
        log = prediction_log_pb2.PredictionLog.FromString(record)
        assert log.WhichOneof("log_type") == "predict_log"
        request = log.predict_log.request
        assert request.model_spec.signature_name == "serving_default"
        assert request.inputs.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_array_equal(tf.make_ndarray(request.inputs[name]), value)


def test_a_model_is_called_before_the_server_is_ready(tmp_path):
    calls = []

    def call(x):
        calls.append(x.numpy().tolist())
        return {"y": x}

    model = toys.python_model(call)
    requests = [{"x": np.array(rows, "float32")} for rows in ([1], [2, 3], [4, 5, 6])]
    write_warm_up_requests(tmp_path, requests)
    records = [*tf.data.TFRecordDataset(str(tmp_path / FILE)).as_numpy_iterator()]
    other = prediction_log_pb2.PredictionLog()
    other.classify_log.request.model_spec.name = "toy"
    with tf.io.TFRecordWriter(str(tmp_path / FILE)) as writer:
        for record in (other.SerializeToString(), *records):
            writer.write(record)

    async def run(model):
        batcher = Batcher(model, Limits(max_rows=2))
        try:
            await warm_up(batcher)
        finally:
            await batcher.stop()

    asyncio.run(run(model._replace(folder=tmp_path)))
    assert calls == [[1], [2, 3]]
    asyncio.run(run(model))  # has no requests
    (tmp_path / FILE).write_bytes(b"damaged" * 9)
    with pytest.raises(ServerError, match="cannot be used .*Export the model again"):
        asyncio.run(run(model._replace(folder=tmp_path)))


# --- gRPC ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stub(tmp_path_factory):
    home = tmp_path_factory.mktemp("serving")
    folders = [
        toys.save(toys.HalfPlusThree(), home / "half" / "7"),
        toys.save(toys.Shapes(), home / "toy" / "1"),
        toys.save(toys.Translator(), home / "en_es" / "1"),
    ]
    lines = []
    settings = {"grpc_address": "127.0.0.1:0", "report": lines.append}
    with toys.running(load_all(folders), settings=settings, max_values=1000, max_rows=100):
        port = next(line for line in lines if "gRPC" in line).split()[-1]
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield prediction_service_pb2_grpc.PredictionServiceStub(channel)


def request(name, signature="", version=None, **inputs):
    found = predict_pb2.PredictRequest()
    found.model_spec.name, found.model_spec.signature_name = name, signature
    if version is not None:
        found.model_spec.version.value = version
    for key, value in inputs.items():
        found.inputs[key].CopyFrom(tf.make_tensor_proto(value))
    return found


def test_grpc_answers_as_rest_does(stub):
    answer = stub.Predict(request("half", x=np.array([1, 2, 5], "float32")))
    np.testing.assert_array_equal(tf.make_ndarray(answer.outputs["y"]), [3.5, 4.0, 5.5])
    spec = answer.model_spec
    assert (spec.name, spec.version.value, spec.signature_name) == ("half", 7, "serving_default")
    answer = stub.Predict(request("en_es", texts=["hola", "x" * 101]))
    assert tf.make_ndarray(answer.outputs["translations"]).tolist() == [
        [b"HOLA", b"HOLA!"],
        [b"", b""],
    ]
    only = request("en_es", version=1, texts=["hola"])
    only.output_filter.append("error")
    assert list(stub.Predict(only).outputs) == ["error"]


def tensor(name, key, shape, signature="", **content):
    """A request whose tensor may have fewer values than its shape: the last stands for the rest."""
    found = request(name, signature)
    proto = found.inputs[key]
    proto.dtype = tf.string.as_datatype_enum if "string_val" in content else 1
    for size in shape:
        proto.tensor_shape.dim.add().size = size
    for field, values in content.items():
        getattr(proto, field).extend(values)
    return found


def test_one_value_stands_for_all_that_are_missing(stub):
    answer = stub.Predict(tensor("half", "x", [3], float_val=[1.0, 2.0]))
    assert tf.make_ndarray(answer.outputs["y"]).tolist() == [3.5, 4.0, 4.0]
    answer = stub.Predict(tensor("toy", "data", [3], "raw", string_val=[b"a"]))
    assert tf.make_ndarray(answer.outputs["raw"]).tolist() == [b"a"] * 3


def test_an_output_that_is_asked_for_often_is_sent_once(stub):
    many = request("half", x=[1.0])
    many.output_filter.extend(["y"] * 1_000_000)
    assert list(stub.Predict(many, timeout=30).outputs) == ["y"]
    many.output_filter.append("z")
    with pytest.raises(grpc.RpcError, match="no output 'z'"):
        stub.Predict(many, timeout=30)


@pytest.mark.parametrize(
    "make, code, message",
    [
        (lambda: request("half", version=0, x=[1.0]), "NOT_FOUND", "version 0"),
        (lambda: tensor("half", "x", [-1], float_val=[1.0]), "INVALID_ARGUMENT", "must be float32"),
        (lambda: tensor("half", "x", [1] * 100_000), "INVALID_ARGUMENT", "must be float32"),
        (lambda: tensor("half", "x", [1], float_val=[1.0, 2.0]), "INVALID_ARGUMENT", "cannot be"),
        (
            lambda: tensor("toy", "data", [1000], "raw", string_val=[b"a" * 100_000]),
            "RESOURCE_EXHAUSTED",
            "larger than",
        ),
        (lambda: request("nope"), "NOT_FOUND", "nope"),
        (lambda: request("half", version=8, x=[1.0]), "NOT_FOUND", "version 8"),
        (lambda: request("half", "nope", x=[1.0]), "INVALID_ARGUMENT", "nope"),
        (lambda: request("half"), "INVALID_ARGUMENT", "inputs must be"),
        (lambda: request("half", z=[1.0]), "INVALID_ARGUMENT", "inputs must be"),
        (lambda: request("half", x=[1]), "INVALID_ARGUMENT", "must be float32"),
        (lambda: request("half", x=[[1.0]]), "INVALID_ARGUMENT", "of shape"),
        (lambda: request("half", x=[1.0] * 200), "INVALID_ARGUMENT", "200 rows"),
        (lambda: request("toy", "checked", x=[-1.0]), "INVALID_ARGUMENT", "x is negative"),
        (
            lambda: tensor("half", "x", [10**12], float_val=[1.0]),
            "RESOURCE_EXHAUSTED",
            "more than 1,000 values",
        ),
    ],
)
def test_bad_grpc_requests(stub, make, code, message):
    with pytest.raises(grpc.RpcError) as error:
        stub.Predict(make(), timeout=30)
    assert error.value.code() == getattr(grpc.StatusCode, code)
    assert message in error.value.details()


def test_the_memory_of_an_input_is_counted_with_the_values_that_are_missing():
    limits, taken = Limits(max_body=4000, max_bodies=4000), []
    spec = tf.TensorSpec([None], tf.float32)
    proto = tensor("half", "x", [1000], float_val=[1.0]).inputs["x"]
    assert grpc_service._array("x", proto, spec, limits, taken.append).nbytes == 4000
    assert taken == [4000 - proto.ByteSize()], "the message is counted when it arrives"
    proto.tensor_shape.dim[0].size = 1001
    texts = tensor("toy", "data", [1000], "raw", string_val=[b""]).inputs["data"]
    for large, kind in ((proto, spec), (texts, tf.TensorSpec([None], tf.string))):
        with pytest.raises(RequestError, match="larger than 4000 bytes"):
            grpc_service._array("x", large, kind, limits, taken.append)


# --- figures -------------------------------------------------------------------------------------


def test_figures_for_prometheus(tmp_path):
    folder = toys.save(Times(2), tmp_path / "counted" / "1")
    with toys.running(load_all([folder])) as (url, *_):
        before = metric_lines(url).get('zoo_requests_total{code="404",model=""}', 0.0)
        for rows in (1, 2, 40):
            post(url, {"instances": [1.0] * rows}, "counted")
        post(url, {"instances": ["a"]}, "counted")
        post(url, {"instances": ["a"]}, "x" * 1000)  # a name that a client made up is not a label
        lines = metric_lines(url)
    assert lines['zoo_requests_total{code="200",model="counted"}'] == 3
    assert lines['zoo_requests_total{code="400",model="counted"}'] == 1
    assert lines['zoo_requests_total{code="404",model=""}'] == before + 1
    assert lines['zoo_request_seconds_count{model="counted"}'] == 3
    assert lines['zoo_call_rows_sum{model="counted"}'] == 43
    assert lines['zoo_call_rows_count{model="counted"}'] == 4, "40 rows are two calls"
    assert lines['zoo_queued_requests{model="counted"}'] == 0


def metric_lines(url):
    """{name and labels: number}; of all servers in the process."""
    answer = httpx.get(f"{url}/monitoring/prometheus/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    lines = [line.rsplit(" ", 1) for line in answer.text.splitlines() if line[0] != "#"]
    return {name: float(number) for name, number in lines}
