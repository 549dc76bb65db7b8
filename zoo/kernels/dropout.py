"""Dropout by counter-based random numbers, which are not kept in memory."""

import functools

from keras import ops

from zoo.dtypes import at_least_float32
from zoo.kernels.xla import compile_for_cpus


def dropout(layer, x):
    """`zoo.layers.Dropout` in training, in one pass over memory forward and one backward.

    Its random numbers are a function of their indices and of a key, drawn from the layer's seed:
    Widynski 2020, "Squares: A Fast Counter-Based RNG". The gradient computes the mask from the same
    key again, so that neither mask nor input is kept.
    """
    rank = x.shape.rank
    if layer.rate == 1 or not rank:
        return None
    lengths = layer.noise_shape or (None,) * rank
    if len(lengths) != rank or not set(lengths) <= {None, 1}:
        return None
    import tensorflow as tf

    seed = layer.seed_generator.next()
    key = tf.random.stateless_uniform((), seed, minval=None, maxval=None, dtype=tf.uint64)
    return _compiled_dropout(layer.rate, lengths)(x, key)


@functools.cache
def _compiled_dropout(rate, lengths):
    """Dropout as a function of an input and a key, uint64 [].

    A length of the mask is 1, or None for that of the input.
    """
    import tensorflow as tf

    def drop(x, key):
        shape = [n or tf.shape(x)[axis] for axis, n in enumerate(lengths)]
        count = tf.reduce_prod(tf.cast(tf.stack(shape), tf.int64))
        index = tf.cast(tf.range(count), tf.uint64)  # [count]
        is_kept = random_bits(index, key) >= round(rate * 2**32)
        is_kept = tf.reshape(is_kept, shape)
        scaled = at_least_float32(x) / (1 - rate)
        return ops.cast(tf.where(is_kept, scaled, 0.0), x.dtype)

    run = compile_for_cpus(drop)

    @tf.custom_gradient
    def call(x, key):
        def gradient(upstream):
            return run(upstream, key), None

        return run(x, key), gradient

    return call


def random_bits(counter, key):
    """32 random bits of each counter, as uint64: Widynski 2020, section 3, for an odd key."""
    import tensorflow as tf

    half = tf.constant(32, tf.uint64)

    def swap_halves(x):
        high = tf.bitwise.left_shift(x, half)
        low = tf.bitwise.right_shift(x, half)
        return tf.bitwise.bitwise_or(high, low)

    key = tf.bitwise.bitwise_or(key, tf.constant(1, tf.uint64))
    x = counter * key
    y = x
    z = y + key
    for addend in (y, z, y):
        x = swap_halves(x * x + addend)
    return tf.bitwise.right_shift(x * x + z, half)
