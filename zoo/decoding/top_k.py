"""The largest values of a long axis, such as the logits of a vocabulary."""

import math

from keras import ops


def blockwise_top_k(values, k):
    """Like `keras.ops.top_k`, but faster for long axes, which compilers sort as a whole.

    The k largest values are in the k blocks that have the largest maxima, so there is little to
    sort. A short axis is not divided into blocks.

    Args:
        values: [..., V].

    Returns:
        (values [..., k], indices int32 [..., k]).
    """
    shape = ops.shape(values)
    length = values.shape[-1]
    # The largest divisor of V from 64 to 128, which needs no padding; 128 if there is none.
    block = max((n for n in range(64, 129) if length % n == 0), default=128)
    is_symbolic = any(n is None for n in shape)  # of a `keras.Input`
    if length <= 4 * k * block or is_symbolic:
        largest, index = ops.top_k(values, k)
        return largest, ops.cast(index, "int32")

    count = -(-length // block)  # blocks of a row
    values = ops.reshape(values, (-1, length))  # [N, V]
    padding = [(0, 0), (0, count * block - length)]
    values = ops.pad(values, padding, constant_values=-math.inf)  # [N, count·block]
    blocks = ops.reshape(values, (-1, block))  # [N·count, block]
    maxima = ops.reshape(ops.max(blocks, axis=-1), (-1, count))  # [N, count]
    _, best = ops.top_k(maxima, k)  # [N, k]
    best = ops.sort(ops.cast(best, "int32"), axis=-1)  # equal values keep their order

    # Whole blocks are taken: XLA takes the values one by one if each has an index.
    first_block = count * ops.arange(ops.shape(best)[0], dtype="int32")[:, None]  # [N, 1]
    candidates = ops.take(blocks, first_block + best, axis=0)  # [N, k, block]
    candidates = ops.reshape(candidates, (-1, k * block))  # [N, k·block]
    largest, place = ops.top_k(candidates, k)  # [N, k]
    place = ops.cast(place, "int32")
    index = ops.take_along_axis(best, place // block, axis=-1) * block + place % block  # [N, k]
    shape = (*shape[:-1], k)
    return ops.reshape(largest, shape), ops.reshape(index, shape)
