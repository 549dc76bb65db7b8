"""Requests are run together, and none notices."""

import asyncio
import concurrent.futures
import threading
import time

import httpx
import numpy as np
import pytest
import tensorflow as tf

from tests.server import toys
from tests.server.toys import post
from zoo.server.batching import Batcher
from zoo.server.errors import RequestError
from zoo.server.limits import Limits
from zoo.server.loading import load_all

CLIENTS = 64


def together(model, requests, signature="serving_default", **limits):
    """Answers or errors of requests that come at the same time, of which each is one input."""

    [[name, spec]] = model.signatures[signature].inputs.items()
    kind = object if spec.dtype == tf.string else np.float32

    async def run():
        batcher = Batcher(model, Limits(**limits))
        tasks = [
            asyncio.create_task(batcher.run(signature, {name: np.array(request, kind)}))
            for request in requests
        ]
        results = await asyncio.gather(*tasks, return_exceptions=True)
        await batcher.stop()
        return results

    return asyncio.run(run())


def values(results):
    return [r["y"].tolist() if isinstance(r, dict) else r.detail for r in results]


def test_requests_that_wait_are_run_as_one_call():
    gate = toys.Gate()
    gate.open.set()
    results = together(gate.model, [[1], [2, 3], [], [4]], batch_wait_ms=50)
    assert values(results) == [[10], [20, 30], [], [40]]
    assert gate.calls == [[1, 2, 3, 4]]


def test_a_batch_has_at_most_so_many_rows():
    gate = toys.Gate()
    gate.open.set()
    requests = [[1, 2], [3, 4], [5, 6], [7] * 9, [8]]
    results = together(gate.model, requests, max_batch=4, batch_wait_ms=50)
    assert values(results) == [[10 * x for x in request] for request in requests]
    assert gate.calls == [[1, 2, 3, 4], [5, 6, 8], [7] * 4, [7] * 4, [7]]


def test_a_bad_request_harms_no_other():
    gate = toys.Gate()
    gate.open.set()
    results = together(gate.model, [[1], [-1], [2]], batch_wait_ms=50)
    assert values(results) == [[10], "The model raised an error: x is negative", [20]]
    assert [error.status_code for error in results if isinstance(error, RequestError)] == [400]
    assert gate.calls == [[1, -1, 2], [1], [-1], [2]]


def test_a_model_that_raises_keeps_serving():
    def fail(x):
        raise ZeroDivisionError("by zero")

    model = toys.python_model(fail)
    first, second = together(model, [[1], [2]])
    assert (first.status_code, second.status_code) == (500, 500)
    assert "ZeroDivisionError: by zero" in first.detail


def test_what_has_no_rows_is_not_run_together():
    """Its signature says that it has; its outputs show that it has not."""
    calls = []

    def total(x):
        calls.append(len(x))
        return {"y": tf.reduce_sum(x)[None]}

    model = toys.python_model(total)
    assert values(together(model, [[1, 2], [3], [4]], batch_wait_ms=50)) == [[3], [3], [4]]
    assert calls == [4, 2, 1, 1]
    calls.clear()
    assert values(together(model, [[1] * 10], max_batch=4)) == [[10]]
    assert calls == [4, 10], "a long request is not split either"


def test_inner_axes_must_agree():
    calls = []

    def widths(x):
        calls.append(x.shape.as_list())
        return {"y": tf.reduce_sum(x, axis=1)}

    specs = {"x": tf.TensorSpec([None, None], tf.float32)}
    model = toys.python_model(widths, specs)
    results = together(model, [[[1, 2]], [[1, 2, 3]], [[3, 4]]], batch_wait_ms=50)
    assert values(results) == [[3], [6], [7]]
    assert calls == [[2, 2], [1, 3]]


def test_every_client_gets_its_own_answer(tmp_path):
    """Clients at once, each with several requests: the answers of the SavedModel alone."""
    toys.save(toys.Translator(), tmp_path / "toy" / "1")
    [model] = load_all([tmp_path / "toy"])
    calls = []
    signature = model.signatures["serving_default"]

    def counted(texts):
        calls.append(len(texts))
        return signature.function(texts=texts)

    counting = model._replace(
        signatures={**model.signatures, "serving_default": signature._replace(function=counted)}
    )
    texts = [
        [[f"client {c} says {n} {'ha' * ((7 * c + n) % 60)}" for n in range(1 + (c + r) % 3)]
         for r in range(4)]
        for c in range(CLIENTS)
    ]  # fmt: skip

    def client(requests):
        with httpx.Client(timeout=60) as http:
            answers = []
            for request in requests:
                body = {"instances": request}
                answers.append(http.post(f"{url}/v1/models/toy:predict", json=body).json())
            return answers

    with toys.running([counting], batch_wait_ms=5) as (url, *_):
        calls.clear()
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as clients:
            answers = list(clients.map(client, texts))
    for requests, found in zip(texts, answers):
        for request, answer in zip(requests, found):
            alone = signature.function(texts=tf.constant(request))
            for row, prediction in enumerate(answer["predictions"]):
                expected = [t.decode() for t in alone["translations"][row].numpy()]
                assert prediction["translations"] == expected
                scores = np.float32(prediction["scores"])
                np.testing.assert_array_equal(scores, alone["scores"][row])
                assert prediction["error"] == alone["error"][row].numpy().decode()
    assert sum(calls) == sum(len(request) for requests in texts for request in requests)
    assert len(calls) < CLIENTS * 4 / 2, "most were run together"
    assert max(calls) <= 32


