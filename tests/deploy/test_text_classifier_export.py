"""The SavedModel of a text classifier: strings in, the same labels and features out."""

import numpy as np
import pytest
import tensorflow as tf

import zoo
from tests.deploy.small_models import LINES, small_text_classifier
from tests.deploy.test_every_kind import assert_answers

pytestmark = pytest.mark.ci

TEXTS = [*LINES, "", "a", "The cat, the dog. " * 3, "¿Cafe\u0301? 你好", "the cat"]
LONG = "7, " * 60


@pytest.fixture(scope="module")
def classifier(text_classes):
    return text_classes.original


@pytest.fixture(scope="module")
def call(text_classes):
    """Function (texts, signature) -> dict of arrays."""
    loaded = tf.saved_model.load(str(text_classes.folder))

    def call(texts, signature="serving_default"):
        found = loaded.signatures[signature](texts=tf.constant(texts, tf.string))
        return {name: tensor.numpy() for name, tensor in found.items()}

    return call


def test_texts_are_classified_as_by_the_model(classifier, call):
    assert_answers(call(TEXTS), classifier(TEXTS, top_k=2))
    assert_answers(call(TEXTS * 40), classifier(TEXTS, top_k=2) * 40)


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


def test_features_are_the_input_of_the_head(classifier, call):
    found = call([*TEXTS, LONG], "features")
    assert not found["features"][-1].any() and found["error"][-1]
    for text, features in zip(TEXTS, found["features"]):
        tokens = np.asarray(classifier.encode([text]))
        expected = classifier.model.pooled_features(tokens)[0]
        np.testing.assert_allclose(features, expected, atol=1e-5)
