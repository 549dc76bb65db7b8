"""The server's answers beside those that TensorFlow Serving's page prints, and to bad requests."""

import gzip
import json
import re

import httpx
import pytest

from tests.server import toys
from tests.server.conftest import MAX_BODY, MODELS
from tests.server.toys import post
from zoo.server.models import load_all


def get(url, path):
    return httpx.get(f"{url}/v1/models/{path}", timeout=30)


def test_status_as_tensorflow_serving_prints_it(url):
    status = {"error_code": "OK", "error_message": ""}
    expected = {"version": "123", "state": "AVAILABLE", "status": status}
    for path in ("half_plus_three", "half_plus_three/versions/123"):
        answer = get(url, path)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/json"
        assert answer.json() == {"model_version_status": [expected]}


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


@pytest.mark.parametrize(
    "request_, status, message",
    [
        ({"instances": ["a"], "signature_name": "nope"}, 400, "'nope' not found in signature def"),
        ({"instances": [[1.0]], "signature_name": "log"}, 400, "shape"),
        ({"instances": [4.0, -1.0], "signature_name": "checked"}, 400, "x is negative"),
        ({"instances": [1.0], "signature_name": "complex"}, 501, "complex64"),
        (b"{", 400, "JSON Parse error"),
        (gzip.compress(b'{"instances": [1.0]}', mtime=0), 400, "The body begins with b'\\x1f\\x8b"),
        (b"\xff\xd8\xff\xe0", 400, "begins with b'\\xff\\xd8\\xff\\xe0'. Send JSON such as"),
    ],
)
def test_bad_requests(url, request_, status, message):
    content = request_ if isinstance(request_, bytes) else json.dumps(request_)
    answer = post(url, None, content=content)
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
        ("GET", f"/v1/models/toy/versions/{'1' * 5000}", 404, "Servable not found"),
        ("GET", "/v1/models/toy/labels/stable", 404, "Not Found"),
        ("PUT", "/v1/models/toy:predict", 405, "Method Not Allowed"),
        ("POST", "/v1/models/toy", 405, "Not Allowed. Predictions are POST /v1/models/NAME:p"),
        ("POST", "/v1/models/toy:classify", 405, "Method Not Allowed"),
        ("GET", "/v1/models/toy:predict", 404, "Predictions are POST"),
        ("GET", "/nowhere", 404, "Received: GET /nowhere."),
    ],
)
def test_bad_addresses(url, method, path, status, message):
    answer = httpx.request(method, url + path, json={"instances": [1.0]}, timeout=30)
    assert (answer.status_code, list(answer.json())) == (status, ["error"])
    assert message in answer.json()["error"]


def test_a_body_over_the_limit(url):
    fits = json.dumps({"instances": [1.0]}).encode().ljust(MAX_BODY)
    assert post(url, None, "half_plus_three", content=fits).status_code == 200

    def in_pieces(size):
        for _ in range(size // 10_000):
            yield b" " * 10_000

    for size in (MAX_BODY + 1, 30 * MAX_BODY):  # a client sees the answer, also if it still writes
        answer = post(url, None, "half_plus_three", content=b" " * size)
        assert answer.status_code == 413 and str(MAX_BODY) in answer.json()["error"]
        answer = post(url, None, "half_plus_three", content=in_pieces(size + 10_000))
        assert answer.status_code == 413
    assert post(url, {"instances": [1.0]}, "half_plus_three").status_code == 200
    with toys.connected(url) as client:
        client.sendall(toys.head(10**10))
        assert toys.answer_on(client)[0] == 413, "before it comes"


def test_health_the_list_of_models_and_the_page(url):
    assert httpx.get(f"{url}/healthz").json() == {"status": "alive"}
    assert httpx.get(f"{url}/readyz").json() == {"status": "ready"}
    models = httpx.get(f"{url}/v1/models").json()["models"]
    assert models[1] == {"name": "vit", "version": 2}
    assert [f"{model['name']}/{model['version']}" for model in models] == [*MODELS.values()]
    page = httpx.get(url)
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.text
    assert "http" not in page.text.replace("http-equiv", ""), "it needs no network"


def test_figures_for_prometheus(home):
    [model] = load_all([f"counted={home / 'half_plus_three'}"])
    with toys.running([model]) as (url, *_):
        before = figures(url).get('zoo_requests_total{code="404",model=""}', 0.0)
        for rows in (1, 2, 40):
            post(url, {"instances": [1.0] * rows}, "counted")
        post(url, {"instances": ["a"]}, "counted")
        post(url, {"instances": ["a"]}, "x" * 1000)  # a name that a client made up is not a label
        found = figures(url)
    assert found['zoo_requests_total{code="200",model="counted"}'] == 3
    assert found['zoo_requests_total{code="400",model="counted"}'] == 1
    assert found['zoo_requests_total{code="404",model=""}'] == before + 1
    assert found['zoo_request_seconds_count{model="counted"}'] == 3
    assert found['zoo_call_rows_sum{model="counted"}'] == 43
    assert found['zoo_call_rows_count{model="counted"}'] == 4, "40 rows are two calls"
    assert found['zoo_queued_requests{model="counted"}'] == 0


def figures(url):
    """{name and labels: number}; of all servers in the process."""
    answer = httpx.get(f"{url}/monitoring/prometheus/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    return {name: float(x) for name, x in re.findall(r"^([^#].*) (\S+)$", answer.text, re.M)}
