"""Exports with `dynamic_size` classify pixels of any size as the model does."""

import functools
import json

import numpy as np
import onnxruntime
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter

import zoo
from tests.deploy.small_models import small_classifier
from zoo.__main__ import main
from zoo.deploy import onnx_format
from zoo.errors import ExportError

pytestmark = pytest.mark.ci

SIZES = [(8, 12), (12, 8), (4, 4), (16, 24), (4, 44)]
WRONG_SIZES = [(9, 12), (8, 14), (3, 3)]
# The same float32 operations in another graph; ONNX Runtime adds in another order.
TOLERANCE = {"rtol": 1e-4, "atol": 1e-4}


def pixels_of(size, count=3):
    return np.random.default_rng(0).integers(0, 256, (count, *size, 3), dtype=np.uint8)


def probabilities(classifier, pixels):
    """Those of the model, for pixels that are not resized."""
    return classifier.compute_outputs(classifier.preprocessing.normalize(pixels)).numpy()


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """(classifier, folder of its SavedModel, the SavedModel)."""
    folder = tmp_path_factory.mktemp("dynamic")
    small = small_classifier(positions="sinusoidal", num_registers=1, num_layers=1)
    small.save(folder / "run")
    export = folder / "vit" / "1"
    assert main(["export", str(folder / "run"), str(export), "--dynamic-size", "--top-k", "4"]) == 0
    return zoo.load(folder / "run"), export, tf.saved_model.load(str(export))


def test_a_saved_model_takes_pixels_of_any_size(served):
    """And resizes encoded images."""
    classifier, _, loaded = served
    for size in SIZES:
        pixels = pixels_of(size)
        found, expected = loaded.signatures["pixels"](tf.constant(pixels)), []
        for row, labels in zip(probabilities(classifier, pixels), found["labels"].numpy()):
            order = np.argsort(-row)
            names = [classifier.class_names[index] for index in order]
            assert [label.decode() for label in labels] == names
            expected.append(row[order])
        np.testing.assert_allclose(found["probabilities"], expected, **TOLERANCE)
    files = tf.constant([tf.io.encode_png(image).numpy() for image in pixels])
    found = loaded.signatures["serving_default"](files)["probabilities"]
    expected = np.sort(classifier.probabilities(list(pixels)))[:, ::-1]
    np.testing.assert_allclose(found, expected, **TOLERANCE)


def test_a_saved_model_names_the_patch_size(served):
    _, export, loaded = served
    for size in [*WRONG_SIZES, (0, 4)]:
        with pytest.raises(tf.errors.InvalidArgumentError, match="must be multiples of 4, not 0"):
            loaded.signatures["pixels"](tf.constant(pixels_of(size)))
    assert not len(loaded.signatures["pixels"](tf.constant(pixels_of((4, 8), 0)))["labels"])
    description = json.loads((export / "export.json").read_text())
    assert description["dynamic_size"] is True and description["patch_size"] == 4
    assert "dynamic_size: `pixels` are not resized" in (export / "README.md").read_text()


slow = functools.partial(pytest.param, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    "format, dtype, settings",
    [
        ("onnx", "float32", {"interpolation": "bilinear", "num_layers": 1}),
        slow("onnx", "int8", {"positions": "rotary", "pool": "mean"}),
        slow("onnx", "float32", {"positions": "sinusoidal"}),
        slow("onnx", "float32", {"positions": "relative"}),
        slow("litert", "float32", {"num_layers": 1}),
    ],
)
def test_files_take_pixels_of_any_size(format, dtype, settings, tmp_path):
    """The export compares outputs for another size."""
    classifier, options = small_classifier(**settings), {"format": format, "dtype": dtype}
    folder = zoo.export(classifier, tmp_path / "1", dynamic_size=True, **options)
    if format == "onnx":
        session = onnxruntime.InferenceSession(folder / "model.onnx")
        assert session.get_inputs()[0].shape == ["B", "H", "W", 3]
        run, message = onnx_format.runner(folder / "model.onnx"), "Reshape"
    else:
        run = Interpreter(str(folder / "model.tflite")).get_signature_runner()
        message = "elements"
    for size in WRONG_SIZES:
        with pytest.raises(Exception, match=message):
            run(pixels=pixels_of(size))


def test_litert_names_relative_positions(tmp_path):
    classifier = small_classifier(positions="relative", num_layers=1)
    with pytest.raises(ExportError, match="cannot convert .* as saved_model or onnx"):
        zoo.export(classifier, tmp_path / "1", format="litert", dynamic_size=True)
