"""Layer normalization equals that of Keras; activations in training, those in inference."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from tests.layers.test_attention import gradients, normal, numpy
from zoo.layers import FeedForward, LayerNormalization
from zoo.layers.feed_forward import ACTIVATIONS


def layers(width, **settings):
    """(the zoo's, Keras's) with the same random weights."""
    pair = LayerNormalization(**settings), keras.layers.LayerNormalization(**settings)
    for layer in pair:
        layer.build((None, width))
        for weight, seed in zip(layer.weights, (1, 2)):
            weight.assign(normal(width, seed=seed))
    return pair


# Sums of 1 to 33 terms in another order; half precision also rounds each result.
@pytest.mark.parametrize(
    "shape, dtype, tolerance",
    [
        *((shape, "float32", 1e-5) for shape in ((7,), (2, 5, 16), (2, 3, 4, 1))),
        ((3, 33), "float64", 1e-12),
        ((2, 5, 16), "mixed_bfloat16", 2**-7),
        ((2, 5, 16), "mixed_float16", 2**-9),
    ],
)
def test_equals_that_of_keras(shape, dtype, tolerance):
    x = normal(2, *shape) * 3 + 1
    pair = layers(shape[-1], dtype=dtype, epsilon=1e-3)
    weights = [numpy(weight) for weight in pair[0].weights]

    def trained(layer):
        options = {"training": True} if isinstance(layer, LayerNormalization) else {}

        def call(x, *weights):
            outputs, _ = layer.stateless_call(
                weights, [], ops.cast(x, layer.compute_dtype), **options
            )
            return ops.cast(outputs, "float64" if dtype == "float64" else "float32")

        return call

    found, expected = (
        [numpy(call(x, *weights)), *gradients(call, [x, *weights])] for call in map(trained, pair)
    )
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=tolerance * max(np.abs(other).max(), 1))


def test_gradients_of_gradients():
    """By finite differences: those of Keras's layer treat the mean as constant."""
    layer, _ = layers(5, dtype="float64", epsilon=1e-3)
    x = normal(2, 5).astype("float64")

    @tf.function
    def first(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = tf.reduce_sum(tf.sin(layer(x, training=True)))
        return tf.reduce_sum(tf.cos(tape.gradient(total, x)))

    inputs = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        total = first(inputs)
    found, step = tape.gradient(total, inputs).numpy(), 1e-5
    for index in np.ndindex(x.shape):
        change = np.zeros_like(x)
        change[index] = step
        expected = (first(tf.constant(x + change)) - first(tf.constant(x - change))) / (2 * step)
        np.testing.assert_allclose(found[index], expected, atol=1e-6)


def test_another_width():
    layer = LayerNormalization()
    layer.build((None, 4))
    for width in (1, 5):
        with pytest.raises(ValueError, match="axis -1 of input shape to have value 4"):
            layer(normal(2, width))


# Compiled code rounds once to half precision, the operations of TensorFlow each time.
@pytest.mark.parametrize(
    "activation, dtype, tolerance",
    [
        *((activation, "float32", 1e-6) for activation in (*ACTIVATIONS, "relu")),
        ("gelu", "float64", 1e-12),
        ("gelu", "mixed_bfloat16", 2**-6),
        ("swiglu", "mixed_float16", 2**-9),
    ],
)
def test_activations_in_training_are_those_of_inference(activation, dtype, tolerance):
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
