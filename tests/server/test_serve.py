"""The server as a process: how it starts, and how it ends."""

import concurrent.futures
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import httpx
import numpy as np
import pytest
import tensorflow as tf

from tests.server import toys
from tests.server.toys import post
from zoo.errors import ServerError
from zoo.server.serve import serve


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
def slow(tmp_path_factory):
    return toys.save(Slow(), tmp_path_factory.mktemp("serving") / "toy" / "1")


class Words(tf.Module):
    """Text -> its words, by TensorFlow Text, which the process that serves it has to import."""

    def signatures(self):
        tokenizer = pytest.importorskip("tensorflow_text").WhitespaceTokenizer()

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "texts")])
        def split(texts):
            return {"words": tokenizer.tokenize(texts).to_tensor("")}

        return {"serving_default": split.get_concrete_function()}


def metric(url, name):
    """Of the model toy."""
    text = httpx.get(f"{url}/monitoring/prometheus/metrics").text
    found = re.search(rf'^{name}{{model="toy"}} (\S+)$', text, re.MULTILINE)
    return float(found[1]) if found else 0.0


@pytest.mark.ci
def test_a_busy_server_that_is_stopped_loses_nothing(slow, tmp_path):
    """Beside a model that reads texts."""
    words = toys.save(Words(), tmp_path / "words" / "1")
    process, lines, url = toys.start([words, slow], max_batch=1)
    assert re.fullmatch(r"words, version 1: ready in [\d.]+ s", lines[0])
    answer = post(url, {"instances": ["one  two", "three"]}, "words")
    assert answer.json() == {"predictions": [["one", "two"], ["three", ""]]}
    with concurrent.futures.ThreadPoolExecutor(12) as clients:
        begun = [clients.submit(post, url, {"instances": [0.2 + x / 100]}) for x in range(12)]
        toys.wait_until(
            lambda: metric(url, "zoo_call_rows_count") + metric(url, "zoo_queued_requests") == 12
        )
        process.send_signal(signal.SIGTERM)
        answers = [future.result() for future in begun]
    assert [answer.status_code for answer in answers] == [200] * 12
    for x, answer in enumerate(answers):
        assert answer.json()["predictions"] == pytest.approx([0.2 + x / 100])
    status, stderr = toys.end(process)
    assert status == 0, stderr
    assert "Traceback" not in stderr
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/readyz")


@pytest.mark.slow
def test_a_grace_time_that_is_over(slow):
    process, _, url = toys.start([slow], shutdown_grace=0.5)
    answered = []

    def client():
        with pytest.raises(httpx.HTTPError):
            answered.append(post(url, {"instances": [600.0]}, timeout=60).raise_for_status())

    thread = threading.Thread(target=client)
    thread.start()
    toys.wait_until(lambda: metric(url, "zoo_call_rows_count") == 1)
    process.send_signal(signal.SIGINT)
    started = time.monotonic()
    status, stderr = toys.end(process)
    assert status == 0, stderr
    assert time.monotonic() - started < 10
    thread.join()
    assert not answered


@pytest.mark.slow
def test_a_server_that_is_stopped_while_it_loads_a_model(slow, tmp_path):
    """Quietly; its port is open, and what it loads is being warmed up."""
    folder = shutil.copytree(slow, tmp_path / "toy" / "1")
    port = toys.free_port()
    toys.write_warm_up_requests(folder, *[{"x": np.float32([0.1])}] * 1000)
    command = [sys.executable, "-m", "zoo", "serve", str(folder), "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as p:
        toys.wait_until(lambda: is_open(port), seconds=120.0)
        p.send_signal(signal.SIGINT)
        status, stderr = toys.end(p)
    assert status == 130 and "Traceback" not in stderr


def is_open(port):
    try:
        return socket.create_connection(("127.0.0.1", port), 1.0).close() is None
    except OSError:
        return False


def test_a_port_that_is_taken(home):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ServerError, match=f"port {port}.*in use"):
            serve([home / "toy"], port=port)
    with pytest.raises(ServerError, match="port 99999: .*0-65535"):
        serve([home / "toy"], port=99999)
    with pytest.raises(ServerError, match="Cannot listen on no.such.host.invalid"):
        serve([home / "toy"], host="no.such.host.invalid")


def test_limits_that_make_no_sense():
    for name in ("max_batch", "max_queue", "max_body", "request_timeout", "calls_at_once"):
        with pytest.raises(ServerError, match=f"{name} must be greater than 0"):
            serve(["toy"], **{name: 0})
