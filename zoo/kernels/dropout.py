"""Dropout by counter-based random numbers, which are not kept in memory."""

import functools

from keras import ops

from zoo.dtypes import at_least_float32
from zoo.kernels.xla import compiled


def dropout(layer, x):
    """`zoo.layers.Dropout` in training, in one pass over memory in each direction.

    Its random numbers are a function of their indices and of a key, drawn from the layer's seed:
    Widynski 2020, "Squares: A Fast Counter-Based RNG". The gradient computes the mask from the same
    key again, so that neither mask nor input is kept.
    """
    rank = x.shape.rank
    lengths = layer.noise_shape or (None,) * (rank or 0)
    is_known = rank and len(lengths) == rank and set(lengths) <= {None, 1}
    if layer.rate == 1 or not is_known:
        return None
    import tensorflow as tf

    seed = layer.seed_generator.next()
    key = tf.random.stateless_uniform((), seed, minval=None, maxval=None, dtype=tf.uint64)
    return _compiled(layer.rate, lengths)(x, key)


@functools.cache
def _compiled(rate, lengths):
    """Dropout of an input by a key, uint64 []; a length of the mask is 1, or None: the input's."""
    import tensorflow as tf

    def drop(x, key):
        shape = [n or tf.shape(x)[axis] for axis, n in enumerate(lengths)]
        index = tf.range(tf.reduce_prod(tf.cast(tf.stack(shape), tf.int64)))
        kept = random_bits(tf.cast(index, tf.uint64), key) >= round(rate * 2**32)
        scaled = at_least_float32(x) / (1 - rate)
        return ops.cast(tf.where(tf.reshape(kept, shape), scaled, 0.0), x.dtype)

    run = compiled(drop)

    @tf.custom_gradient
    def call(x, key):
        return run(x, key), lambda upstream: (run(upstream, key), None)

    return call


def random_bits(counter, key):
    """32 random bits of each counter, as uint64: Widynski 2020, section 3, for an odd key."""
    import tensorflow as tf

    def swap_halves(x):
        high, low = tf.bitwise.left_shift(x, half), tf.bitwise.right_shift(x, half)
        return tf.bitwise.bitwise_or(high, low)

    half = tf.constant(32, tf.uint64)
    key = tf.bitwise.bitwise_or(key, tf.constant(1, tf.uint64))
    x = y = counter * key
    z = y + key
    for addend in (y, z, y):
        x = swap_halves(x * x + addend)
    return tf.bitwise.right_shift(x * x + z, half)
