"""Layer normalization and activations in one pass over memory forward and one backward."""

import functools

from keras import ops

from zoo.dtypes import at_least_float32
from zoo.kernels.xla import compile_for_cpus


def layer_normalization(x, gamma, beta, epsilon):
    """`zoo.layers.normalization.layer_normalization`, with a gradient that computes it again."""
    gamma = ops.convert_to_tensor(gamma)
    beta = ops.convert_to_tensor(beta)
    rows = ops.reshape(x, (-1, gamma.shape[0]))  # [R, width]
    rows = _compiled_normalization(epsilon)(rows, gamma, beta)
    return ops.reshape(rows, ops.shape(x))


@functools.cache
def _compiled_normalization(epsilon):
    """Layer normalization of rows [R, width]."""

    # In XLA's code for CPUs, a product with ones is faster than a sum.
    def mean(x):
        width = x.shape[-1]
        return ops.matmul(x, ops.ones((width, 1), x.dtype)) / width  # [R, 1]

    def sum_of_rows(x):
        return ops.matmul(ops.ones((1, ops.shape(x)[0]), x.dtype), x)[0]  # [width]

    def normalize(x):
        """Returns x normalized to mean 0 and variance 1, and 1 / its standard deviation."""
        centered = x - mean(x)
        scale = ops.rsqrt(mean(ops.square(centered)) + epsilon)  # [R, 1]
        return centered * scale, scale

    def function(x, gamma, beta):
        wide, gamma, beta = _widened(x, gamma, beta)
        normalized, _ = normalize(wide)
        return ops.cast(normalized * gamma + beta, x.dtype)

    def gradient(upstream, x, gamma, beta):
        dtypes = x.dtype, gamma.dtype, beta.dtype
        x, gamma, upstream = _widened(x, gamma, upstream)
        x, scale = normalize(x)
        scaled = upstream * gamma
        d_x = scale * (scaled - mean(scaled) - x * mean(scaled * x))
        gradients = d_x, sum_of_rows(upstream * x), sum_of_rows(upstream)
        return [ops.cast(g, dtype) for g, dtype in zip(gradients, dtypes)]

    return compile_for_cpus(function, gradient)


def _widened(x, *others):
    """The tensors in float32, or in the dtype of `x` if that is wider."""
    x = at_least_float32(x)
    return [x, *(ops.cast(tensor, x.dtype) for tensor in others)]


def activation(function, x):
    """``function(x)``, computed in float32 or wider, with a gradient that computes it again.

    Not for functions of users, which XLA may be unable to compile.
    """
    return _compiled_activation(function)(x)


@functools.cache
def _compiled_activation(function):
    import tensorflow as tf

    def in_float32(x):
        return ops.cast(function(at_least_float32(x)), x.dtype)

    def gradient(upstream, x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = in_float32(x)
        return tape.gradient(y, x, upstream)

    return compile_for_cpus(in_float32, gradient)
