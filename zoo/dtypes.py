"""Precision of sums, means and exponentials in models that compute in 16 bits."""

import keras
from keras import ops


def at_least_float32(x):
    """`x` in float32, or in its dtype if that is wider."""
    return ops.cast(x, keras.backend.result_type(x.dtype, "float32"))
