"""ONNX and LiteRT files answer as the zoo does, of every kind of model, also in fewer bits."""

import functools

import keras
import numpy as np
import onnxruntime
import pytest
from ai_edge_litert.interpreter import Interpreter

import zoo
from tests.deploy.small_models import random_images, small_classifier, small_translator
from zoo.deploy import litert_format, onnx_format
from zoo.text import BOS_ID

pytestmark = pytest.mark.ci

# Sums of a few dozen float32 numbers of the order of 1 to 10, in another order.
TOLERANCE = {"rtol": 1e-4, "atol": 1e-4}
slow = functools.partial(pytest.param, marks=pytest.mark.slow)
formats = pytest.mark.parametrize("format", [onnx_format, litert_format], ids=["onnx", "litert"])


def run_session(session, **inputs):
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs)))


def functions(format, folder):
    """{name: function (**arrays) -> dict of arrays} of the files that a format has written."""
    if format is onnx_format:
        sessions = {path.stem: onnxruntime.InferenceSession(path) for path in folder.glob("*.onnx")}
        return {name: functools.partial(run_session, run) for name, run in sessions.items()}
    interpreter = Interpreter(model_path=str(folder / "model.tflite"))
    names = {"serving_default": "model", "encode": "encoder", "decode": "decoder"}
    signatures = interpreter.get_signature_list()
    return {names[name]: interpreter.get_signature_runner(name) for name in signatures}


@formats
@pytest.mark.parametrize(
    "options",
    [
        {"num_registers": 2, "layer_scale": 0.3},
        slow({"pool": "mean", "norm": "post", "image": (8, 8, 1), "num_layers": 1}),
        slow({"make": zoo.resnet}),
        slow({"attention": "linear", "positions": "rotary"}),
        {"attention": "blockwise", "positions": "relative", "image": (24, 24, 3), "patch_size": 1},
    ],
)
def test_a_classifier(format, options, tmp_path):
    classifier = small_classifier(**options)
    report = format.write(classifier, tmp_path)
    assert report["checked"]["largest_difference"] <= report["checked"]["tolerance"]
    model = functions(format, tmp_path)["model"]
    for count in (1, 7):
        images = random_images(classifier, count)
        found = model(pixels=images)["probabilities"]
        np.testing.assert_allclose(found, classifier.probabilities(list(images)), **TOLERANCE)
    labels = (tmp_path / "labels.txt").read_text("utf-8").splitlines()
    assert labels[1:3] == classifier.class_names[1:3] and len(labels) == 4


@formats
@pytest.mark.parametrize("precision", ["mixed_bfloat16", slow("mixed_float16")])
def test_mixed_precision_is_exported_in_float32(format, precision, tmp_path):
    classifier = small_classifier(precision, num_layers=1)
    format.write(classifier, tmp_path)
    images = random_images(classifier, 5)
    found = functions(format, tmp_path)["model"](pixels=images)["probabilities"]
    assert found.dtype == np.float32
    exact = small_classifier(num_layers=1)
    exact.model.set_weights(classifier.model.get_weights())
    np.testing.assert_allclose(found, exact.probabilities(list(images)), **TOLERANCE)


TRANSLATORS = [
    {"positions": "sinusoidal", "norm": "post", "shared": "target", "activation": "relu"},
    {"positions": "learned", "shared": "all", "activation": "gelu", "num_decoder_layers": 2},
    {"positions": "relative", "shared": "none", "activation": "silu"},
    {"positions": "rotary", "norm": "pre"},
    {"precision": "mixed_bfloat16"},
]
FIRST = [(onnx_format, TRANSLATORS[0]), (litert_format, TRANSLATORS[1])]
EVERY = [(format, options) for format, _ in FIRST for options in TRANSLATORS]


@pytest.mark.parametrize(
    "format, options", FIRST + [slow(*case) for case in EVERY if case not in FIRST]
)
def test_steps_equal_the_whole(format, options, tmp_path):
    """Target tokens one by one, others in each hypothesis, in a buffer larger than needed."""
    options = {"num_layers": 1, **options}
    translator, beams, size = small_translator(**options), 2, 9
    batch = 2 if format is onnx_format else 1
    format.write(translator, tmp_path, beam_size=beams)
    files = functions(format, tmp_path)
    exact = small_translator(**{**options, "precision": "float32"}).model
    exact.set_weights(translator.model.get_weights())
    random, vocab_size = np.random.default_rng(5), translator.source_tokenizer.vocab_size
    for length in (7, 3):
        source = random.integers(3, vocab_size, (batch, length), np.int32)
        source[1:, 2:] = 0
        target = random.integers(3, vocab_size, (batch, beams, 6), np.int32)
        target[..., 0] = BOS_ID
        whole = {"source": np.repeat(source, beams, axis=0), "target": target.reshape(-1, 6)}
        expected = np.reshape(keras.ops.log_softmax(exact(whole)), (*target.shape, -1))
        memory = files["encoder"](source=source)
        state = {"paths": np.zeros((batch, beams, size), np.int32)}
        for name in memory.keys() - {"memory_mask"}:
            name = name.replace("memory", "target")
            state[name] = np.zeros((batch, 2, size * beams, 8), np.float32)
        for position in range(6):
            step = {"tokens": target[..., position], "position": np.array(position, np.int32)}
            found = files["decoder"](**step, **state, **memory)
            np.testing.assert_allclose(found["log_probs"], expected[:, :, position], **TOLERANCE)
            state = {name: found[f"next_{name}"] for name in state}


# The largest size, of that in float32, and the largest mean shifted probability.
LOW_PRECISION = {"float16": (0.65, 5e-3), "int8": (0.45, 0.1)}


@formats
@pytest.mark.parametrize("dtype", LOW_PRECISION)
@pytest.mark.parametrize("make", [small_classifier, small_translator])
def test_low_precision(format, make, dtype, tmp_path):
    """Smaller by far, and a little different."""
    original = make(embed_dim=64, ff_dim=256, num_layers=1)
    largest, shifted = LOW_PRECISION[dtype]
    checked = format.write(original, tmp_path, dtype)["checked"]
    assert 1e-6 < checked["mean_shifted_probability"] < shifted
    files = [*tmp_path.glob("*.onnx"), *tmp_path.glob("*.tflite")]
    size = sum(file.stat().st_size for file in files)
    assert size < largest * 4 * original.model.count_params()
