"""Requests are run together, and none notices."""

import asyncio
import concurrent.futures
import threading
import time

import numpy as np
import tensorflow as tf

from tests.server import toys
from tests.server.toys import post
from zoo.server.batching import Batcher
from zoo.server.errors import RequestError
from zoo.server.limits import Limits


def together(model, requests, **limits):
    """Answers or errors of requests that come at the same time, one call after the other."""
    limits = Limits(**{"calls_at_once": 1, "batch_wait_ms": 50, **limits})

    async def run():
        batcher = Batcher(model, limits)
        tasks = [batcher.run("serving_default", {"x": np.float32(x)}) for x in requests]
        return await asyncio.gather(*tasks, return_exceptions=True)

    return asyncio.run(run())


def values(results):
    return [r["y"].tolist() if isinstance(r, dict) else r.detail for r in results]


def test_a_batch_has_at_most_so_many_rows():
    gate = toys.Gate()
    gate.open.set()
    requests = [[1, 2], [3, 4], [5, 6], [], [7] * 9, [8]]
    results = together(gate.model, requests, max_batch=4)
    assert values(results) == [[10 * x for x in request] for request in requests]
    assert gate.calls == [[1, 2, 3, 4], [5, 6, 8], [7] * 4, [7] * 4, [7]]


def test_a_bad_request_harms_no_other():
    gate = toys.Gate()
    gate.open.set()
    results = together(gate.model, [[1], [-1], [2]])
    assert values(results) == [[10], "The model raised an error: x is negative", [20]]
    assert [error.status_code for error in results if isinstance(error, RequestError)] == [400]
    assert gate.calls == [[1, -1, 2], [1], [-1], [2]]


def test_what_has_no_rows_is_not_run_together():
    """Its signature says that it has; its outputs show that it has not."""
    model = toys.python_model(lambda x: {"y": tf.reduce_sum(x)[None]})
    assert values(together(model, [[1, 2], [3], [4]])) == [[3], [3], [4]]
    assert values(together(model, [[1] * 10], max_batch=4)) == [[10]], "nor in parts"


def test_inner_axes_must_agree():
    calls = []

    def widths(x):
        calls.append(x.shape.as_list())
        return {"y": tf.reduce_sum(x, axis=1)}

    specs = {"x": tf.TensorSpec([None, None], tf.float32)}
    model = toys.python_model(widths, specs)
    assert values(together(model, [[[1, 2]], [[1, 2, 3]], [[3, 4]]])) == [[3], [6], [7]]
    assert calls == [[2, 2], [1, 3]]


def test_a_full_queue():
    gate = toys.Gate()
    limits = {"max_queue": 2, "max_batch": 1, "calls_at_once": 1}
    with (
        toys.running([gate.model], limits=limits) as (url, service, _),
        concurrent.futures.ThreadPoolExecutor(3) as clients,
    ):
        first = clients.submit(post, url, {"instances": [0.0]})
        toys.wait_until(lambda: service.batchers["toy"].calls)
        waiting = [clients.submit(post, url, {"instances": [x]}) for x in (1.0, 2.0)]
        toys.wait_until(lambda: len(service.batchers["toy"].queue) == 2)
        refused = post(url, {"instances": [3.0]})
        gate.open.set()
        answers = [future.result().json() for future in [first, *waiting]]
    assert refused.status_code == 503 and "full" in refused.json()["error"]
    assert answers == [{"predictions": [10 * x]} for x in (0, 1, 2)]


def test_a_client_that_went_away_is_not_worked_for():
    gate = toys.Gate()
    limits = {"max_batch": 1, "calls_at_once": 1}
    with toys.running([gate.model], limits=limits) as (url, service, _):
        clients = []
        queue = service.batchers["toy"].queue
        for x in (1, 2, 3):
            clients.append(toys.connected(url))
            clients[-1].sendall(toys.head(18) + b'{"instances": [%d]}' % x)
            toys.wait_until(
                lambda count=x - 1: service.batchers["toy"].calls and len(queue) == count
            )
        clients[1].close()
        toys.wait_until(lambda: len(queue) == 1)  # its inputs are no longer in memory
        gate.open.set()
        status, answer = toys.answer_on(clients[2])
        assert status == 200 and b"[30.0]" in answer
    assert gate.calls == [[1], [3]]


def test_so_many_calls_at_once():
    running = []
    most = []

    def slow(x):
        running.append(x)
        most.append(len(running))
        time.sleep(0.1)
        running.pop()
        return {"y": x}

    requests = [[number] for number in range(6)]
    for count in (1, 2, 4):
        most.clear()
        results = together(toys.python_model(slow), requests, max_batch=1, calls_at_once=count)
        assert max(most) == count
        assert values(results) == requests


def test_a_long_request_takes_turns_with_others():
    """A short one that comes later waits for one call of the long one, not for all."""
    calls = []
    open_ = threading.Event()

    def call(x):
        calls.append(len(x))
        assert open_.wait(30)
        return {"y": 10 * x}

    async def run():
        limits = Limits(max_batch=4, batch_wait_ms=0.01, calls_at_once=1)
        batcher = Batcher(toys.python_model(call), limits)
        long = asyncio.create_task(batcher.run("serving_default", {"x": np.arange(18.0)}))
        while not calls:
            await asyncio.sleep(0.01)
        short = asyncio.create_task(batcher.run("serving_default", {"x": np.array([1.0, 2.0])}))
        await asyncio.sleep(0.05)
        open_.set()
        await short
        assert len(calls) < 5 and not long.done()
        return (await long)["y"], (await short)["y"]

    long, short = asyncio.run(run())
    np.testing.assert_array_equal(long, 10 * np.arange(18.0))
    np.testing.assert_array_equal(short, [10, 20])
    assert max(calls) <= 4 and sum(calls) == 20


def test_a_request_that_is_too_late():
    """Its calls that have not begun are not made."""
    calls = []

    def slow(x):
        calls.append(len(x))
        time.sleep(0.1)
        return {"y": x}

    limits = {"request_timeout": 0.3, "max_batch": 2}
    with toys.running([toys.python_model(slow)], limits=limits) as (url, service, _):
        answer = post(url, {"instances": [1.0] * 100})
        assert answer.status_code == 504 and "0.3 s" in answer.json()["error"]
        toys.wait_until(lambda: not service.batchers["toy"].calls)
        made = len(calls)
        assert made < 10
        assert post(url, {"instances": [1.0]}).status_code == 200
        assert len(calls) == made + 1
        with toys.connected(url) as client:
            client.sendall(toys.head(9) + b"{")
            assert toys.answer_on(client)[0] == 504, "a body that does not come in time"
