"""Dropout in training, which TensorFlow computes on CPUs by its own random numbers."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from zoo import kernels
from zoo.kernels.dropout import random_bits
from zoo.layers import Dropout


def trained(layer, x, jit_compile=False, signature=None):
    """Output and gradient of the sum, in a graph."""

    @tf.function(jit_compile=jit_compile, input_signature=signature)
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, training=True)
        return y, tape.gradient(y, x)

    return [ops.convert_to_numpy(tensor).astype("float64") for tensor in step(x)]


@pytest.mark.parametrize(
    "noise_shape, jit_compile, dtype",
    [
        *((None, False, dtype) for dtype in ("float64", "float32", "float16", "bfloat16")),
        ((None, 1, 1), True, "float32"),
        ((None, 3, None), False, "float32"),
    ],
)
def test_numbers_are_dropped_or_scaled(dtype, noise_shape, jit_compile):
    """Output and gradient have one mask, of the right shape; the mean stays the same."""
    x = tf.ones((400, 3, 20), dtype)
    layer = Dropout(0.25, noise_shape, seed=3, dtype=dtype)
    y, gradient = trained(layer, x, jit_compile)
    scaled = float(tf.cast(tf.constant(1 / 0.75, "float64"), dtype))
    assert set(np.unique(y)) == {0.0, scaled}
    np.testing.assert_array_equal(gradient, y)
    for axis, length in enumerate(noise_shape or ()):
        if length == 1:
            assert (y == y.take([0], axis)).all()
    independent = y.size if noise_shape != (None, 1, 1) else 400
    # five standard deviations
    assert abs((y == 0).mean() - 0.25) < 5 * np.sqrt(0.25 * 0.75 / independent)


def test_the_seed_decides_the_masks():
    x = tf.ones((64, 100))
    first, again, other = (Dropout(0.5, seed=seed) for seed in (3, 3, 4))
    masks = [trained(layer, x)[0] > 0 for layer in (first, first, again, again, other)]
    np.testing.assert_array_equal(masks[:2], masks[2:4])
    for a, b in ((0, 1), (0, 4), (1, 4)):  # of 6,400; five standard deviations are 200
        assert abs((masks[a] == masks[b]).sum() - 3200) < 200


def test_state_is_that_of_keras():
    """Checkpoints, and the seeds of replicas, contain the state of Keras's layer."""
    ours, keras_s = Dropout(0.5, seed=3), keras.layers.Dropout(0.5, seed=3)
    for layer in (ours, keras_s):
        trained(layer, tf.ones((2, 3)))
    [a], [b] = ours.variables, keras_s.variables
    assert (a.path.split("/", 1)[1], a.dtype) == (b.path.split("/", 1)[1], b.dtype)
    np.testing.assert_array_equal(ops.convert_to_numpy(a), ops.convert_to_numpy(b))


def test_lengths_may_be_unknown_and_batches_empty():
    layer, signature = Dropout(0.5, seed=3), [tf.TensorSpec((None, None, 5))]
    for rows in (0, 1, 7):
        y, gradient = trained(layer, tf.ones((rows, 2, 5)), signature=signature)
        assert y.shape == (rows, 2, 5)
        np.testing.assert_array_equal(gradient, y)


def test_infinity_and_nan_are_dropped():
    y, _ = trained(Dropout(0.5, seed=3), tf.constant([np.inf, np.nan] * 50))
    assert 20 < (y == 0).sum() < 80
    assert not np.isfinite(y[y != 0]).any()


def test_all_may_be_dropped():
    layer = Dropout(1.0)
    x = ops.ones((4, 5))
    np.testing.assert_array_equal(ops.convert_to_numpy(layer(x, training=True)), 0.0)


@pytest.mark.parametrize("key", [1, 2**40 + 12345, 0xC58EFD154CE32F6D])
def test_random_bits_are_those_of_the_paper(key):
    """Against Widynski 2020, section 3, in Python's integers."""
    mask, counters = 2**64 - 1, [0, 1, 2, 1000, 2**31 + 5, 2**33]

    def squares(counter):
        x = y = counter * (key | 1) & mask
        z = (y + (key | 1)) & mask
        for addend in (y, z, y):
            x = (x * x + addend) & mask
            x = (x >> 32 | x << 32) & mask
        return (x * x + z & mask) >> 32

    found = random_bits(tf.constant(counters, tf.uint64), tf.constant(key, tf.uint64))
    assert found.numpy().tolist() == [squares(counter) for counter in counters]


def test_without_kernels_in_functions_that_xla_compiles(monkeypatch):
    monkeypatch.setattr(kernels, "enabled", False)
    x = tf.ones((64, 20, 20))
    y, gradient = trained(Dropout(0.25, (None, 1, None), seed=3), x, jit_compile=True)
    np.testing.assert_array_equal(gradient, y)
    np.testing.assert_array_equal(y, np.broadcast_to(y[:, :1], y.shape))
    # of 1,280; five standard deviations
    assert abs((y == 0).mean() - 0.25) < 5 * np.sqrt(0.25 * 0.75 / 1280)
