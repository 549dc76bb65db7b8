"""Small SavedModels with the signatures of `zoo.export`, and a server in a thread."""

import asyncio
import contextlib
import gc
import http.client
import re
import socket
import subprocess
import sys
import threading
import time
import tracemalloc

import httpx
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from zoo.server.limits import Limits
from zoo.server.models import Model, Signature
from zoo.server.rest_app import Service
from zoo.server.serve import Server, bound_socket, run

START = (
    "import sys; from zoo.server.serve import serve; "
    "sys.exit(serve(sys.argv[2:], **eval(sys.argv[1])))"
)
COLORS = ("red", "green", "blue")
X, Y = ({name: tf.TensorSpec([None], tf.float32)} for name in "xy")
HEAD = b"POST /v1/models/toy:predict HTTP/1.1\r\nHost: localhost\r\n"


def _function(method, *specs):
    return tf.function(method, input_signature=specs, autograph=False).get_concrete_function()


def _strings(name):
    return tf.TensorSpec([None], tf.string, name)


class HalfPlusThree(tf.Module):
    """The example of TensorFlow Serving's page."""

    def __init__(self):
        super().__init__()
        self.half = tf.Variable(0.5)

    def signatures(self):
        specs = [tf.TensorSpec([None], tf.float32, "x")]
        return {"serving_default": _function(lambda x: {"y": x * self.half + 3.0}, *specs)}


class Shapes(tf.Module):
    """The three inputs of TensorFlow Serving's page, and outputs of every kind."""

    def signatures(self):
        inputs = [
            _strings("tag"),
            tf.TensorSpec([None, 5], tf.float32, "signal"),
            tf.TensorSpec([None, 2, 2], tf.int32, "sensor"),
        ]
        numbers = [
            tf.TensorSpec([None], dtype, dtype)
            for dtype in ("bool", "int8", "uint8", "int64", "float16", "bfloat16", "float64")
        ]
        return {
            "serving_default": _function(self.all, *inputs),
            "numbers": _function(lambda *given: dict(zip("abcdefg", given)), *numbers),
            "raw": _function(lambda data: {"raw_bytes": data, "raw": data}, _strings("data")),
            "scalar": _function(lambda x: {"y": x + 1.0}, tf.TensorSpec([], tf.float32, "x")),
            "log": _function(
                lambda x: {"y": tf.math.log(x)}, tf.TensorSpec([None], "float32", "x")
            ),
            "checked": _function(self.checked, tf.TensorSpec([None], tf.float32, "x")),
            "summed": _function(self.summed, tf.TensorSpec([None], tf.float32, "x")),
            "complex": _function(lambda x: {"y": x}, tf.TensorSpec([None], tf.complex64, "x")),
        }

    def all(self, tag, signal, sensor):
        total = tf.reduce_sum(sensor, axis=(1, 2))
        return {"tag": tf.strings.upper(tag), "mean": tf.reduce_mean(signal, 1), "sum": total}

    def checked(self, x):
        with tf.control_dependencies([tf.debugging.assert_non_negative(x, "x is negative")]):
            return {"root": tf.sqrt(x)}

    def summed(self, x):
        return {"sum": tf.reduce_sum(x)}


class Translator(tf.Module):
    """Shouts. Texts of more than 100 bytes are too long."""

    def signatures(self):
        pair = [_strings("texts"), _strings("translations")]
        return {
            "serving_default": _function(self.translate, _strings("texts")),
            "attention": _function(self.attention, *pair),
        }

    def translate(self, texts):
        error = _too_long(texts)
        translations = tf.stack([tf.strings.upper(texts), tf.strings.upper(texts) + "!"], axis=1)
        scores = -tf.cast(tf.strings.length(translations), tf.float32) / 7.0
        return {
            "translations": tf.where(error[:, None] == "", translations, ""),
            "scores": tf.where(error[:, None] == "", scores, 0.0),
            "error": error,
        }

    def attention(self, texts, translations):
        source = _words(texts)
        target = _words(translations)
        rows = tf.shape(target)[1]
        columns = tf.shape(source)[1]
        weights = tf.linalg.diag(tf.ones([tf.shape(texts)[0], tf.maximum(rows, columns)]))
        return {
            "attention": weights[:, :rows, :columns] * 0.9 + 0.01,
            "source_tokens": source,
            "target_tokens": target,
            "error": tf.zeros_like(texts),
        }


