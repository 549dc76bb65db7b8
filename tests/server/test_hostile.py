"""Requests that are made to shut others out, to fill the memory, or to be sent by others."""

import contextlib
import json
import socket
import threading
import time
import tracemalloc

import httpx
import pytest
import tensorflow as tf

from tests.server import toys
from tests.server.toys import HEAD, connected, head, post
from tests.server.toys import python_model as toy
from zoo.server.serve import trusted_hosts

# --- memory --------------------------------------------------------------------------------------


def test_rows_are_counted(url):
    assert post(url, {"instances": [1.0] * 100}, "half_plus_three").status_code == 200
    answer = post(url, {"instances": [1.0] * 101}, "half_plus_three")
    assert answer.status_code == 400 and "101 rows, more than 100" in answer.json()["error"]


@pytest.mark.parametrize("value", ["[],", "{},", "1,", '"",', "[[[[]]]],", "null,"])
def test_values_are_counted_before_they_are_parsed(url, value):
    body = '{"instances": [' + value * 20_000 + "0]} which is no JSON"
    answer = post(url, None, content=body.encode())
    assert answer.status_code == 413 and "more than 10,000 values" in answer.json()["error"]


def test_all_bodies_together_are_counted():
    """Of twelve bodies of the largest size, eight are in memory."""
    gate = toys.Gate()
    found = []
    body = json.dumps({"instances": [1.0]}).encode().ljust(100_000)
    limits = {"max_body": 100_000}

    def client():
        found.append(post(url, None, content=body).status_code)

    with toys.running([gate.model], limits=limits) as (url, service, _):
        clients = [threading.Thread(target=client) for _ in range(12)]
        for one in clients:
            one.start()
        toys.wait_until(lambda: len(found) == 4)
        assert set(found) == {503} and service.memory <= 800_000
        gate.open.set()
        for one in clients:
            one.join()
        assert sorted(found) == [200] * 8 + [503] * 4
        toys.wait_until(lambda: service.memory == 0)


@pytest.mark.parametrize(
    "start, end",
    [
        (b'{"instances": [1.0]', b"}"),
        (b'{"instances": [1.0]', b""),
        (b'{"instances": ["', b'"]}'),
        (b'{"instances": [{"b64": "', b'"}]}'),
        (b'{"inputs": {"a": ["', b'"]}}'),
        (b'["', b'"]'),
        (b'{"signature_name": "no"', b"}"),
        (b'{"instances": [-1.0]', b"}"),
    ],
)
def test_requests_leave_nothing_to_the_garbage_collector(root, start, end):
    """It runs rarely, and does not count bytes: refused requests are freed without it."""
    body = start + b" " * 2_000_000 + end
    with toys.memory_traced():
        post(root, None, content=body)
        tracemalloc.start()
        for _ in range(3):
            post(root, None, content=body)
        toys.wait_until(lambda: tracemalloc.get_traced_memory()[0] < len(body), seconds=5.0)


@pytest.fixture(scope="module")
def root():
    """URL of a server of a model that fails for negative numbers."""

    def root(x):
        with tf.control_dependencies([tf.debugging.assert_non_negative(x)]):
            return {"y": tf.sqrt(x)}

    with toys.running([toy(root)]) as (url, *_):
        yield url


# --- connections ---------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [b"", b"POST /v1/mod", HEAD, head(99) + b"{"])
def test_connections_that_send_nothing_more_shut_nobody_out(sent):
    with toys.running([toy()], limits={"max_connections": 20}) as (url, _, server):
        with contextlib.ExitStack() as stack:
            for _ in range(60):
                client = stack.enter_context(connected(url))
                with contextlib.suppress(OSError):  # it may be closed already
                    client.sendall(sent)
            for _ in range(3):
                assert post(url, {"instances": [1.0]}).json() == {"predictions": [10.0]}
            assert len(server.server_state.connections) <= 20
        assert post(url, {"instances": [1.0]}).status_code == 200


def test_a_request_that_is_worked_on_is_not_closed_for_others():
    gate = toys.Gate()
    found = []
    with toys.running([gate.model], limits={"max_connections": 5}) as (url, service, _):
        client = threading.Thread(target=lambda: found.append(post(url, {"instances": [1.0]})))
        client.start()
        toys.wait_until(lambda: service.batchers["toy"].calls)
        with contextlib.ExitStack() as stack:
            for _ in range(20):
                stack.enter_context(connected(url))
            gate.open.set()
            client.join()
    assert found[0].status_code == 200


