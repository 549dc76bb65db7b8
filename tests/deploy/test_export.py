"""`zoo.export`: the folder that explains itself, options, and what is refused."""

import json
import math
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf

import zoo
from tests.deploy.small_models import (
    random_images,
    small_classifier,
    small_generator,
    small_text_classifier,
    small_translator,
)
from zoo.__main__ import main
from zoo.data.preprocessing import ImagePreprocessing
from zoo.deploy.readme import readme
from zoo.errors import ExportError, TaskError
from zoo.tasks.classifier import ImageClassifier

pytestmark = pytest.mark.ci


ATTENTION = ("linear", "blockwise")
MODELS = [
    (small_classifier, {"pool": "mean", "num_registers": 2, "norm": "post"}),
    (small_classifier, {"precision": "mixed_bfloat16"}),
    (small_text_classifier, {"pool": "mean", "positions": "relative", "norm": "pre"}),
    (small_text_classifier, {"positions": "rotary", "kind": "word", "pooler": False}),
    (small_text_classifier, {"positions": "sinusoidal", "kind": "character", "max_length": 90}),
    (small_text_classifier, {"precision": "mixed_bfloat16"}),
    (small_text_classifier, {"max_length": 4}),
    *((small_generator, {"attention": kind, "positions": "rotary"}) for kind in ATTENTION),
    (small_generator, {"attention": "linear", "kind": "character", "max_length": 90}),
    (small_generator, {"precision": "mixed_bfloat16", "positions": "relative"}),
    (small_generator, {"tie_weights": True, "kind": "unigram", "max_length": 16}),
    (small_generator, {"max_length": 1}),
]


@pytest.mark.slow
@pytest.mark.xla
@pytest.mark.parametrize("make, settings", MODELS, ids=lambda x: getattr(x, "__name__", str(x)))
def test_every_kind_of_model_is_exported(make, settings, tmp_path):
    """Which compares answers, see test_an_export_that_answers_otherwise_is_not_kept."""
    assert (zoo.export(make(**settings), tmp_path / "1") / "export.json").is_file()


def check_several_labels(folder, classifier, items, signature="serving_default"):
    """All classes are returned, each with its sigmoid, and the folder says so."""
    found = tf.saved_model.load(str(folder)).signatures[signature](tf.constant(items))
    for answer, labels, shares in zip(
        classifier(items, threshold=0), found["labels"], found["probabilities"]
    ):
        assert [name for name, _ in answer] == [label.decode() for label in labels.numpy()]
        np.testing.assert_allclose(shares, [share for _, share in answer], atol=1e-4)
    description = json.loads((folder / "export.json").read_text())
    expected = ("multi_label", len(classifier.class_names))
    assert (description["problem"], description["top_k"]) == expected
    for format in ("saved_model", "onnx", "litert"):
        text = readme({**description, "format": format}, folder)
        assert "probabilities are independent sigmoids" in text


@pytest.mark.slow
def test_several_labels_of_texts(tmp_path):
    classifier = small_text_classifier()
    classifier.problem = "multi_label"
    folder = zoo.export(classifier, tmp_path / "several" / "1")
    check_several_labels(folder, classifier, ["the cat", "12 dogs", ""])


def test_the_folder_of_a_run_says_what_it_is(classifier, digits_run, digits_export):
    description = json.loads((digits_export / "export.json").read_text())
    assert description["kind"] == "classifier" and description["format"] == "saved_model"
    assert description["class_names"] == classifier.class_names and description["top_k"] == 3
    assert description["preprocessing"] == json.loads(
        json.dumps(classifier.preprocessing.to_dict())
    )
    assert description["parameters"] == classifier.model.count_params()
    metrics = json.loads((digits_run[1] / "metrics.json").read_text())
    assert description["source"]["metrics"] == metrics
    assert description["source"]["config"]["config"]["dataset"] == "digits"
    assert description["versions"]["tensorflow"] == tf.__version__
    size = sum(
        path.stat().st_size
        for path in digits_export.rglob("*")
        if path.is_file() and path.name not in ("export.json", "README.md")
    )
    assert description["bytes"] == size
    readme = (digits_export / "README.md").read_text()
    for part in ("tf.saved_model.load", "/v1/models/", "test_accuracy"):
        assert part in readme


@pytest.mark.parametrize("format, needs", [("onnx", "onnxruntime"), ("litert", "ai-edge-litert")])
def test_the_readme_of_every_format(digits_export, format, needs):
    description = json.loads((digits_export / "export.json").read_text())
    for dtype, stored_as in (("float32", ""), ("float16", "16."), ("int8", "to 8 bits.")):
        text = readme({**description, "format": format, "dtype": dtype}, digits_export)
        assert f"It needs only {needs} and numpy, and Pillow" in text and "of 8 x 8 pixels" in text
        assert ("weight matrices" in text) == bool(stored_as) and stored_as in text
        assert "$" not in text


