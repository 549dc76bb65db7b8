"""Requests that are made to shut others out, to fill the memory, or to be sent by others."""

import asyncio
import contextlib
import gc
import gzip
import json
import signal
import socket
import threading
import time
import tracemalloc

import httpx
import numpy as np
import pytest
import tensorflow as tf

from tests.server import toys
from tests.server.toys import HEAD, connected, head, post
from tests.server.toys import python_model as toy
from zoo.server.batching import Batcher
from zoo.server.bodies import Memory
from zoo.server.errors import RequestError
from zoo.server.limits import Limits
from zoo.server.origins import trusted_hosts


@pytest.fixture(scope="module")
def url():
    hosts = trusted_hosts("127.0.0.1", ["zoo.example"])
    settings = {"hosts": hosts, "origins": ("https://good.example",)}
    with toys.running([toy()], settings=settings, max_values=10_000, max_rows=100) as (url, *_):
        yield url


# --- many rows -----------------------------------------------------------------------------------


def test_a_long_request_takes_turns_with_others():
    """A short one that comes later waits for one call of the long one, not for all."""
    calls, open_ = [], threading.Event()

    def call(x):
        calls.append(len(x))
        assert open_.wait(30)
        return {"y": 10 * x}

    async def run():
        batcher = Batcher(toy(call), Limits(max_batch=4, batch_wait_ms=0))
        long = asyncio.create_task(batcher.run("serving_default", {"x": np.arange(18.0)}))
        while not calls:
            await asyncio.sleep(0.01)
        short = asyncio.create_task(batcher.run("serving_default", {"x": np.array([1.0, 2.0])}))
        await asyncio.sleep(0.05)
        open_.set()
        await short
        assert len(calls) < 5 and not long.done()
        found = (await long)["y"], (await short)["y"]
        await batcher.stop()
        return found

    long, short = asyncio.run(run())
    np.testing.assert_array_equal(long, 10 * np.arange(18.0))
    np.testing.assert_array_equal(short, [10, 20])
    assert max(calls) <= 4 and sum(calls) == 20


def test_the_calls_of_a_request_that_is_too_late_are_not_made():
    calls = []

    def call(x):
        calls.append(len(x))
        time.sleep(0.2)
        return {"y": x}

    with toys.running([toy(call)], request_timeout=0.5, max_batch=2) as (url, service, _):
        assert post(url, {"instances": [1.0] * 100}).status_code == 504
        toys.wait_until(lambda: not service.is_calling)
        made = len(calls)
        assert made < 10
        assert post(url, {"instances": [1.0]}).status_code == 200
        assert len(calls) == made + 1


@pytest.mark.parametrize("rows, status", [(100, 200), (101, 400), (60_000, 413)])
def test_rows_and_values_are_counted(url, rows, status):
    answer = post(url, {"instances": [1.0] * rows})
    assert answer.status_code == status
    if status == 400:
        assert "101 rows. At most 100" in answer.json()["error"]


# --- memory --------------------------------------------------------------------------------------


def test_the_values_of_an_answer_are_counted():
    """A few rows can ask for more than the server could write as JSON."""
    outputs = {"y": tf.TensorSpec([None, 100], tf.float32)}
    model = toy(lambda x: {"y": tf.ones([len(x), 100])}, outputs=outputs)
    with toys.running([model], max_values=1000) as (url, _, _):
        assert post(url, {"instances": [1.0] * 10}).status_code == 200
        answer = post(url, {"instances": [1.0] * 11})
        assert answer.status_code == 413
        assert "answer has 1,100 values. At most 1,000" in answer.json()["error"]


@pytest.mark.parametrize("value", ["[],", "{},", "1,", '"",', "[[[[]]]],", "null,"])
def test_values_are_counted_before_they_are_parsed(url, value):
    body = '{"instances": [' + value * 20_000 + "0]} which is no JSON"
    answer = post(url, None, content=body.encode())
    assert answer.status_code == 413 and "more than 10,000 values" in answer.json()["error"]


def test_bodies_are_counted_unpacked():
    """Of forty packed bodies of a few bytes, as many are in memory as there is room for."""
    gate = toys.Gate()
    body = gzip.compress(json.dumps({"instances": [1.0]}).encode().ljust(100_000))
    headers = {"content-encoding": "gzip"}
    with toys.running([gate.model], max_body=200_000, max_bodies=450_000) as (url, service, _):
        found, clients = [], []
        for _ in range(10):
            clients.append(
                threading.Thread(
                    target=lambda: found.append(
                        post(url, None, content=body, headers=headers).status_code
                    )
                )
            )
            clients[-1].start()
        toys.wait_until(lambda: len(found) == 6)
        assert set(found) == {503} and service._memory.used <= 450_000
        gate.open.set()
        for client in clients:
            client.join()
        assert sorted(found) == [200] * 4 + [503] * 6
        toys.wait_until(lambda: service._memory.used == 0)


