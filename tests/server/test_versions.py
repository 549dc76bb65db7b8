"""Versions that appear on disk while the server runs."""

import concurrent.futures
import contextlib
import json
import pathlib
import re
import shutil
import threading

import httpx
import pytest
import tensorflow as tf

from tests.server import toys
from tests.server.toys import post
from zoo.server import models
from zoo.server.models import find, load, load_all


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


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Function (version, folder): makes a version, which multiplies by its number."""
    home = tmp_path_factory.mktemp("times")
    for version in (1, 2, 10):
        toys.save(Times(version), home / str(version))

    def copy(version, folder):
        shutil.copytree(home / str(version), folder / "incomplete")
        (folder / "incomplete").rename(folder / str(version))

    return copy


@pytest.fixture
def folder(saved, tmp_path):
    (tmp_path / "toy").mkdir()
    saved(1, tmp_path / "toy")
    return tmp_path / "toy"


@contextlib.contextmanager
def watching(folder, models=None, poll_seconds=0.05):
    """A server of the newest version of a folder: yields its URL."""
    settings = {"folders": [folder], "poll_seconds": poll_seconds}
    with toys.running(models or load_all([folder]), **settings) as (url, *_):
        yield url


def wait_for(version, url):
    path = f"{url}/v1/models/toy/versions/{version}"
    toys.wait_until(lambda: httpx.get(path).status_code == 200)


def test_a_new_version_is_served_and_no_request_is_lost(folder, saved, capsys):
    """Under load; each answer is that of one of the versions."""
    stop = threading.Event()

    def client(url):
        answers = []
        while not stop.is_set():
            answers.append(post(url, {"instances": [3.0]}))
        return answers

    with watching(folder) as url, concurrent.futures.ThreadPoolExecutor(4) as clients:
        begun = [clients.submit(client, url) for _ in range(4)]
        for version in (2, 10):
            saved(version, folder)
            wait_for(version, url)
            assert post(url, {"instances": [3.0]}).json() == {"predictions": [3.0 * version]}
        shutil.rmtree(folder / "10")  # back to the one before
        wait_for(2, url)
        stop.set()
        answers = [answer for one in begun for answer in one.result()]
    assert {answer.status_code for answer in answers} == {200}
    assert {answer.json()["predictions"][0] for answer in answers} <= {3.0, 6.0, 30.0}
    assert capsys.readouterr().out.count("toy, version 10: ready") == 1


def test_requests_of_the_old_version_are_finished(folder, saved):
    """One that the model works on, and one whose body has not come."""
    gate = toys.Gate()
    found = []
    body = b'{"instances": [3.0]}'
    with watching(folder, [gate.model]) as url, toys.connected(url) as half_sent:
        half_sent.sendall(toys.head(len(body)))
        client = threading.Thread(target=lambda: found.append(post(url, {"instances": [3.0]})))
        client.start()
        toys.wait_until(lambda: gate.calls)
        saved(2, folder)
        wait_for(2, url)
        assert post(url, {"instances": [3.0]}).json() == {"predictions": [6.0]}
        assert not found
        gate.open.set()
        client.join()
        half_sent.sendall(body)
        code, answer = toys.answer_on(half_sent)
    assert found[0].json() == {"predictions": [30.0]}
    assert (code, json.loads(answer)) == (200, {"predictions": [6.0]}), "by the new one"


def test_a_version_that_cannot_be_loaded_is_told_once(folder, saved, monkeypatch, capsys):
    """It is loaded again only when it changes; until it can be, the old one is served."""
    looks = []
    loads = []
    told = []

    def wait_for_looks():
        before = len(looks)
        toys.wait_until(lambda: len(looks) > before + 5)

    first = load_all([folder])
    monkeypatch.setattr(models, "find", lambda given: looks.append(given) or find(given))
    monkeypatch.setattr(models, "load", lambda *model: loads.append(model) or load(*model))
    with watching(folder, first, poll_seconds=0.02) as url:
        (folder / "2").mkdir()
        for content in (b"damaged", b"damaged otherwise"):
            (folder / "2" / "saved_model.pb").write_bytes(content)
            wait_for_looks()
            told.append(capsys.readouterr().out.count("not served yet"))
        assert len(loads) == 2 and told[0] == 1
        assert post(url, {"instances": [3.0]}).json() == {"predictions": [3.0]}
        shutil.rmtree(folder / "2")
        saved(2, folder)
        wait_for(2, url)


def test_a_folder_that_cannot_be_read_stops_nothing(folder, saved, monkeypatch, capsys):
    def broken(given):
        raise PermissionError(13, "Permission denied", str(given))

    with watching(folder) as url:
        monkeypatch.setattr(models, "find", broken)
        toys.wait_until(lambda: "Permission denied" in capsys.readouterr().out)
        assert post(url, {"instances": [3.0]}).status_code == 200
        monkeypatch.undo()
        saved(2, folder)
        wait_for(2, url)


class Large(Times):
    """Times a factor, which XLA compiles, with 8 MB of weights."""

    def __init__(self, factor):
        super().__init__(factor)
        self.weights = tf.Variable(tf.fill([2_000_000], float(factor)))

    def signatures(self):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, "x")])
        def call(x):
            return {"y": self.compiled(x)}

        return {"serving_default": call.get_concrete_function()}

    @tf.function(jit_compile=True)
    def compiled(self, x):
        for _ in range(20):
            x = tf.sin(x) + tf.cos(x)
        return x * self.factor + tf.reduce_mean(self.weights)


@pytest.mark.slow
def test_memory_is_level_over_versions(tmp_path):
    """The weights of an old version and the programs that XLA compiled are freed."""
    folder = tmp_path / "toy"
    toys.save(Large(1), folder / "1")
    process, _, url = toys.start([folder], poll_seconds=0.02)
    status = pathlib.Path(f"/proc/{process.pid}/status")
    memory = []
    try:
        for version in range(2, 52):
            shutil.copytree(folder / str(version - 1), tmp_path / "next")
            (tmp_path / "next").rename(folder / str(version))
            wait_for(version, url)
            assert post(url, {"instances": [3.0] * (version % 3 + 1)}).status_code == 200
            shutil.rmtree(folder / str(version - 1))
            memory.append(int(re.search(r"VmRSS:\s+(\d+) kB", status.read_text())[1]) / 1000)
    finally:
        process.terminate()
        toys.end(process)
    # megabytes; one or two versions are in memory
    assert max(memory[-10:]) - max(memory[:10]) < 30, [round(each) for each in memory]
