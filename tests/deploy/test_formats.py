"""ONNX and LiteRT files answer as the zoo does, also in fewer bits, and say what they are."""

import functools
import json
import re
import sys

import keras
import numpy as np
import onnx
import onnxruntime
import pytest
import tensorflow as tf
import tokenizers
from ai_edge_litert.interpreter import Interpreter
from PIL import Image

import zoo
from tests.deploy.small_models import LINES, random_images, small_classifier, small_text_classifier
from tests.text.library import wordpiece
from zoo.data.preprocessing import ImagePreprocessing
from zoo.deploy import checks, litert_format, onnx_format
from zoo.deploy.plain_graphs import write_data
from zoo.deploy.readme import readme
from zoo.errors import ExportError, UserError
from zoo.tasks.classifier import PROBLEMS, ImageClassifier, TextClassifier

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


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """{format: (export.json, folder)} of one classifier, which comes first."""
    classifier, found = small_classifier(num_registers=2, layer_scale=0.3), {}
    for name, format in (("onnx", onnx_format), ("litert", litert_format)):
        folder = zoo.export(classifier, tmp_path_factory.mktemp("written") / "1", format=name)
        found[format] = json.loads((folder / "export.json").read_text("utf-8")), folder
    return classifier, found


@formats
def test_a_classifier(format, written):
    classifier, found = written
    report, folder = found[format]
    assert report["checked"]["largest_difference"] <= report["checked"]["tolerance"]
    images = random_images(classifier, 7)
    found = model_of(format, folder)(pixels=images)["probabilities"]
    np.testing.assert_allclose(found, classifier.probabilities(list(images)), **TOLERANCE)
    labels = (folder / "labels.txt").read_text("utf-8").splitlines()
    assert labels[1:3] == classifier.class_names[1:3] and len(labels) == 4


@formats
@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"pool": "mean", "norm": "post", "image": (8, 8, 1), "num_layers": 1},
        {"attention": "linear", "positions": "rotary"},
        {"attention": "blockwise", "positions": "relative", "image": (24, 24, 3), "patch_size": 1},
    ],
)
def test_classifiers_with_other_layers(format, options, tmp_path):
    """Outputs are compared when they are written, see test_wrong_answers_are_noticed."""
    assert "checked" in format.write(small_classifier(**options), tmp_path)


@formats
def test_a_text_classifier(format, tmp_path):
    """With several labels; single labels are computed as for images."""
    classifier = small_text_classifier(num_layers=1)
    classifier.problem = "multi_label"
    report = format.write(classifier, tmp_path)
    assert report["checked"]["largest_difference"] <= report["checked"]["tolerance"]
    model = model_of(format, tmp_path)
    for text in ("The cat sat.", "", LINES[1][:30]):
        tokens = np.array(classifier.encode([text]), np.int32)
        found = model(tokens=tokens)["probabilities"]
        np.testing.assert_allclose(found, classifier.probabilities([text]), **TOLERANCE)
    assert (tmp_path / "text.spm").read_bytes() == classifier.tokenizer.model


def test_what_the_tokenizer_of_bert_does(tmp_path):
    classifier = object.__new__(TextClassifier)
    classifier.tokenizer = wordpiece({"[UNK]": 0, "[PAD]": 1, "the": 2}, ["[PAD]"])
    classifier.class_names = ["ant"]
    write_data(classifier, tmp_path)
    library = tokenizers.Tokenizer.from_file(str(tmp_path / "text.tokenizer.json"))
    assert library.encode("THE a").ids == [2, 0]


def code_of(text):
    """The Python code of a README."""
    [code] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    return code