class Generator(tf.Module):
    """Says a text twice, or with the temperature. Texts of more than 100 bytes are too long."""

    def signatures(self):
        numbers = [tf.TensorSpec([None], tf.float32, name) for name in ("temperature", "top_p")]
        drawn = [_strings("texts"), *numbers, tf.TensorSpec([None], tf.int64, "seed")]
        return {
            "serving_default": _function(self.generate, _strings("texts")),
            "sample": _function(self.sample, *drawn),
        }

    def generate(self, texts):
        return self._continued(texts, tf.strings.join([texts, "\n", texts]))

    def sample(self, texts, temperature, top_p, seed):
        return self._continued(texts, tf.strings.join([texts, tf.strings.as_string(temperature)]))

    def _continued(self, texts, first):
        scores = tf.constant([[-0.25, -1.5]]) * tf.ones([tf.size(texts), 1])
        generated = tf.stack([first, texts + "!"], axis=1)
        return {"generated_texts": generated, "scores": scores, "error": _too_long(texts)}


class TextClassifier(tf.Module):
    """Says whether a text is long. Texts of more than 100 bytes are too long."""

    def signatures(self):
        return {"serving_default": _function(self.classify, _strings("texts"))}

    def classify(self, texts):
        share = tf.cast(tf.strings.length(texts), tf.float32)[:, None] / 100.0
        return {
            "labels": tf.tile([["short", "long"]], [tf.size(texts), 1]),
            "probabilities": tf.concat([1.0 - share, share], 1),
            "error": _too_long(texts),
        }


class Classifier(tf.Module):
    """Says which color a PNG file has most of, as seen at 8x8 pixels."""

    def signatures(self):
        return {
            "serving_default": _function(self.classify, _strings("image_bytes")),
            "attention": _function(self.attention, _strings("image_bytes")),
        }

    def classify(self, image_bytes):
        pixels, error = self._read(image_bytes)
        sums = tf.reduce_sum(tf.cast(pixels, tf.float32), axis=(1, 2)) + 1.0
        shares, order = tf.math.top_k(sums / tf.reduce_sum(sums, 1, keepdims=True), 3)
        good = error[:, None] == ""
        return {
            "labels": tf.where(good, tf.gather(COLORS, order), ""),
            "probabilities": tf.where(good, shares, 0.0),
            "error": error,
        }

    def attention(self, image_bytes):
        pixels, error = self._read(image_bytes)
        half = tf.constant([[0.7, 0.1], [0.1, 0.1]])
        weights = tf.tile(half[None], [tf.shape(image_bytes)[0], 1, 1])
        return {"attention": weights, "pixels": pixels, "error": error}

    def _read(self, image_bytes):
        is_png = tf.strings.substr(image_bytes, 0, 8) == b"\x89PNG\r\n\x1a\n"

        def read(args):
            data, good = args
            pixels = tf.cond(
                good,
                lambda: tf.ensure_shape(tf.io.decode_png(data, channels=3), (None, None, 3)),
                lambda: tf.zeros([8, 8, 3], tf.uint8),
            )
            pixels = tf.image.resize(tf.cast(pixels, tf.float32), (8, 8), antialias=True)
            return tf.cast(tf.clip_by_value(tf.round(pixels), 0.0, 255.0), tf.uint8)

        spec = tf.TensorSpec((8, 8, 3), tf.uint8)
        pixels = tf.map_fn(read, (image_bytes, is_png), fn_output_signature=spec)
        return pixels, tf.where(is_png, "", "It is not an image.")


def _too_long(texts):
    return tf.where(tf.strings.length(texts) > 100, "It is too long.", "")


