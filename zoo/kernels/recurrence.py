"""A linear recurrence token by token: on CPUs, it is bound by memory, and this reads it once.

Axes: B batch, N sequences, T tokens, E width.
"""

from zoo import compat


def linear_recurrence(factor, added, levels=4):
    """`zoo.layers.ssru.linear_recurrence` as a loop, in training with an explicit gradient."""
    if compat.in_xla_context():  # the length is known there, so the scan needs little padding
        return None
    if compat.call_training():
        return _differentiable(factor, added)
    return _cells(factor, added)


def _differentiable(factor, added):
    """The cells, whose gradient is a recurrence of the same kind, from the last token on."""
    import tensorflow as tf

    @tf.custom_gradient
    def cells_of(factor, added):
        cells = _cells(factor, added)

        def gradient(upstream):
            # d_added_t = upstream_t + factor_{t+1} · d_added_{t+1}
            zeros = tf.zeros_like(factor[:, :, :1])
            next_factor = tf.concat([factor[:, :, 1:], zeros], axis=2)
            backwards = _cells(tf.reverse(next_factor, [2]), tf.reverse(upstream, [2]))
            d_added = tf.reverse(backwards, [2])
            cells_before = tf.concat([zeros, cells[:, :, :-1]], axis=2)
            return d_added * cells_before, d_added

        return cells, gradient

    return cells_of(factor, added)


def _cells(factor, added):
    """c_t = factor_t · c_{t-1} + added_t with c_0 = 0: [B, N, T, E]."""
    import tensorflow as tf

    shape = added.shape
    factor = tf.transpose(factor, [2, 0, 1, 3])  # [T, B, N, E]
    added = tf.transpose(added, [2, 0, 1, 3])
    length = tf.shape(added)[0]
    cells = tf.TensorArray(added.dtype, length, element_shape=added.shape[1:])

    def step(token, cell, cells):
        cell = factor[token] * cell + added[token]
        return token + 1, cell, cells.write(token, cell)

    first = tf.zeros(tf.shape(added)[1:], added.dtype)
    _, _, cells = tf.while_loop(lambda token, *_: token < length, step, (0, first, cells))
    cells = tf.transpose(cells.stack(), [1, 2, 0, 3])
    return tf.ensure_shape(cells, shape)