@formats
def test_the_readme_classifies_an_image_file(format, written, monkeypatch, capsys):
    """As the zoo does, with the packages that it names alone."""
    classifier, found = written
    folder, library = found[format][1], {onnx_format: "onnxruntime"}
    code = code_of((folder / "README.md").read_text("utf-8"))
    imported = {*re.findall(r"^(?:import|from) (\w+)", code, re.MULTILINE)}
    assert imported == {"numpy", "PIL", library.get(format, "ai_edge_litert")}
    monkeypatch.chdir(folder)
    Image.fromarray(random_images(classifier, 1)[0]).save("image.jpg", "PNG")  # is lossless
    exec(code, {})
    found = [line.rpartition(" ") for line in capsys.readouterr().out.splitlines()]
    [expected] = classifier([folder / "image.jpg"], top_k=4)
    assert [label for label, _, _ in found] == [label.replace("\n", " ") for label, _ in expected]
    shares = [[float(share) for *_, share in found], [share for _, share in expected]]
    np.testing.assert_allclose(*shares, **TOLERANCE)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size, mode", [((30, 20), "RGB"), ((5, 7), "RGBA"), ((40, 13), "L")])
@pytest.mark.parametrize(
    "resizing", [(None, "bilinear"), (None, "bicubic"), (14, "bicubic"), ((9, 21), "bilinear")]
)
def test_the_readme_resizes_as_the_zoo(
    written, tmp_path, monkeypatch, size, mode, channels, resizing
):
    """Pillow rounds bilinear values between its passes; gray of color is rounded otherwise."""
    preprocessing = ImagePreprocessing((8, 12), channels, (0.5,), (0.5,), *resizing)
    description, _ = written[1][onnx_format]
    text = readme({**description, "preprocessing": preprocessing.to_dict()}, tmp_path)
    monkeypatch.chdir(tmp_path)
    pixels = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
    Image.fromarray(pixels).convert(mode).save("image.jpg", "PNG")
    names = {}
    exec(code_of(text).partition("\nmodel =")[0], names)
    [found], expected = names["pixels"].astype(int), preprocessing.read("image.jpg").astype(int)
    assert found.shape == expected.shape and names["pixels"].dtype == np.uint8
    # Bicubic values beyond 0..255 are clipped in each color, or in gray.
    in_gray = channels == 1 and mode != "L" and resizing[1] == "bicubic"
    assert np.abs(found - expected).max() <= (20 if in_gray else 1)


# The largest size, of that in float32, and the largest mean shifted probability.
LOW_PRECISION = {"float16": (0.65, 5e-3), "int8": (0.45, 0.1)}


@formats
@pytest.mark.parametrize("dtype", [slow("float16"), "int8"])
def test_low_precision(format, dtype, tmp_path):
    """Smaller by far, and a little different."""
    original = small_classifier(embed_dim=64, ff_dim=256, num_layers=1)
    largest, shifted = LOW_PRECISION[dtype]
    checked = format.write(original, tmp_path, dtype)["checked"]
    assert 1e-6 < checked["mean_shifted_probability"] < shifted
    files = [*tmp_path.glob("*.onnx"), *tmp_path.glob("*.tflite")]
    size = sum(file.stat().st_size for file in files)
    assert size < largest * 4 * original.model.count_params()


def test_onnx_says_what_it_is(written):
    classifier, found = written
    report, folder = found[onnx_format]
    described = report["signatures"]["model.onnx"]
    model = onnxruntime.InferenceSession(folder / "model.onnx")
    for side, tensors in (("inputs", model.get_inputs()), ("outputs", model.get_outputs())):
        assert {t.name: t.shape for t in tensors} == {
            n: of["shape"] for n, of in described[side].items()
        }
    assert [(i.name, i.type, i.shape) for i in model.get_inputs()] == [
        ("pixels", "tensor(uint8)", ["B", *classifier.model.input_shape])
    ]
    assert {node.domain for node in onnx.load(folder / "model.onnx").graph.node} == {""}


