"""The top-k over a long axis finds what `keras.ops.top_k` finds."""

from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from zoo.kernels.search import top_k


@pytest.mark.parametrize("k", [1, 3, 8])
@pytest.mark.parametrize("length", [4099, 8000, 8191])
def test_top_k(k, length):
    """Values, indices and the order of equal values, of which there are many."""
    values = np.random.default_rng(length).normal(size=(2, 3, length)).astype("float32").round(1)
    values[1, 2, 20:] = -np.inf
    with mock.patch("zoo.kernels.search.ops", mock.Mock(wraps=ops)) as spy:
        largest, indices = map(ops.convert_to_numpy, top_k(ops.convert_to_tensor(values), k))
    widths = [call.args[0].shape[-1] for call in spy.top_k.call_args_list]
    assert max(widths) <= 8 * 128, "the whole axis is not sorted"
    expected, order = map(ops.convert_to_numpy, ops.top_k(values, k))
    np.testing.assert_array_equal(largest, expected)
    np.testing.assert_array_equal(indices, order)
    np.testing.assert_array_equal(np.take_along_axis(values, indices, axis=-1), expected)
    assert top_k(values[..., : 4 * k * 64], k) is None, "a short axis"


@pytest.mark.parametrize("shape", [(4099,), (5, 4099), (2, 3, 4099)])
def test_top_k_of_any_number_of_rows(shape):
    """Also in a graph, in which the number is not known."""
    values = np.random.default_rng(0).normal(size=shape).astype("float32")
    spec = tf.TensorSpec((*[None] * (len(shape) - 1), 4099), tf.float32)
    found = tf.function(lambda x: top_k(x, 2), input_signature=[spec])(values)
    for one, other in zip(found, ops.top_k(values, 2)):
        np.testing.assert_array_equal(one, other)
    assert top_k(keras.KerasTensor((None, 4099)), 2) is None
