"""The server's answers beside those that TensorFlow Serving's page prints, and to bad requests."""

import gzip
import json
import time
import zlib

import httpx
import numpy as np
import pytest
import tensorflow as tf

from tests.server import toys
from tests.server.toys import post
from zoo.deploy.warm_up_requests import write_warm_up_requests
from zoo.server.loading import load_all

LIMIT = 300_000


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    home = tmp_path_factory.mktemp("serving")
    folders = [
        toys.save(toys.HalfPlusThree(), home / "half_plus_three" / "123"),
        toys.save(toys.Shapes(), home / "toy" / "1"),
        toys.save(toys.Translator(), home / "en_es" / "1"),
        toys.save(toys.Classifier(), home / "vit" / "2"),
    ]
    with toys.running(load_all(folders), max_body=LIMIT) as (url, *_):
        yield url


def get(url, path, **options):
    return httpx.get(f"{url}/v1/models/{path}", timeout=30, **options)


def test_status_as_tensorflow_serving_prints_it(url):
    expected = {
        "model_version_status": [
            {
                "version": "123",
                "state": "AVAILABLE",
                "status": {"error_code": "OK", "error_message": ""},
            }
        ]
    }
    for path in (
        "half_plus_three",
        "half_plus_three/versions/123",
        "half_plus_three/versions/0123",
    ):
        answer = get(url, path)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/json"
        assert answer.json() == expected


def test_predict_as_tensorflow_serving_prints_it(url):
    for name in ("half_plus_three", "half_plus_three/versions/123"):
        answer = post(url, {"instances": [1.0, 2.0, 5.0]}, name)
        assert (answer.status_code, answer.json()) == (200, {"predictions": [3.5, 4.0, 5.5]})
    answer = httpx.post(
        f"{url}/v1/models/half_plus_three:predict",
        content='{"inputs": [1.0, 2.0, 5.0]}',
        headers={"content-type": "application/x-www-form-urlencoded"},  # as curl -d has it
    )
    assert answer.json() == {"outputs": [3.5, 4.0, 5.5]}
    assert post(url, {"inputs": []}, "half_plus_three").json() == {"outputs": []}


def test_metadata_has_the_field_names_of_tensorflow_serving(url):
    answer = get(url, "half_plus_three/metadata").json()
    spec = {"name": "half_plus_three", "signature_name": "", "version": "123"}
    assert answer["model_spec"] == spec
    signature = answer["metadata"]["signature_def"]["signature_def"]["serving_default"]
    assert signature["method_name"] == "tensorflow/serving/predict"
    assert signature["inputs"] == {
        "x": {
            "dtype": "DT_FLOAT",
            "tensor_shape": {"dim": [{"size": "-1", "name": ""}], "unknown_rank": False},
            "name": "serving_default_x:0",
        }
    }
    assert signature["outputs"]["y"]["dtype"] == "DT_FLOAT"
    assert get(url, "half_plus_three/versions/123/metadata").json() == answer


def test_several_inputs_and_outputs(url):
    rows = [
        {"tag": "foo", "signal": [1, 2, 3, 4, 5], "sensor": [[1, 2], [3, 4]]},
        {"tag": "bar", "signal": [3, 4, 1, 2, 5], "sensor": [[4, 5], [6, 8]]},
    ]
    expected = [{"tag": "FOO", "mean": 3.0, "sum": 10}, {"tag": "BAR", "mean": 3.0, "sum": 23}]
    assert post(url, {"instances": rows}).json() == {"predictions": expected}
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    outputs = {name: [row[name] for row in expected] for name in expected[0]}
    for name in ("serving_default", ""):
        answer = post(url, {"signature_name": name, "inputs": columns})
        assert answer.json() == {"outputs": outputs}


def test_numbers_come_back_as_they_went(url):
    inputs = {"bool": [True], "int8": [-128], "uint8": [255], "int64": [-(2**63)]}
    inputs |= {"float16": [0.5], "bfloat16": [-2.0], "float64": [0.1]}
    answer = post(url, {"signature_name": "numbers", "inputs": inputs})
    assert answer.json() == {"outputs": dict(zip("abcdefg", inputs.values()))}


def test_scalars_have_column_form_only(url):
    assert post(url, {"signature_name": "scalar", "inputs": 2.0}).json() == {"outputs": 3.0}
    answer = post(url, {"signature_name": "scalar", "instances": [2.0]})
    assert (answer.status_code, list(answer.json())) == (400, ["error"])
    answer = post(url, {"signature_name": "summed", "instances": [1.0, 2.0]})
    assert answer.status_code == 400 and "column form" in answer.json()["error"]
    assert post(url, {"signature_name": "summed", "inputs": [1.0, 2.0]}).json() == {"outputs": 3.0}


