"""Models that were used for inference are freed, with their weights, when nothing refers to them.

TensorFlow never releases a graph with a custom gradient, nor the variables that it captures. Keras
has such gradients in quantized layers, which are avoided in compiled searches only.
"""

import gc
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf

import zoo
from tests.deploy import small_models

pytestmark = pytest.mark.ci


def classify(classifier):
    classifier.probabilities([np.zeros(classifier.model.input_shape, np.uint8)])


def translate(translator):
    translator.n_best(["the dog"], max_length=3, beam_size=2)


def generate(generator):
    generator(["the dog"], max_new_tokens=2)


def is_freed(load, use):
    """Whether a weight of a model that is loaded, used and dropped is freed."""
    model = load()
    use(model)
    weight = weakref.ref(model.model.weights[0].value.handle)
    del model
    keras.backend.clear_session()
    gc.collect()
    return weight() is None


@pytest.mark.xla
@pytest.mark.parametrize(
    "kind, use, dtype, compiled",
    [
        ("classifier", classify, None, None),
        ("translator", translate, None, False),
        ("translator", translate, "int8", True),
        ("generator", generate, None, True),
    ],
)
def test_a_model_is_freed(kind, use, dtype, compiled, tmp_path):
    getattr(small_models, f"small_{kind}")().save(tmp_path)

    def load():
        model = zoo.load(tmp_path, dtype=dtype)
        if compiled is not None:
            model.jit_compile = compiled
        return model

    assert is_freed(load, use)


def test_an_export_is_freed(tmp_path):
    path = zoo.export(small_models.small_classifier(), tmp_path / "1")
    png = tf.io.encode_png(np.zeros((8, 8, 3), np.uint8))[None]
    loaded = tf.saved_model.load(path)
    serve = loaded.signatures["serving_default"]
    serve(image_bytes=png)
    weight = weakref.ref(next(x for x in serve.graph.external_captures if x.dtype == tf.resource))
    del loaded, serve
    gc.collect()
    assert weight() is None