def test_memory_that_is_taken_too_late_is_not_lost():
    """A thread may still unpack a body when its request has timed out."""
    memory = Memory(100)
    with memory.share() as take:
        take(60)
    with pytest.raises(RequestError):
        take(10)
    assert memory.used == 0


@pytest.mark.parametrize(
    "start, end, headers",
    [
        (b'{"instances": [1.0]', b"}", {}),
        (b'{"instances": [1.0]', b"", {}),
        (b'{"instances": ["', b'"]}', {}),
        (b'{"instances": [{"b64": "', b'"}]}', {}),
        (b'{"instances": {"a": ["', b'"]}}', {}),
        (b'{"inputs": {"a": ["', b'"]}}', {}),
        (b'["', b'"]', {}),
        (b'{"signature_name": "no"', b"}", {}),
        (b'{"instances": [-1.0]', b"}", {}),
        (b"", b"", {"content-encoding": "gzip"}),
    ],
)
def test_requests_leave_nothing_to_the_garbage_collector(start, end, headers):
    """It runs rarely, and does not count bytes: refused requests are freed without it."""

    def root(x):
        with tf.control_dependencies([tf.debugging.assert_non_negative(x)]):
            return {"y": tf.sqrt(x)}

    body = start + b" " * 2_000_000 + end
    with toys.running([toy(root)]) as (url, *_), memory_traced():
        post(url, None, content=body, headers=headers)
        tracemalloc.start()
        for _ in range(3):
            post(url, None, content=body, headers=headers)
        toys.wait_until(lambda: tracemalloc.get_traced_memory()[0] < len(body), seconds=5.0)


@contextlib.contextmanager
def memory_traced():
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        tracemalloc.stop()


# --- connections ---------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [b"", b"POST /v1/mod", HEAD, head(99) + b"{"])
def test_connections_that_send_nothing_more_shut_nobody_out(sent):
    with toys.running([toy()], max_connections=20) as (url, _, server):
        with contextlib.ExitStack() as stack:
            for _ in range(60):
                client = stack.enter_context(connected(url))
                with contextlib.suppress(OSError):  # it may be closed already
                    client.sendall(sent)
            for _ in range(3):
                assert post(url, {"instances": [1.0]}).json() == {"predictions": [10.0]}
            assert len(server.server_state.connections) <= 20
        assert post(url, {"instances": [1.0]}).status_code == 200


