"""Activations in training steps, which XLA compiles for CPUs, equal those in inference."""

import keras
import numpy as np
import pytest
from keras import ops

from tests.layers.test_attention import gradients, normal, numpy
from zoo.layers import FeedForward, LayerNormalization
from zoo.layers.feed_forward import ACTIVATIONS

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="Others compute it alike."
)


# Compiled code rounds once to half precision, the operations of TensorFlow each time.
@pytest.mark.parametrize(
    "dtype, tolerance",
    [("float64", 1e-12), ("float32", 1e-6), ("mixed_bfloat16", 2**-6), ("mixed_float16", 2**-9)],
)
@pytest.mark.parametrize("activation", [*ACTIVATIONS, "relu"])
def test_training_equals_inference(activation, dtype, tolerance):
    keras.utils.set_random_seed(0)
    layer = FeedForward(6, 8, activation, dtype=dtype)
    layer.build((None, None, 6))
    wide = "float64" if dtype == "float64" else "float32"
    inputs = [normal(3, 5, 6), *(numpy(weight) + 0.1 for weight in layer.weights)]

    def call(training):
        def function(x, *weights):
            x = ops.cast(x, layer.compute_dtype)
            return ops.cast(layer.stateless_call(weights, [], x, training=training)[0], wide)

        return function

    found, expected = (gradients(call(training), inputs) for training in (True, False))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=tolerance * max(np.abs(other).max(), 1))


@pytest.mark.parametrize(
    "kind, shape",
    [
        ("activation", (None, None, 6)),
        ("activation", (2, 5, 6)),
        ("normalization", (None, None, None)),
        ("normalization", (2, 5, 6)),
        ("normalization", (6,)),
    ],
)
def test_xla_compiles_training_steps_only(kind, shape):
    import tensorflow as tf

    layer = FeedForward(6, 8) if kind == "activation" else LayerNormalization()
    layer.build((None, 6))
    x = tf.constant(normal(*(6,) if len(shape) == 1 else (2, 5, 6)))

    def outputs(training):
        @tf.function(input_signature=[tf.TensorSpec(shape)], autograph=False)
        def call(x):
            return layer(x, training=training)

        functions = call.get_concrete_function().graph.as_graph_def().library.function
        assert any(f.attr["_XlaMustCompile"].b for f in functions) == training
        return call(x)

    # float32: sums of a few terms in another order
    np.testing.assert_allclose(outputs(True), outputs(False), atol=1e-6)