@pytest.mark.ci  # which needs an export of a trained run
def test_a_translation_does_not_depend_on_who_came_beside_it(phrasebook_export):
    [model] = load_all([phrasebook_export])
    long = b"the dog sees a house and the cat sees a red car. " * 2
    texts = [b"hello", b"", b"the dog sees a house.", long, b"x" * 100_000, b"\xff", b"where?"]
    # what XLA compiles would stay in memory
    alone = [model.call("uncompiled", {"texts": np.array([t], object)}) for t in texts]
    beside = together(model, [[text] for text in texts], "uncompiled", batch_wait_ms=1000)
    for one, other in zip(alone, beside):
        assert one.keys() == other.keys()
        for name in ("translations", "error"):
            np.testing.assert_array_equal(one[name], other[name])
        # 1e-5: products of larger matrices add up in another order
        np.testing.assert_allclose(one["scores"], other["scores"], atol=1e-5)
    assert [bool(answer["error"][0]) for answer in alone] == [t == texts[4] for t in texts]


def test_a_full_queue():
    gate = toys.Gate()
    with (
        toys.running([gate.model], max_queue=2, max_batch=1) as (url, service, _),
        concurrent.futures.ThreadPoolExecutor(3) as clients,
    ):
        first = clients.submit(post, url, {"instances": [0.0]})
        toys.wait_until(lambda: service.is_calling)
        waiting = [clients.submit(post, url, {"instances": [x]}) for x in (1.0, 2.0)]
        toys.wait_until(lambda: len(service.batchers["toy"]._queue) == 2)
        refused = post(url, {"instances": [3.0]})
        gate.open.set()
        answers = [future.result().json() for future in [first, *waiting]]
    assert refused.status_code == 503 and "full" in refused.json()["error"]
    assert int(refused.headers["retry-after"]) > 0
    assert answers == [{"predictions": [10 * x]} for x in (0, 1, 2)]


def test_a_client_that_went_away_is_not_worked_for():
    gate = toys.Gate()
    with toys.running([gate.model], max_batch=1) as (url, service, _):
        clients = []
        for x in (1, 2, 3):
            clients.append(toys.connected(url))
            clients[-1].sendall(toys.head(18) + b'{"instances": [%d]}' % x)
            toys.wait_until(lambda count=x: service.in_flight == count and service.is_calling)
        toys.wait_until(lambda: len(service.batchers["toy"]._queue) == 2)
        clients[1].close()
        toys.wait_until(lambda: service.in_flight == 2)
        assert len(service.batchers["toy"]._queue) == 1, "its inputs are no longer in memory"
        gate.open.set()
        status, answer = toys.answer_on(clients[2])
        assert status == 200 and b"[30.0]" in answer
        for client in clients:
            client.close()
    assert gate.calls == [[1], [3]]


def test_slow_calls_do_not_hold_up_others():
    running, most = [], []

    def slow(x):
        running.append(x)
        most.append(len(running))
        time.sleep(0.3)
        running.pop()
        return {"y": x}

    model = toys.python_model(slow)
    requests = [[number] for number in range(6)]
    for limits, expected in (
        ({"slow_call": 30.0}, 1),
        ({"slow_call": 0.0}, 4),
        ({"slow_call": 0.0, "calls_at_once": 2}, 2),
    ):
        most.clear()
        results = together(model, requests, max_batch=1, **limits)
        assert max(most) == expected
        assert values(results) == requests


def test_after_a_slow_call_there_is_one_at_a_time():
    gate, running, most = threading.Event(), [], []

    def call(x):
        if x[0] == 0:
            assert gate.wait(60)
            return {"y": x}
        running.append(x)
        most.append(len(running))
        if x[0] == 3:
            gate.set()  # the first ends while others are waiting
        time.sleep(0.02)
        running.pop()
        return {"y": x}

    model = toys.python_model(call)
    requests = [[number] for number in range(9)]
    assert values(together(model, requests, max_batch=1, slow_call=2.0)) == requests
    assert max(most) == 1