def _words(texts):
    return tf.strings.split(texts).to_tensor("")


def save(module, folder):
    """Writes a module as a SavedModel into `folder`; returns the folder."""
    tf.saved_model.save(module, str(folder), module.signatures())
    return folder


def write_warm_up_requests(folder, *requests):
    """Adds requests, {name: array} each, to a SavedModel; TensorFlow Serving's messages."""
    path = folder / "assets.extra" / "tf_serving_warmup_requests"
    path.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        other = prediction_log_pb2.PredictionLog()  # of a kind that is not served
        other.classify_log.request.model_spec.name = "toy"
        writer.write(other.SerializeToString())
        for inputs in requests:
            log = prediction_log_pb2.PredictionLog()
            for name, value in inputs.items():
                log.predict_log.request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
            writer.write(log.SerializeToString())


def python_model(function=lambda x: {"y": 10 * x}, specs=X, outputs=Y):
    """A `Model` "toy" whose serving_default is a Python function of tensors."""

    def of_arrays(**arrays):
        tensors = {name: tf.constant(array) for name, array in arrays.items()}
        return {name: tensor.numpy() for name, tensor in function(**tensors).items()}

    return Model("toy", 1, {"serving_default": Signature(specs, outputs, of_arrays)}, {})


class Gate:
    """A model that answers 10 x, and none until it is let; it counts its calls."""

    def __init__(self):
        self.calls = []  # the inputs of each
        self.open = threading.Event()
        self.model = python_model(self._call)

    def _call(self, x):
        self.calls.append(x.numpy().tolist())
        assert self.open.wait(120)
        if (x.numpy() < 0).any():
            raise tf.errors.InvalidArgumentError(None, None, "x is negative")
        return {"y": 10 * x}


@contextlib.contextmanager
def running(models, hosts=("*",), origins=(), limits=None, **settings):
    """A server in a thread: yields (its URL, its `Service`, its `Server`).

    `settings` are further arguments of `zoo.server.serve.run`.
    """
    limits = Limits(**{"shutdown_grace": 1, **(limits or {})})
    service = Service(models, limits, hosts, origins)
    server = Server(service)
    listener = bound_socket("127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    work = run(server, service, listener, **settings)
    thread = threading.Thread(target=asyncio.run, args=(work,))
    thread.start()
    try:
        wait_until(lambda: server.started)
        yield url, service, server
    finally:
        server.should_exit = True
        thread.join(30)


@contextlib.contextmanager
def memory_traced():
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        tracemalloc.stop()


def free_port():
    """A port of this machine that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def wait_until(condition, seconds=30.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "It did not come true."
        time.sleep(0.005)


def post(url, request, name="toy", **options):
    """The answer to a predict request."""
    options = {"timeout": 30.0, **options}
    if request is not None:
        options["json"] = request
    return httpx.post(f"{url}/v1/models/{name}:predict", **options)


def connected(url):
    """A socket that is connected with a server."""
    host, port = url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=30)


def head(body_size):
    """What begins a predict request of a body of so many bytes."""
    return HEAD + b"Content-Length: %d\r\n\r\n" % body_size


def answer_on(client):
    """(status, body) of the next answer that a socket gets, however many pieces it comes in."""
    with http.client.HTTPResponse(client) as answer:
        answer.begin()
        return answer.status, answer.read()


def start(folders, **options):
    """A server's process, once it says that it serves; the lines it printed; its URL."""
    process = subprocess.Popen(
        [sys.executable, "-c", START, repr({"port": 0, **options}), *map(str, folders)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    lines = []
    for line in process.stdout:
        lines.append(line.rstrip())
        if line.startswith("Serving at"):
            return process, lines, re.search(r"http://\S+(?=/)", line)[0]
    raise AssertionError(process.communicate()[1])


def end(process):
    """Its exit status and what it said on stderr, warnings of TensorFlow's start aside."""
    _, stderr = process.communicate(timeout=60)
    return process.returncode, stderr