@pytest.mark.parametrize("limits", [{"request_timeout": 1.0}, {"max_connections": 3}])
@pytest.mark.parametrize("more", [b"", b"Connection: close\r\n"])
def test_clients_that_do_not_read_do_not_keep_their_answers(limits, more):
    """Also when the server has answered them and has closed its side, but still holds the rest."""
    model = toy(lambda x: {"y": tf.fill([300_000], tf.int64.max)})
    body = b'{"inputs": [1.0]}'
    most = limits.get("max_connections", 0)
    with toys.running([model], limits=limits) as (url, _, server):
        with contextlib.ExitStack() as stack:
            for _ in range(5):
                client = stack.enter_context(socket.socket())
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                host, port = url.removeprefix("http://").split(":")
                client.connect((host, int(port)))
                client.sendall(HEAD + more + head(len(body)).removeprefix(HEAD) + body)
                client.recv(9)  # the answer has begun
            toys.wait_until(lambda: len(server.server_state.connections) <= most)
        assert httpx.get(f"{url}/healthz").status_code == 200


@pytest.mark.parametrize("host", [b"localhost", b"evil.example"])
@pytest.mark.parametrize("pause", [0.0, 0.2])
def test_an_invalid_body_after_the_answer(url, capfd, host, pause):
    with connected(url) as client:
        client.sendall(HEAD.replace(b"localhost", host) + b"Transfer-Encoding: chunked\r\n\r\n")
        time.sleep(pause)
        client.sendall(b"zz\r\nzz\r\n")
        assert toys.answer_on(client)[0] == 400
    assert httpx.get(f"{url}/healthz").status_code == 200
    assert "Traceback" not in capfd.readouterr().err


def test_headers_must_come_in_time():
    with toys.running([toy()], limits={"request_timeout": 0.3}) as (url, *_):
        with connected(url) as client:
            client.sendall(HEAD)
            assert client.recv(100) == b"", "closed"
        with httpx.Client() as client:  # one that is kept open is not late
            for _ in range(3):
                assert client.get(f"{url}/healthz").status_code == 200
                time.sleep(0.2)


def test_headers_of_any_length_are_not_kept(url):
    with connected(url) as client:
        client.sendall(HEAD + b"X: " + b"x" * 100_000)
        assert toys.answer_on(client)[0] == 400


# --- other sites ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers, status",
    [
        ({}, 200),
        ({"host": "localhost:8501"}, 200),
        ({"host": "[::1]:80"}, 200),
        ({"host": "a.ZOO.example"}, 200),
        ({"host": "evil.example"}, 400),
        ({"host": "127.0.0.1.evil.example:80"}, 400),
        ({"host": "]["}, 400),
        ({"host": ""}, 400),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://localhost:1", "host": "localhost:2"}, 403),
        ({"origin": "http://localhost:1", "host": "localhost:1"}, 200),
        ({"origin": "https://good.example"}, 200),
        ({"origin": "", "host": "localhost"}, 403),
        ({"origin": "localhost:1", "host": "localhost:1"}, 403),
        ({"origin": "https://evil.example", "content-type": "text/plain"}, 403),
    ],
)
def test_pages_of_other_sites_are_refused(url, headers, status):
    for method, path in (("POST", "/v1/models/half_plus_three:predict"), ("GET", "/v1/models")):
        content = b'{"instances": [1.0]}' if method == "POST" else None
        answer = httpx.request(method, url + path, content=content, headers=headers)
        # a browser hides the answers to its other requests
        assert answer.status_code == (200 if status == 403 and method == "GET" else status)
        allows = answer.headers.get("access-control-allow-origin")
        assert allows == ("https://good.example" if "good" in str(headers) else None)


def test_a_browser_may_ask_for_an_allowed_site(url):
    for origin, status in (("https://good.example", 200), ("https://evil.example", 400)):
        headers = {
            "origin": origin,
            "access-control-request-method": "POST",
            "access-control-request-headers": "content-type",
        }
        answer = httpx.options(f"{url}/v1/models/toy:predict", headers=headers)
        assert answer.status_code == status
        assert (answer.headers.get("access-control-allow-origin") == origin) == (status == 200)


def test_the_names_of_other_addresses_are_not_known():
    assert trusted_hosts("0.0.0.0", []) == ["*"]
    assert "zoo.example" in trusted_hosts("0.0.0.0", ["zoo.example"])
    assert "*" not in trusted_hosts("127.0.0.1", [])


# --- messages ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["\ud800", 1, [0], {"a": 1}, True, " ", "x" * 100_000, ["\udfff" * 9000], "a\nb\0\x1b"]
)
def test_a_signature_of_any_name(url, name):
    answer = post(url, None, content=json.dumps({"signature_name": name, "instances": [1.0]}))
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert "signature" in error.lower() and len(error) < 400 and error.isprintable()


def test_what_is_nested_deeply_is_refused(url):
    """At any depth, as values of some depth can be parsed but not written."""
    with httpx.Client(base_url=url) as client:
        for depth in range(900, 1000, 9):
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
        answer = post(url, None, "half_plus_three", content=json.dumps(request))
        assert answer.status_code == 400
        assert len(answer.json()["error"]) < 400
    path = httpx.URL(f"{url}/v1/models/{'y' * 5000}:predict")
    assert len(httpx.post(path, json={}).json()["error"]) < 400
