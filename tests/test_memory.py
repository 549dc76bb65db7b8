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


USES = {
    "classifier": lambda it: it.probabilities([np.zeros(it.model.input_shape, np.uint8)]),
    "translator": lambda it: it.n_best(["the dog"], max_length=3, beam_size=2),
    "generator": lambda it: it(["the dog"], max_new_tokens=2),
}


@pytest.mark.xla
@pytest.mark.parametrize(
    "kind, dtype, compiled",
    [
        ("classifier", None, None),
        ("translator", None, False),
        ("translator", "int8", True),
        pytest.param("generator", None, True, marks=pytest.mark.slow),
    ],
)
def test_a_model_is_freed(kind, dtype, compiled, tmp_path):
    getattr(small_models, f"small_{kind}")().save(tmp_path)
    loaded = zoo.load(tmp_path, dtype=dtype)
    loaded.jit_compile = compiled
    USES[kind](loaded)
    weight = weakref.ref(loaded.model.weights[0].value.handle)
    del loaded
    keras.backend.clear_session()
    gc.collect()
    assert weight() is None


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