def test_layer_normalization_is_one_operation(written, tmp_path):
    """Of ONNX Runtime, which finds it by its parts."""
    _, found = written
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    onnxruntime.InferenceSession(found[onnx_format][1] / "model.onnx", options)
    operations = [node.op_type for node in onnx.load(tmp_path / "optimized.onnx").graph.node]
    assert operations.count("LayerNormalization") == 2 * 2 + 1  # of two blocks and after them


@pytest.mark.parametrize("problem", PROBLEMS)
def test_wrong_answers_are_noticed(problem):
    classifier = small_classifier()
    classifier.problem = problem

    def answer(pixels):
        return classifier.probabilities(list(pixels))

    def check(answer, dtype="float32"):
        def run(pixels):
            return {"probabilities": answer(pixels)}

        return checks.check_classes(classifier, run, "numpy", dtype)

    assert check(answer)["largest_difference"] < 1e-6
    check(lambda pixels: answer(pixels) + 2e-4, dtype="int8")
    for wrong in (
        lambda pixels: answer(pixels) + 2e-4,
        lambda pixels: answer(pixels) * np.nan,
        lambda pixels: answer(pixels[::-1]),
    ):
        with pytest.raises(ExportError, match="numpy .*: the outputs of the export differ"):
            check(wrong)
    others = {
        "single_label": lambda pixels: answer(pixels)[:, ::-1],
        "multi_label": lambda pixels: 1 - answer(pixels),
    }
    with pytest.raises(ExportError, match="numpy .*: the outputs of the export differ"):
        check(others[problem], dtype="int8")


@formats
def test_a_convolutional_network_of_keras(format, tmp_path):
    """Its exact GELU uses TensorFlow's Erfc, which ONNX does not have."""
    images = keras.Input((8, 8, 3))
    x = keras.layers.Conv2D(4, 3, activation="gelu")(images)
    x = keras.layers.BatchNormalization()(keras.layers.MaxPooling2D()(x))
    model = keras.Model(images, keras.layers.Dense(2)(keras.layers.GlobalAveragePooling2D()(x)))
    classifier = ImageClassifier(model, ImagePreprocessing((8, 8), 3), ["a", "b"])
    name = "onnx" if format is onnx_format else "litert"
    folder = zoo.export(classifier, tmp_path / "1", format=name)
    pixels = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 3), "uint8")
    found = model_of(format, folder)(pixels=pixels)["probabilities"]
    np.testing.assert_allclose(found, classifier.probabilities(list(pixels)), **TOLERANCE)


def test_what_onnx_cannot_hold_is_said(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(onnx_format, "_LARGEST", 1000)
        with pytest.raises(ExportError, match="too large for ONNX"):
            onnx_format.write(small_classifier(), tmp_path)
    monkeypatch.setitem(sys.modules, "tf2onnx", None)
    with pytest.raises(UserError, match="package tf2onnx is not installed"):
        onnx_format.write(small_classifier(), tmp_path)


def test_litert_needs_no_other_operations(written):
    _, found = written
    interpreter = Interpreter(model_path=str(found[litert_format][1] / "model.tflite"))
    # What the converter has no operation for it makes "Flex" or custom ones.
    operations = {operation["op_name"] for operation in interpreter._get_ops_details()}
    assert not any("flex" in name.lower() or "custom" in name.lower() for name in operations)
    inputs = interpreter.get_signature_runner("serving_default").get_input_details()
    assert inputs["pixels"]["dtype"] == np.uint8


def test_what_litert_cannot_express_is_said(tmp_path):
    """Preprocessing of another kind, in operations that LiteRT has not."""
    classifier = small_classifier(num_layers=1)
    preprocessing = classifier.preprocessing

    class Digamma(type(preprocessing)):
        def normalize(self, pixels):
            return tf.math.digamma(1.0 + preprocessing.normalize(pixels) ** 2)

    classifier.preprocessing = Digamma(**vars(preprocessing))
    with pytest.raises(ExportError, match="LiteRT cannot convert this model"):
        litert_format.write(classifier, tmp_path)