def test_classify_and_regress(tmp_path):
    """A SavedModel of TensorFlow 1, as those signatures have been made."""
    builder = tf.compat.v1.saved_model.Builder(str(tmp_path / "old" / "1"))
    utils = tf.compat.v1.saved_model
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        examples = tf.compat.v1.placeholder(tf.string, [None])
        features = {"x": tf.io.FixedLenFeature([2], tf.float32)}
        features["n"] = tf.io.FixedLenFeature([], tf.int64)
        features["name"] = tf.io.FixedLenFeature([], tf.string)
        parsed = tf.io.parse_example(examples, features)
        total = tf.reduce_sum(parsed["x"], 1) + tf.cast(parsed["n"], tf.float32)
        classes = tf.stack([parsed["name"], tf.fill(tf.shape(parsed["name"]), "other")], 1)
        scores = tf.stack([total, -total], 1)
        signatures = {
            "serving_default": utils.classification_signature_def(examples, classes, scores),
            "regress": utils.regression_signature_def(examples, total),
        }
        builder.add_meta_graph_and_variables(session, ["serve"], signature_def_map=signatures)
    builder.save()
    request = {
        "context": {"n": 3},
        "examples": [
            {"x": [1.5, 2.0], "name": "bee"},
            {"x": [0, 0.5], "name": {"b64": "YW50"}, "n": 4},
        ],
    }
    with toys.running(load_all([tmp_path / "old"]), max_body=LIMIT) as (url, *_):

        def ask(verb, **changes):
            body = json.dumps({**request, **changes})
            return httpx.post(f"{url}/v1/models/old:{verb}", content=body)

        assert ask("classify").json() == {
            "results": [[["bee", 6.5], ["other", -6.5]], [["ant", 4.5], ["other", -4.5]]]
        }
        assert ask("regress", signature_name="regress").json() == {"results": [6.5, 4.5]}
        for verb, changes, message in (
            ("regress", {}, "The method of signature"),
            ("classify", {"signature_name": "nope"}, "not found"),
            ("classify", {"examples": []}, "at least one"),
            ("classify", {"examples": [3]}, "must be objects"),
            ("classify", {"examples": [{"x": [1.0, 2.0]}]}, "name"),
            ("classify", {"examples": [{"x": [10**30]}]}, "too large"),
            ("classify", {"examples": [{"\ud800": 1}]}, "lone surrogate"),
            ("classify", {"examples": [{"x": [[1]]}]}, "must be a string"),
        ):
            answer = ask(verb, **changes)
            assert answer.status_code == 400 and message in answer.json()["error"]
        answer = ask("classify", context={"q": "x" * LIMIT}, examples=[{}] * 1000)
        assert answer.status_code == 413, "each example has the context"


@pytest.mark.parametrize(
    "request_, status, message",
    [
        ({"instances": ["a"], "signature_name": "nope"}, 400, '"nope" not found in signature def'),
        ({"instances": ["a"], "signature_name": 3}, 400, "must be a string"),
        ({"instances": [[1.0]], "signature_name": "log"}, 400, "shape"),
        ({"instances": [4.0, -1.0], "signature_name": "checked"}, 400, "x is negative"),
        ({"instances": [1.0], "signature_name": "complex"}, 501, "complex64"),
        (None, 400, "JSON Parse error"),
    ],
)
def test_bad_requests(url, request_, status, message):
    answer = post(url, request_, content=b"{" if request_ is None else None)
    assert (answer.status_code, list(answer.json())) == (status, ["error"])
    assert message in answer.json()["error"]
    assert "__inference" not in answer.text and "{{node" not in answer.text


@pytest.mark.parametrize(
    "method, path, status, message",
    [
        ("GET", "/v1/models/nope", 404, "Servable not found for request: nope"),
        ("POST", "/v1/models/nope:predict", 404, "Servable not found"),
        ("GET", "/v1/models/toy/versions/2", 404, "toy, version 2"),
        ("POST", "/v1/models/toy/versions/2:predict", 404, "Servable not found"),
        ("GET", "/v1/models/toy/labels/stable", 404, "version stable"),
        ("GET", "/v1/models/toy/versions/one", 400, "Malformed request"),
        ("GET", f"/v1/models/toy/versions/{'1' * 5000}", 400, "Malformed request"),
        ("GET", "/v1/nothing", 400, "Malformed request"),
        ("GET", "/v1/models/toy:predict", 400, "takes POST"),
        ("PUT", "/v1/models/toy:predict", 400, "takes POST"),
        ("POST", "/v1/models/toy", 400, "takes GET"),
        ("DELETE", "/v1/models/toy/metadata", 400, "takes GET"),
        ("POST", "/v1/models/toy:classify", 400, ":classify needs tensorflow/serving/classify"),
        ("POST", "/v1/models/toy:regress", 400, ":regress needs tensorflow/serving/regress"),
        ("POST", "/v1/models/toy:explain", 400, "Malformed request"),
        ("GET", "/nowhere", 404, "Not Found"),
        ("POST", "/", 405, "Method Not Allowed"),
    ],
)
def test_bad_addresses(url, method, path, status, message):
    answer = httpx.request(method, url + path, json={"instances": [1.0]}, timeout=30)
    assert (answer.status_code, list(answer.json())) == (status, ["error"])
    assert message in answer.json()["error"]
    assert ("allow" in answer.headers) == (status == 405)