@pytest.mark.ci
def test_more_connections_than_the_system_allows(tmp_path):
    """Of 300 open files, with half-sent requests from 200 clients at once; the log stays short."""
    toys.save(toys.HalfPlusThree(), tmp_path / "half" / "1")
    before = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (300, 300))"
    process, _, url = toys.start([tmp_path / "half"], before)
    end = time.monotonic() + 3

    def send_halves():
        while time.monotonic() < end:
            with contextlib.suppress(OSError), connected(url) as client:
                client.sendall(HEAD)
                time.sleep(0.02)

    clients = [threading.Thread(target=send_halves) for _ in range(200)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    assert post(url, {"instances": [1.0]}, "half").json() == {"predictions": [3.5]}
    process.send_signal(signal.SIGTERM)
    status, stderr = toys.end(process)
    assert status == 0
    assert len(stderr.splitlines()) < 30, stderr


def test_a_request_that_is_worked_on_is_not_closed_for_others():
    gate = toys.Gate()
    with toys.running([gate.model], max_connections=5) as (url, service, _):
        found = []
        client = threading.Thread(target=lambda: found.append(post(url, {"instances": [1.0]})))
        client.start()
        toys.wait_until(lambda: service.is_calling)
        with contextlib.ExitStack() as stack:
            for _ in range(20):
                stack.enter_context(connected(url))
            gate.open.set()
            client.join()
    assert found[0].status_code == 200


def test_clients_that_do_not_read_are_counted():
    """The server has answered them and has closed its side, but still holds the rest."""
    outputs = {"y": tf.TensorSpec([None], tf.string)}
    model = toy(lambda x: {"y": tf.fill(tf.shape(x), "y" * 10**7)}, outputs=outputs)
    body = b'{"instances": [1.0]}'
    with (
        toys.running([model], max_connections=4) as (url, _, server),
        contextlib.ExitStack() as stack,
    ):
        for _ in range(8):
            client = stack.enter_context(connected(url))
            client.sendall(HEAD + b"Connection: close\r\nContent-Length: 20\r\n\r\n" + body)
            assert client.recv(4) == b"HTTP"
            assert len(server.server_state.connections) <= 4
        assert len(post(url, {"instances": [1.0]}).json()["predictions"][0]) == 10**7


def big_answer(x):
    return {"y": tf.zeros([500_000])}


@pytest.mark.parametrize("limits", [{"request_timeout": 1.0}, {"max_connections": 3}])
def test_clients_that_do_not_read_do_not_keep_their_answers(limits):
    with toys.running([toy(big_answer)], **limits) as (url, _, server):
        with contextlib.ExitStack() as stack:
            for _ in range(5):
                client = stack.enter_context(socket.socket())
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                host, port = url.removeprefix("http://").split(":")
                client.connect((host, int(port)))
                body = b'{"inputs": [1.0]}'
                client.sendall(head(len(body)) + body)
                client.recv(9)  # the answer has begun
            most = limits.get("max_connections", 0)
            toys.wait_until(lambda: len(server.server_state.connections) <= most)
        assert httpx.get(f"{url}/healthz").status_code == 200


@pytest.mark.parametrize("host, status", [(b"localhost", 400), (b"evil.example", 403)])
@pytest.mark.parametrize("pause", [0.0, 0.2])
def test_a_body_that_is_wrong_after_the_answer(url, capfd, host, status, pause):
    with connected(url) as client:
        client.sendall(HEAD.replace(b"localhost", host) + b"Transfer-Encoding: chunked\r\n\r\n")
        time.sleep(pause)
        client.sendall(b"zz\r\nzz\r\n")
        found = toys.answer_on(client)[0]
        assert found in (status, 400)
    assert httpx.get(f"{url}/healthz", headers={"host": "localhost"}).status_code == 200
    assert "Traceback" not in capfd.readouterr().err


def test_headers_must_come_in_time():
    with toys.running([toy()], header_timeout=0.3) as (url, *_):
        with connected(url) as client:
            client.sendall(HEAD)
            assert client.recv(100) == b"", "closed"
        with httpx.Client() as client:  # one that is kept open is not late
            for _ in range(3):
                assert client.get(f"{url}/healthz").status_code == 200
                time.sleep(0.5)


# --- other sites ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers, status",
    [
        ({}, 200),
        ({"host": "localhost:8501"}, 200),
        ({"host": "[::1]:80"}, 200),
        ({"host": "ZOO.example"}, 200),
        ({"host": "evil.example"}, 403),
        ({"host": "127.0.0.1.evil.example:80"}, 403),
        ({"host": "]["}, 403),
        ({"host": ""}, 403),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://localhost:1", "host": "localhost:2"}, 403),
        ({"origin": "http://localhost:1", "host": "localhost:1"}, 200),
        ({"origin": "https://good.example"}, 200),
        ({"origin": "http://["}, 403),
        ({"origin": "", "host": "localhost"}, 403),
        ({"origin": "localhost:1", "host": "localhost:1"}, 403),
        ({"origin": "https://evil.example", "content-type": "text/plain"}, 403),
    ],
)
def test_pages_of_other_sites_are_refused(url, headers, status):
    for method, path in (("POST", "/v1/models/toy:predict"), ("GET", "/"), ("GET", "/v1/models")):
        content = b'{"instances": [1.0]}' if method == "POST" else None
        answer = httpx.request(method, url + path, content=content, headers=headers)
        assert answer.status_code == status, answer.text
        if status == 403:
            assert "--allowed-" in answer.json()["error"]
    allows = answer.headers.get("access-control-allow-origin")
    assert allows == ("https://good.example" if "good" in str(headers) else None)


def test_a_browser_may_ask_for_an_allowed_site(url):
    headers = {
        "origin": "https://good.example",
        "access-control-request-method": "POST",
        "access-control-request-headers": "content-type",
    }
    answer = httpx.options(f"{url}/v1/models/toy:predict", headers=headers)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == "https://good.example"


def test_other_addresses_have_names_that_are_not_known():
    assert trusted_hosts("0.0.0.0", []) is None
    assert "zoo.example" in trusted_hosts("0.0.0.0", ["zoo.example"])


# --- messages ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["\ud800", 0, [], None, {}, False, " ", "x" * 100_000, ["\udfff" * 9000], "a\nb\0\x1b"]
)
def test_a_signature_of_any_name(url, name):
    answer = post(url, None, content=json.dumps({"signature_name": name, "instances": [1.0]}))
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert "signature" in error.lower() and len(error) < 400 and error.isprintable()


def test_what_is_nested_deeply_is_refused(url):
    """At any depth, as values of some depth can be parsed but not written."""
    with httpx.Client(base_url=url) as client:
        for depth in range(900, 1000):
            body = "[" * depth + "]" * depth
            assert client.post("/v1/models/toy:predict", content=body).status_code == 400


@pytest.mark.parametrize("text", ["\ud800", "x" * 50_000, "a\nb\0"])
def test_what_is_sent_back_is_short(url, text):
    for request in (
        {"instances": text},
        {"instances": [text]},
        {"instances": [{text: 1.0}]},
        {"inputs": {text: [1.0]}},
        {"inputs": {"b64": text}},
        [text],
    ):
        answer = post(url, None, content=json.dumps(request))
        assert answer.status_code == 400
        assert len(answer.json()["error"]) < 400
    path = httpx.URL(f"{url}/v1/models/{'y' * 5000}:predict")
    assert len(httpx.post(path, json={}).json()["error"]) < 400
