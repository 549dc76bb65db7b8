"""Layer normalization and activations in one pass over memory in each direction."""

import functools

from keras import ops

from zoo.dtypes import at_least_float32
from zoo.kernels.xla import compiled


def layer_normalization(x, gamma, beta, epsilon):
    """`zoo.layers.normalization.layer_normalization`, with a gradient that computes it again."""
    weights = (ops.convert_to_tensor(weight) for weight in (gamma, beta))
    rows = _compiled_normalization(epsilon)(ops.reshape(x, (-1, gamma.shape[0])), *weights)
    return ops.reshape(rows, ops.shape(x))


def activation(function, x):
    """``function(x)``, computed in float32 or wider, with a gradient that computes it again.

    Not for functions of users, which XLA may be unable to compile.
    """
    return _compiled_activation(function)(x)


@functools.cache
def _compiled_normalization(epsilon):
    """Normalizes rows [R, width]. In XLA's code for CPUs, products are fast means."""

    def function(x, gamma, beta):
        dtype, x = x.dtype, at_least_float32(x)
        mean = ops.full((x.shape[-1], 1), 1 / x.shape[-1], x.dtype)
        centered = x - ops.matmul(x, mean)
        normal = centered * ops.rsqrt(ops.matmul(ops.square(centered), mean) + epsilon)
        return ops.cast(normal * ops.cast(gamma, x.dtype) + ops.cast(beta, x.dtype), dtype)

    return _computed_again(function)


@functools.cache
def _compiled_activation(function):
    return _computed_again(lambda x: ops.cast(function(at_least_float32(x)), x.dtype))


def _computed_again(function):
    """`function`, compiled; its gradient computes it again, and keeps nothing but the inputs."""
    import tensorflow as tf

    def gradient(upstream, *tensors):
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            y = function(*tensors)
        return tape.gradient(y, tensors, upstream)

    return compiled(function, gradient)