def test_gzip(url):
    def send(body, encoding="gzip"):
        headers = {"content-encoding": encoding}
        return post(url, None, "half_plus_three", content=body, headers=headers)

    packed = gzip.compress(b'{"instances": [1.0]}')
    assert send(packed).json() == {"predictions": [3.5]}
    assert send(packed, "GZIP").json() == {"predictions": [3.5]}
    assert send(b"nonsense").status_code == 400
    assert send(packed[:-9]).status_code == 400
    for more in (b"\0", packed):
        answer = send(packed + more)
        assert answer.status_code == 400 and "more data" in answer.json()["error"]
    assert send(packed, "br").status_code == 415
    packer = zlib.compressobj(wbits=31)  # gzip
    bomb = b"".join([*(packer.compress(b" " * LIMIT) for _ in range(100)), packer.flush()])
    assert len(bomb) < LIMIT
    assert send(bomb).status_code == 413


def test_a_body_over_the_limit(url):
    fits = json.dumps({"instances": [1.0]}).encode().ljust(LIMIT)
    assert post(url, None, "half_plus_three", content=fits).status_code == 200

    def in_pieces(size):
        for _ in range(size // 10_000):
            yield b" " * 10_000

    for size in (LIMIT + 1, 3 * LIMIT):
        answer = post(url, None, "half_plus_three", content=b" " * size)
        assert answer.status_code == 413 and str(LIMIT) in answer.json()["error"]
        answer = post(url, None, "half_plus_three", content=in_pieces(size + 10_000))
        assert answer.status_code == 413
    assert post(url, {"instances": [1.0]}, "half_plus_three").status_code == 200


def test_a_huge_body_is_not_read(url):
    with toys.connected(url) as client:
        client.sendall(toys.head(10**10))
        assert toys.answer_on(client)[0] == 413


def test_a_slow_request_takes_too_long():
    def slow(x):
        time.sleep(float(x[0]))
        return {"y": x}

    with toys.running([toys.python_model(slow)], request_timeout=0.3) as (url, *_):
        answer = post(url, {"instances": [0.6]})
        assert answer.status_code == 504 and "0.3 s" in answer.json()["error"]
        assert post(url, {"instances": [0.0]}, timeout=5).status_code in (200, 504)
        time.sleep(0.5)
        assert post(url, {"instances": [0.0]}).status_code == 200
        with toys.connected(url) as client:
            client.sendall(toys.head(9) + b"{")
            assert toys.answer_on(client)[0] == 504, "a body that does not come in time"


def test_not_ready_while_warming_up(tmp_path):
    gate = toys.Gate()
    write_warm_up_requests(tmp_path, [{"x": np.ones(1, np.float32)}])
    with toys.running([gate.model._replace(folder=tmp_path)], wait_for_ready=False) as (
        url,
        service,
        _,
    ):
        toys.wait_until(lambda: service.is_calling)
        ready, alive = httpx.get(f"{url}/readyz"), httpx.get(f"{url}/healthz")
        status = get(url, "toy")
        gate.open.set()
        toys.wait_until(lambda: service.is_ready)
        assert httpx.get(f"{url}/readyz").status_code == 200
    assert (ready.status_code, ready.json()) == (503, {"status": "starting"})
    assert alive.status_code == 200
    assert status.json()["model_version_status"][0]["state"] == "LOADING"


def test_health_the_list_of_models_and_the_page(url):
    assert httpx.get(f"{url}/healthz").json() == {"status": "alive"}
    assert httpx.get(f"{url}/readyz").json() == {"status": "ready"}
    models = httpx.get(f"{url}/v1/models").json()["models"]
    assert [(m["name"], m["version"], m["kind"]) for m in models] == [
        ("half_plus_three", "123", "model"),
        ("toy", "1", "model"),
        ("en_es", "1", "translator"),
        ("vit", "2", "classifier"),
    ]
    assert models[2]["signatures"]["attention"]["inputs"] == ["texts", "translations"]
    page = httpx.get(url)
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "http" not in page.text.replace("http-equiv", ""), "it needs no network"