NO_BEAM = "beam_size must be an integer of at least 3"
WRONG = {
    "classifier": [
        ({"format": "pickle"}, "can be exported as saved_model, onnx, litert. Rec"),
        ({"dtype": "float16"}, r"has the dtypes of its model.*zoo.load\(path, dtype="),
        ({"dtype": "float64", "format": "onnx"}, "dtype must be one of .*'float64'"),
        ({"top_k": 0}, "top_k must be an integer from 1 to 10. Received: top_k=0"),
        ({"top_k": 11}, "top_k must be an integer from 1 to 10"),
        ({"top_k": 2.5}, "top_k must be an integer from 1 to 10"),
        ({"beam_size": 2}, "has no option beam_size"),
    ],
    "translations": [
        ({"n_best": 3, "beam_size": 2}, NO_BEAM),
        ({"n_best": "3"}, "n_best must be an integer of at least 1. Received: n_best='3'"),
        ({"n_best": 0}, "n_best must be an integer of at least 1"),
        ({"format": "onnx"}, "A Translator can be exported as saved_model, ctranslate2."),
        ({"length_penalty": math.inf}, "length_penalty must be a finite number"),
        ({"top_k": 2}, "has no option top_k"),
    ],
    "text_classes": [
        ({"format": "ctranslate2"}, "can be exported as saved_model, onnx, litert. Rec"),
        ({"top_k": 4}, "top_k must be an integer from 1 to 3"),
        ({"dynamic_size": True}, "A TextClassifier has no option dynamic_size. Its model is a Enc"),
        ({"beam_size": 2}, "has no option beam_size"),
    ],
    "generations": [
        ({"top_k": 4}, "A TextGenerator has no option top_k"),
        ({"n_best": 3, "beam_size": 2}, NO_BEAM),
        ({"max_new_tokens": 0}, "max_new_tokens must be an integer from 1 to 40"),
        ({"max_new_tokens": 41}, "max_new_tokens must be an integer from 1 to 40"),
    ],
}


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_options_are_named(kind, request, tmp_path):
    exported = request.getfixturevalue(kind)
    original = exported if kind == "classifier" else exported.original
    for options, message in WRONG[kind]:
        with pytest.raises((ExportError, TaskError), match=message):
            zoo.export(original, tmp_path / "1", **options)
    assert not [*tmp_path.iterdir()]


def test_signs_cannot_be_kept_in_exports(tmp_path):
    translator = small_translator()
    translator.keep_signs = True
    for format in ("saved_model", "ctranslate2"):
        with pytest.raises(ExportError, match="Set keep_signs to False"):
            zoo.export(translator, tmp_path / "1", format=format)


def test_a_keras_model_is_refused(classifier, tmp_path):
    with pytest.raises(ExportError, match="a task that zoo.load returns.*ViT"):
        zoo.export(classifier.model, tmp_path / "1")
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("folder", ["/models/vit/1", "/models/vit"])
def test_the_readme_says_where_a_server_finds_the_export(digits_export, folder):
    description = json.loads((digits_export / "export.json").read_text())
    text = readme(description, pathlib.Path(folder))
    assert "--model_name=vit --model_base_path=/models/vit\n" in text
    assert "/v1/models/vit/versions/1:predict" in text
    assert "looks for these files in `/models/vit/1`" in text


def test_a_taken_folder_is_left_alone(classifier, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ExportError, match="contains no export"):
        zoo.export(classifier, tmp_path, overwrite=True)
    with pytest.raises(ExportError, match="is a file"):
        zoo.export(classifier, tmp_path / "notes.txt")
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_folder_that_cannot_be_written_is_named(classifier, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ExportError, match="cannot be written to: Not a directory"):
        zoo.export(classifier, tmp_path / "file" / "vit" / "1")


def test_the_command_line_replaces_an_export_only_on_request(
    digits_run, digits_export, tmp_path, capsys
):
    """By one of a run with several labels."""
    # before the run is read
    assert main(["export", str(tmp_path / "run"), str(tmp_path / "1"), "--dtype", "half"]) == 2
    assert "dtype must be one of" in capsys.readouterr().err
    classifier = zoo.load(digits_run[1])
    classifier.problem = "multi_label"
    classifier.save(tmp_path / "run")
    folder = shutil.copytree(digits_export, tmp_path / "digits" / "1")
    command = ["export", str(tmp_path / "run"), str(folder)]
    assert main(command) == 2
    assert "already contains an export" in capsys.readouterr().err
    assert json.loads((folder / "export.json").read_text())["top_k"] == 3
    assert main([*command, "--overwrite"]) == 0
    printed = capsys.readouterr().out
    assert "classifier, saved_model" in printed and printed.splitlines()[-1] == str(folder)
    assert [path.name for path in folder.parent.iterdir()] == ["1"]
    check_several_labels(folder, classifier, random_images(classifier, 3), "pixels")


@pytest.mark.slow
def test_vit_b_is_hardly_larger_than_its_weights(tmp_path):
    names = [f"class {index}" for index in range(1000)]
    preprocessing = ImagePreprocessing((224, 224), 3, (0.5,) * 3, (0.5,) * 3)
    folder = zoo.export(ImageClassifier(zoo.vit("B/16"), preprocessing, names), tmp_path / "1")
    description = json.loads((folder / "export.json").read_text())
    assert description["bytes"] <= 1.05 * 4 * description["parameters"]
