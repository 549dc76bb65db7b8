"""What ONNX files say of themselves, and what cannot be written; their answers: test_formats.py."""

import json
import sys

import numpy as np
import onnx
import onnxruntime
import pytest

import zoo
from tests.deploy.small_models import small_classifier
from zoo.deploy import checks, onnx_format
from zoo.deploy.errors import ExportError
from zoo.errors import UserError

pytestmark = pytest.mark.ci


def test_a_classifier_says_what_it_is(tmp_path):
    classifier = small_classifier()
    described = onnx_format.write(classifier, tmp_path)["signatures"]["model.onnx"]
    model = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    for side, tensors in (("inputs", model.get_inputs()), ("outputs", model.get_outputs())):
        assert {t.name: t.shape for t in tensors} == {
            n: of["shape"] for n, of in described[side].items()
        }
    assert [(i.name, i.type, i.shape) for i in model.get_inputs()] == [
        ("pixels", "tensor(uint8)", ["B", *classifier.model.input_shape])
    ]
    labels = json.loads(model.get_modelmeta().custom_metadata_map["labels"])
    assert labels == classifier.class_names
    assert {node.domain for node in onnx.load(tmp_path / "model.onnx").graph.node} == {""}


def test_layer_normalization_is_one_operation(tmp_path):
    """Of ONNX Runtime, which finds it by its parts."""
    zoo.export(small_classifier(), tmp_path / "1", format="onnx")
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    onnxruntime.InferenceSession(tmp_path / "1" / "model.onnx", options)
    operations = [node.op_type for node in onnx.load(tmp_path / "optimized.onnx").graph.node]
    assert operations.count("LayerNormalization") == 2 * 2 + 1  # of two blocks and after them


def test_wrong_answers_are_noticed():
    classifier = small_classifier()

    def answer(pixels):
        return classifier.probabilities(list(pixels))

    def check(answer, dtype="float32"):
        def run(pixels):
            return {"probabilities": answer(pixels)}

        return checks.check_classes(classifier, run, "it", dtype)

    assert check(answer)["largest_difference"] < 1e-6
    check(lambda pixels: answer(pixels) + 2e-4, dtype="int8")
    for wrong in (
        lambda pixels: answer(pixels) + 2e-4,
        lambda pixels: answer(pixels) * np.nan,
        lambda pixels: answer(pixels[::-1]),
    ):
        with pytest.raises(ExportError, match="it: the outputs of the export differ"):
            check(wrong)
    with pytest.raises(ExportError, match="it: the outputs of the export differ"):
        check(lambda pixels: answer(pixels)[:, ::-1], dtype="int8")


def test_what_cannot_be_exported_is_said(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(onnx_format, "_LARGEST", 1000)
        with pytest.raises(ExportError, match="too large for ONNX"):
            onnx_format.write(small_classifier(), tmp_path)
    monkeypatch.setitem(sys.modules, "tf2onnx", None)
    with pytest.raises(UserError, match="package tf2onnx is not installed"):
        onnx_format.write(small_classifier(), tmp_path)
