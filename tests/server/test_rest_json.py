"""What JSON becomes and comes of: the rules of TensorFlow Serving's REST API."""

import concurrent.futures
import json
import time

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from zoo.server.errors import RequestError
from zoo.server.rest_json import decode, encode, parse

SENSORS = {
    "tag": tf.TensorSpec([None], tf.string),
    "signal": tf.TensorSpec([None, 5], tf.float32),
    "sensor": tf.TensorSpec([None, 2, 2], tf.int32),
}
IMAGES = {"image_bytes": tf.TensorSpec([None], tf.string)}
ROW = {"tag": "foo", "signal": [1, 2, 3, 4, 5], "sensor": [[1, 2], [3, 4]]}


def spec(dtype, *shape):
    return {"x": tf.TensorSpec(shape, dtype)}


@pytest.mark.parametrize("form", ["instances", "inputs"])
def test_a_single_input_needs_no_name(form):
    bare = decode({form: [[1.5], [2]]}, spec(tf.float32, None, 1))
    assert bare["x"].tolist() == [[1.5], [2.0]]
    named = [{"x": [1.5]}, {"x": [2]}] if form == "instances" else {"x": [[1.5], [2]]}
    np.testing.assert_array_equal(decode({form: named}, spec(tf.float32, None, 1))["x"], bare["x"])


def test_bytes():
    values = [{"b64": "aW1hZ2UgYnl0ZXM="}, "é", {"b64": "AP8"}, {"b64": "AP8=\n"}, {"b64": ""}]
    values.append({"b64": "-_8="})  # URL-safe alphabet
    found = decode({"instances": values}, spec(tf.string, None))["x"]
    both = b"\x00\xff"
    assert found.tolist() == [b"image bytes", "é".encode(), both, both, b"", b"\xfb\xff"]
    named = decode({"instances": [{"x": {"b64": "AAA="}}]}, spec(tf.string, None))
    assert named["x"].tolist() == [b"\x00\x00"], "zeros at the end are kept"
    assert decode({"inputs": {"b64": "AAA="}}, spec(tf.string))["x"].item() == b"\x00\x00"


def test_numbers_of_every_kind():
    for kind in (tf.int8, tf.uint8, tf.int64, tf.uint64):
        ends = [kind.min, kind.max]
        assert decode({"inputs": ends}, spec(kind, None))["x"].tolist() == ends
    for kind in (tf.float16, tf.bfloat16, tf.float32, tf.float64):
        found = decode(parse(b'{"inputs": [1, NaN, -Infinity]}', 100), spec(kind, None))
        assert found["x"].dtype == kind.as_numpy_dtype
        np.testing.assert_array_equal(found["x"].astype(float), [1.0, np.nan, -np.inf])
    assert decode({"inputs": []}, spec(tf.int32, None))["x"].shape == (0,)


@pytest.mark.parametrize(
    "request_, specs, message",
    [
        ({}, spec(tf.int32, None), "either 'instances' or 'inputs'"),
        ({"inputs": [1], "instances": [1]}, spec(tf.int32, None), "either 'instances' or 'inputs'"),
        ({"instances": []}, spec(tf.int32, None), "a non-empty list"),
        ({"instances": {"x": 1}}, spec(tf.int32, None), "must be a non-empty list"),
        ({"instances": [[1], [1, 2]]}, spec(tf.int32, None, None), "ragged"),
        ({"instances": [1, {"x": 1}]}, spec(tf.int32, None), "Element 0 of .* Received: 1"),
        ({"instances": [{"x": 1}, 1]}, spec(tf.int32, None), "Element 1 of .* Received: 1"),
        ({"instances": [{"y": 1}]}, spec(tf.int32, None), r"keys \['x'\]. Received: \['y'\]"),
        ({"instances": ["a"]}, SENSORS, "'sensor', 'signal', 'tag'"),
        ({"instances": [ROW, {"tag": "a"}]}, SENSORS, "Element 1 of 'instances'"),
        ({"inputs": {"tag": ["a"]}}, SENSORS, "'sensor', 'signal', 'tag'"),
        ({"inputs": ["a"]}, SENSORS, "'sensor', 'signal', 'tag'"),
        ({"instances": [1.0]}, spec(tf.int32, None), "must be int32. Received: 1.0"),
        ({"instances": [True]}, spec(tf.int32, None), "must be int32. Received: True"),
        ({"instances": [1, "2"]}, spec(tf.float32, None), "float32. Received: '2'"),
        ({"instances": [1]}, spec(tf.bool, None), "bool. Received: 1"),
        ({"instances": [1]}, spec(tf.string, None), "string or"),
        ({"instances": [{"b64": {"b64": "AAAA"}}]}, spec(tf.string, None), "string or"),
        ({"instances": [{"b64": "é!"}]}, spec(tf.string, None), "base64"),
        ({"instances": [{"b64": "AAAA"}]}, spec(tf.float32, None), "must be float32"),
        ({"instances": ["\ud800"]}, spec(tf.string, None), "surrogate"),
        ({"instances": [256]}, spec(tf.uint8, None), "range of uint8"),
        ({"instances": [10**30]}, spec(tf.int64, None), "range of int64"),
        ({"instances": [1e39]}, spec(tf.float32, None), "range of float32"),
        ({"instances": [10**400]}, spec(tf.float64, None), "range of float64"),
        ({"instances": [[1, 2]]}, spec(tf.int32, None, 3), r"shape \[-1, 3\], not \[1, 2\]"),
        ({"instances": [1]}, spec(tf.int32), r"shape \[\]"),
        ({"instances": ["aGVsbG8gd29ybGQh"]}, IMAGES, 'looks like Base64.*{"b64": "aGVsbG8g...'),
        ({"instances": ["_9j_4AAQSkZJRgAB"]}, IMAGES, 'looks like Base64.*{"b64": "_9j_4AAQ...'),
        ({"instances": ["data:image/png;base64,iVBORw0KGgo="]}, IMAGES, 'data URL.*"iVBORw0K...'),
        ({"instances": [{"b64": "data:image/png;base64,iVBORw0KGgo="}]}, IMAGES, "is a data URL"),
        ({"instances": ["https://zoo.example/cat.png"]}, IMAGES, "a URL, and nothing is downloa"),
        ({"instances": ["a.png"]}, IMAGES, "not .a.png.. Send .*image_bytes: string"),
        ({"instances": [{"image_bytes": "a.png"}]}, IMAGES, 'not .a.png.. .*{"b64": "..."}'),
        ({"instances": [[[[0, 9, 9]]]]}, IMAGES, r"\[-1\], not \[1, 1, 1, 3\] of .* 0. .*b64"),
        ({"instances": "hello"}, spec(tf.string, None), r"list.* x: string \(None,\)"),
        ({"inputs": "iVBORw0KGgoAAAANSUhEUg"}, IMAGES, r"\[\] of .*looks like Base64.*{.b64"),
        ({"instances": "iVBORw0KGgoAAAANSUhEUg"}, IMAGES, r"list.*looks like Base64.*{.b64"),
        ({"inputs": "hello"}, spec(tf.string, None), r"not \[\] of .*'hello'."),
        ({"image": "a"}, SENSORS, r"\['image'\].*tag: string \(None,\), signal: float32"),
    ],
)
def test_bad_inputs(request_, specs, message):
    with pytest.raises(RequestError, match=message) as error:
        decode(request_, specs)
    assert error.value.status_code == 400


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[1]", b'"a"', b"\xff\xfe\xfd", b'{"a": ' + b"9" * 5000 + b"}", b"[" * 200_000],
)
def test_bad_json(body):
    with pytest.raises(RequestError, match="(JSON Parse error|JSON object).*such as {") as error:
        parse(body, 10**6)
    assert error.value.status_code == 400


