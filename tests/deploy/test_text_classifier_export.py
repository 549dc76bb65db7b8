"""The SavedModel of a text classifier: strings in, the same labels out, errors one by one."""

import json

import numpy as np
import pytest
import tensorflow as tf

import zoo
from tests.deploy.small_models import LINES, small_text_classifier
from tests.deploy.test_export import follow_readme
from tests.deploy.test_saved_model import answers_alone
from tests.server import toys
from zoo.__main__ import main
from zoo.deploy.errors import ExportError
from zoo.server.loading import load_all
from zoo.tasks.classifier import TextClassifier

pytestmark = pytest.mark.ci

TEXTS = [*LINES, "", "a", "The cat, the dog. " * 3, "¿Cafe\u0301? 你好", "the cat"]
LONG = "7, " * 60


@pytest.fixture(scope="module")
def classifier():
    return small_text_classifier()


@pytest.fixture(scope="module")
def folder(classifier, tmp_path_factory):
    return zoo.export(classifier, tmp_path_factory.mktemp("serving") / "texts" / "1", top_k=2)


@pytest.fixture(scope="module")
def call(folder):
    """Function (texts, signature) -> dict of arrays."""
    loaded = tf.saved_model.load(str(folder))

    def call(texts, signature="serving_default"):
        found = loaded.signatures[signature](texts=tf.constant(texts, tf.string))
        return {name: tensor.numpy() for name, tensor in found.items()}

    return call


def assert_classified(found, expected):
    assert set(found["error"]) <= {b""}
    for labels, shares, answer in zip(
        found["labels"], found["probabilities"], expected, strict=True
    ):
        assert [label.decode() for label in labels] == [name for name, _ in answer]
        # the same operations in a different graph
        np.testing.assert_allclose(shares, [share for _, share in answer], atol=1e-5)


def test_texts_are_classified_as_by_the_model(classifier, call):
    assert_classified(call(TEXTS), classifier(TEXTS, top_k=2))
    assert_classified(call(TEXTS * 40), classifier(TEXTS, top_k=2) * 40)


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"pool": "mean", "positions": "relative", "norm": "pre", "pooler": False},
        {"positions": "rotary", "kind": "word"},
        {"positions": "sinusoidal", "kind": "character", "max_length": 90},
        {"precision": "mixed_bfloat16"},
        {"max_length": 4},
    ],
    ids=str,
)
def test_every_kind_of_model_is_exported(settings, tmp_path):
    classifier = small_text_classifier(**settings)
    folder = zoo.export(classifier, tmp_path / "1")
    texts = ["a", ""] if "max_length" in settings else ["the cat", "12 dogs", ""]
    found = tf.saved_model.load(str(folder)).signatures["serving_default"](tf.constant(texts))
    expected = np.sort(classifier.probabilities(texts))[:, ::-1]
    # bfloat16 has 3 digits, and is rounded elsewhere in another graph
    tolerance = 5e-2 if "precision" in settings else 1e-5
    np.testing.assert_allclose(found["probabilities"], expected, atol=tolerance)


def test_a_text_that_is_too_long_does_not_affect_the_others(classifier, call):
    tokens = len(classifier.tokenizer.encode([LONG])[0]) + 2
    found = call([LONG, "the cat", LONG * 1000])
    assert found["error"][0] == (
        f"The text is too long: it has {tokens} tokens. The maximum is 40 tokens.".encode()
    )
    assert b"bytes" in found["error"][2]
    assert not found["probabilities"][::2].any() and set(found["labels"][::2].flat) == {b""}
    assert_classified(
        {name: values[1:2] for name, values in found.items()}, classifier(["the cat"], top_k=2)
    )
    [longest] = classifier.tokenizer.decode([classifier.tokenizer.encode([LONG])[0][:38]])
    assert_classified(call([longest]), classifier([longest], top_k=2))


def test_bytes_that_are_not_utf8_and_no_texts(classifier, call):
    expected = classifier([b"the \xff cat".decode(errors="replace")], top_k=2)
    assert_classified(call([b"the \xff cat"]), expected)
    assert {len(values) for values in call([]).values()} == {0}


def test_features_are_the_input_of_the_head(classifier, call):
    found = call([*TEXTS, LONG], "features")
    assert not found["features"][-1].any() and found["error"][-1]
    for text, features in zip(TEXTS, found["features"]):
        tokens = np.asarray(classifier.encode([text]))
        expected = classifier.model.pooled_features(tokens)[0]
        np.testing.assert_allclose(features, expected, atol=1e-5)


@pytest.mark.slow
def test_it_needs_tensorflow_alone(classifier, folder, tmp_path):
    [found] = answers_alone([(folder, {"texts": [text.encode() for text in TEXTS]})], tmp_path)
    expected = [name for answer in classifier(TEXTS, top_k=2) for name, _ in answer]
    assert found["labels"] == expected


@pytest.mark.slow
def test_the_folder_says_what_it_is(classifier, folder):
    description = json.loads((folder / "export.json").read_text())
    assert description["kind"] == "text_classifier" and description["top_k"] == 2
    assert description["class_names"] == classifier.class_names
    assert description["max_length"] == 40
    assert description["checked"]["largest_difference"] <= description["checked"]["tolerance"]
    python, show, run = follow_readme(folder)
    [[(name, _), _]] = classifier(["hello world"], top_k=2)
    for text in (python, run):
        assert repr(name.encode())[2:-1] in text
    assert "signature_def['features']" in show


def test_what_cannot_be_exported_is_refused(classifier, tmp_path):
    for settings, message in (
        ({"format": "onnx"}, "as a saved_model only.*format='onnx'"),
        ({"format": "litert", "dtype": "int8"}, "as a saved_model only.*format='litert'"),
        ({"top_k": 4}, "top_k must be an integer from 1 to 3"),
        ({"beam_size": 2}, "has no option beam_size"),
    ):
        with pytest.raises(ExportError, match=message):
            zoo.export(classifier, tmp_path / "1", **settings)
    assert not [*tmp_path.iterdir()]


@pytest.mark.slow
def test_an_export_that_answers_otherwise_is_not_kept(tmp_path, monkeypatch):
    right = TextClassifier.probabilities
    monkeypatch.setattr(TextClassifier, "probabilities", lambda *args: right(*args) * 0.9)
    with pytest.raises(ExportError, match="outputs of the export differ"):
        zoo.export(small_text_classifier(), tmp_path / "texts" / "1")
    assert not [*(tmp_path / "texts").iterdir()]


@pytest.mark.slow
def test_the_server_serves_it(classifier, folder):
    [model] = load_all([folder])
    assert model.kind == "text_classifier" and model.signatures["serving_default"].is_batched
    process, _, url = toys.start([folder])
    try:
        answer = toys.post(url, {"instances": ["the cat", LONG]}, name="texts")
        first, second = answer.json()["predictions"]
        [expected] = classifier(["the cat"], top_k=2)
        assert first["labels"] == [name for name, _ in expected] and first["error"] == ""
        assert "too long" in second["error"]
    finally:
        process.terminate()
        toys.end(process)


@pytest.mark.slow
def test_the_command_line_exports_a_run(classifier, tmp_path, capsys):
    classifier.save(tmp_path / "run")
    assert main(["export", str(tmp_path / "run"), str(tmp_path / "1"), "--top-k", "1"]) == 0
    assert "text_classifier, saved_model" in capsys.readouterr().out
