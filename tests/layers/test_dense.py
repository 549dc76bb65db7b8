"""Dense layers: the matrices that they multiply."""

import keras
import numpy as np
import pytest

from zoo.layers.dense import Dense


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="its graphs")
@pytest.mark.parametrize("shape", [(3, 0, 8), (0, 2, 8), (3, 2, 0, 8)])
def test_axes_of_length_0_are_those_of_keras(shape):
    """Also if all lengths are unknown when the graph is made."""
    import tensorflow as tf

    x = np.zeros(shape, "float32")
    layer = Dense(5)
    expected = keras.layers.Dense(5)(x).shape
    unknown = tf.TensorSpec((*[None] * (len(shape) - 1), 8))
    assert layer(x).shape == tf.function(layer, input_signature=[unknown])(x).shape == expected