def test_one_output_has_no_name():
    y = np.array([0.2, 1.0, 1e-5, 16777216.0], np.float32)
    assert encode({"y": y}, True) == b'{"predictions": [0.2, 1.0, 1e-05, 16777216.0]}'
    assert encode({"y": y}, False) == b'{"outputs": [0.2, 1.0, 1e-05, 16777216.0]}'
    assert encode({"y": np.array(3.0)}, False) == b'{"outputs": 3.0}'


def test_strings_that_are_not_text():
    data = np.array([[b"caf\xc3\xa9", b"\xff\x00"]], object)
    found = json.loads(encode({"x_bytes": data, "x": data}, False))["outputs"]
    assert found["x_bytes"] == [[{"b64": "Y2Fmw6k="}, {"b64": "/wA="}]]
    assert found["x"] == [["café", "\ufffd\x00"]]


def test_numbers_that_json_does_not_have():
    answer = encode({"y": np.array([np.nan, np.inf, -np.inf], np.float32)}, True)
    assert answer == b'{"predictions": [NaN, Infinity, -Infinity]}', "as TensorFlow Serving does"


def test_large_outputs_are_written_as_small_ones():
    y = np.random.default_rng(0).normal(size=(30, 5, 300)).astype(np.float32)
    rows = [[[float(str(x)) for x in row] for row in image] for image in y]
    both = {"y": y, "n": np.arange(30)}
    assert encode({"y": y}, True) == json.dumps({"predictions": rows}).encode()
    assert json.loads(encode(both, True)) == {
        "predictions": [{"y": image, "n": n} for n, image in enumerate(rows)]
    }
    assert json.loads(encode(both, False))["outputs"]["y"] == rows


def test_large_outputs_do_not_hold_up_other_threads():
    """The longest pause is a small part of the time; it would be half of it in one piece."""
    y = np.random.default_rng(0).normal(size=(400, 500)).astype(np.float32)

    def longest_pause():
        times = [time.monotonic()]
        with concurrent.futures.ThreadPoolExecutor(1) as other:
            writing = other.submit(encode, {"y": y}, True)
            while not writing.done():
                time.sleep(0.001)
                times.append(time.monotonic())
        return np.diff(times).max() / (times[-1] - times[0])

    # three attempts, as other processes make pauses, too
    assert min(longest_pause() for _ in range(3)) < 0.25


def test_outputs_that_json_has_no_form_for():
    with pytest.raises(RequestError, match="complex64") as error:
        encode({"y": np.ones(1, np.complex64)}, True)
    assert error.value.status_code == 501


@settings(max_examples=50, deadline=None)
@given(st.data(), st.sampled_from(["float16", "float32", "float64", "int32", "uint8", "bool"]))
def test_what_is_written_is_read_back_exactly(data, dtype):
    shape = arrays.array_shapes(min_dims=1, max_dims=3, max_side=4)
    x = data.draw(arrays.arrays(dtype, shape))
    answer = json.loads(encode({"x": x}, False))["outputs"]
    found = decode({"inputs": answer}, {"x": tf.TensorSpec(x.shape, dtype)})["x"]
    np.testing.assert_array_equal(found, x)
