"""The server as a process: how it starts, and how it ends."""

import concurrent.futures
import re
import signal
import socket
import threading
import time

import httpx
import pytest
import tensorflow as tf

from tests.server import toys
from tests.server.toys import post
from zoo.deploy.warm_up_requests import write_warm_up_requests
from zoo.server import serve
from zoo.server.errors import ServerError

pytestmark = pytest.mark.ci


class Slow(tf.Module):
    """x -> x, after a time that grows with x: about a second for 1 on the machine of the tests."""

    def signatures(self):
        spec = tf.TensorSpec([None], tf.float32)

        @tf.function(input_signature=[spec])
        def work(x):
            matrix = tf.eye(100)
            rounds = tf.cast(20_000 * tf.reduce_max(x), tf.int32)
            for _ in tf.range(rounds):
                matrix = tf.matmul(matrix, tf.eye(100))
            return {"y": x * matrix[0, 0]}

        return {"serving_default": work.get_concrete_function()}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("serving")
    toys.save(Slow(), home / "toy" / "1")
    toys.save(toys.Translator(), home / "en_es" / "3")
    return home


def start(home, **options):
    return toys.start([home / "toy", home / "en_es"], **options)


def metric(url, name):
    """Of the model toy."""
    text = httpx.get(f"{url}/monitoring/prometheus/metrics").text
    found = re.search(rf'^{name}{{model="toy"}} (\S+)$', text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def test_a_busy_server_that_is_stopped_loses_nothing(home):
    process, lines, url = start(home, max_batch=1)
    assert re.fullmatch(r"toy, version 1: model, loaded in [\d.]+ s.*", lines[0])
    assert re.fullmatch(r"en_es, version 3: translator, loaded in [\d.]+ s.*", lines[1])
    with concurrent.futures.ThreadPoolExecutor(16) as clients:
        begun = [clients.submit(post, url, {"instances": [0.2 + x / 100]}) for x in range(12)]
        toys.wait_until(
            lambda: metric(url, "zoo_call_rows_count") + metric(url, "zoo_queued_requests") == 12
        )
        process.send_signal(signal.SIGTERM)
        toys.wait_until(lambda: httpx.get(f"{url}/readyz").status_code == 503)
        late = httpx.post(f"{url}/v1/models/en_es:predict", json={"instances": ["a"]}, timeout=30)
        ready = httpx.get(f"{url}/readyz")
        answers = [future.result() for future in begun]
    assert [answer.status_code for answer in answers] == [200] * 12
    for x, answer in enumerate(answers):
        assert answer.json()["predictions"] == pytest.approx([0.2 + x / 100])
    assert late.status_code == 503 and "stopping" in late.json()["error"]
    assert late.headers["retry-after"] and late.headers["connection"] == "close"
    assert (ready.status_code, ready.json()["status"]) == (503, "stopping")
    status, stderr = toys.end(process)
    assert status == 0, stderr
    assert "Traceback" not in stderr


@pytest.mark.parametrize("calls, expected", [pytest.param(0, 0, marks=pytest.mark.slow), (1, 1)])
def test_a_grace_time_that_is_over(home, calls, expected):
    """Interrupted without work it ends at once; with work that lasts, after the grace time."""
    process, _, url = start(home, shutdown_grace=0.5)
    cut_off = []

    def client():
        with pytest.raises(httpx.HTTPError):
            cut_off.append(post(url, {"instances": [600.0]}, timeout=60).raise_for_status())

    threads = [threading.Thread(target=client) for _ in range(calls)]
    for thread in threads:
        thread.start()
    toys.wait_until(lambda: metric(url, "zoo_call_rows_count") == calls)
    process.send_signal(signal.SIGINT)
    started = time.monotonic()
    status, stderr = toys.end(process)
    assert status == expected, stderr
    assert time.monotonic() - started < 10
    for thread in threads:
        thread.join()
    assert not cut_off


def test_a_port_that_is_taken(home):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ServerError, match=f"port {port}.*in use"):
            serve([home / "toy"], port=port)
    with pytest.raises(ServerError, match="from 0 to 65535. Received: 99999"):
        serve([home / "toy"], port=99999)
    with pytest.raises(ServerError, match="Cannot listen on no.such.host.invalid"):
        serve([home / "toy"], host="no.such.host.invalid")


def test_limits_that_make_no_sense(home):
    for name in ("max_batch", "max_queue", "max_body", "request_timeout", "calls_at_once"):
        with pytest.raises(ServerError, match=f"{name} must be above 0"):
            serve([home / "toy"], **{name: 0})
    for seconds in (-1, float("nan")):
        with pytest.raises(ServerError, match="poll_seconds must be at least 0"):
            serve([home / "toy"], poll_seconds=seconds)
    with pytest.raises(ServerError, match="max_bodies must be at least max_body"):
        serve([home / "toy"], max_body=2, max_bodies=1)


@pytest.mark.slow
def test_a_model_that_cannot_be_served(home, tmp_path):
    with pytest.raises(ServerError, match="contains no SavedModel"):
        serve([home / "toy", tmp_path], port=0)

    class Broken(toys.Translator):
        def translate(self, texts):
            with tf.control_dependencies([tf.debugging.Assert(False, ["it is broken"])]):
                return super().translate(texts)

    folder = toys.save(Broken(), tmp_path / "broken" / "1")
    write_warm_up_requests(folder, [{"texts": ["hello"]}])
    with pytest.raises(ServerError, match=f"{folder} cannot be served: .*it is broken"):
        serve([folder], port=0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_models_are_loaded(home, number, monkeypatch):
    before = signal.getsignal(number)
    monkeypatch.setattr("zoo.server.server.load_all", lambda folders: signal.raise_signal(number))
    with pytest.raises(SystemExit) as left:
        serve([home / "toy"], port=0)
    assert left.value.code == 0
    assert signal.getsignal(number) == before
