"""ONNX and LiteRT files answer as the zoo does, also in fewer bits."""

import functools

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

from tests.deploy.small_models import (
    LINES,
    random_images,
    small_classifier,
    small_text_classifier,
)
from zoo.deploy import litert_format, onnx_format

pytestmark = pytest.mark.ci

# Sums of a few dozen float32 numbers of the order of 1 to 10, in another order.
TOLERANCE = {"rtol": 1e-4, "atol": 1e-4}
slow = functools.partial(pytest.param, marks=pytest.mark.slow)
formats = pytest.mark.parametrize("format", [onnx_format, litert_format], ids=["onnx", "litert"])


def model_of(format, folder):
    """Function (pixels) -> dict of arrays, of the file that a format has written."""
    if format is onnx_format:
        return onnx_format.runner(folder / "model.onnx")
    return Interpreter(model_path=str(folder / "model.tflite")).get_signature_runner()


@formats
@pytest.mark.parametrize(
    "options",
    [
        {"num_registers": 2, "layer_scale": 0.3},
        slow({"pool": "mean", "norm": "post", "image": (8, 8, 1), "num_layers": 1}),
        slow({"attention": "linear", "positions": "rotary"}),
        {"attention": "blockwise", "positions": "relative", "image": (24, 24, 3), "patch_size": 1},
    ],
)
def test_a_classifier(format, options, tmp_path):
    classifier = small_classifier(**options)
    report = format.write(classifier, tmp_path)
    assert report["checked"]["largest_difference"] <= report["checked"]["tolerance"]
    model = model_of(format, tmp_path)
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
    found = model_of(format, tmp_path)(pixels=images)["probabilities"]
    assert found.dtype == np.float32
    exact = small_classifier(num_layers=1)
    exact.model.set_weights(classifier.model.get_weights())
    np.testing.assert_allclose(found, exact.probabilities(list(images)), **TOLERANCE)


@formats
def test_a_text_classifier(format, tmp_path):
    classifier = small_text_classifier()
    report = format.write(classifier, tmp_path)
    assert report["checked"]["largest_difference"] <= report["checked"]["tolerance"]
    model = model_of(format, tmp_path)
    for text in ("The cat sat.", "", LINES[1][:30]):
        tokens = np.array(classifier.encode([text]), np.int32)
        found = model(tokens=tokens)["probabilities"]
        np.testing.assert_allclose(found, classifier.probabilities([text]), **TOLERANCE)
    assert (tmp_path / "text.spm").read_bytes() == classifier.tokenizer.model


# The largest size, of that in float32, and the largest mean shifted probability.
LOW_PRECISION = {"float16": (0.65, 5e-3), "int8": (0.45, 0.1)}


@formats
@pytest.mark.parametrize("dtype", LOW_PRECISION)
def test_low_precision(format, dtype, tmp_path):
    """Smaller by far, and a little different."""
    original = small_classifier(embed_dim=64, ff_dim=256, num_layers=1)
    largest, shifted = LOW_PRECISION[dtype]
    checked = format.write(original, tmp_path, dtype)["checked"]
    assert 1e-6 < checked["mean_shifted_probability"] < shifted
    files = [*tmp_path.glob("*.onnx"), *tmp_path.glob("*.tflite")]
    size = sum(file.stat().st_size for file in files)
    assert size < largest * 4 * original.model.count_params()
