"""The loop gives the cells and gradients of the parallel scan, in float64 within rounding."""

import numpy as np
import pytest
import tensorflow as tf

from tests.layers.test_attention import normal
from zoo import kernels
from zoo.layers import SSRU
from zoo.layers.ssru import linear_recurrence


def traced(layer, training):
    """Function of x [B, T, E] and a mask: outputs, gradients and gradients of gradients."""

    shapes = ((None, None, 3), (None, None))

    @tf.function(input_signature=[tf.TensorSpec(shape, tf.float64) for shape in shapes])
    def call(x, real):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                outputs = layer(x, mask=real > 0, training=training)
                total = tf.reduce_sum(tf.sin(3.0 * outputs))
            first = inner.gradient(total, [x, *layer.trainable_variables])
            again = tf.reduce_sum(tf.cos(first[0]))
        return [outputs, *first, outer.gradient(again, x)]

    return call


@pytest.mark.parametrize("training", [True, False])
def test_equals_the_scan(training, monkeypatch):
    layer = SSRU(5, dtype="float64")
    layer.build((None, None, 3))
    loop = traced(layer, training)
    scan = traced(layer, training)
    for length in (1, 2, 33):
        x = normal(2, length, 3).astype("float64")
        real = np.ones((2, length))
        real[1, length // 2 :] = 0
        monkeypatch.setattr(kernels, "enabled", True)
        found = loop(x, real)
        monkeypatch.setattr(kernels, "enabled", False)
        for one, other in zip(found, scan(x, real), strict=True):
            np.testing.assert_allclose(one, other, atol=1e-12 * max(np.abs(other).max(), 1))


def test_no_tokens():
    call = tf.function(linear_recurrence, input_signature=[tf.TensorSpec((2, 1, None, 3))] * 2)
    assert call(tf.zeros((2, 1, 0, 3)), tf.zeros((2, 1, 0, 3))).shape == (2, 1, 0, 3)
