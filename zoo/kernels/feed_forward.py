"""Activation functions in one pass over memory in each direction."""

import functools

from keras import ops

from zoo.dtypes import at_least_float32
from zoo.kernels.xla import compiled


def activation(function, x):
    """``function(x)``, computed in float32 or wider, with a gradient that computes it again.

    Not for functions of users, which XLA may be unable to compile.
    """
    return _compiled(function)(x)


@functools.cache
def _compiled(function):
    import tensorflow as tf

    def in_float32(x):
        return ops.cast(function(at_least_float32(x)), x.dtype)

    def gradient(upstream, x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = in_float32(x)
        return tape.gradient(y, x, upstream)

    return compiled(in_float32, gradient)
