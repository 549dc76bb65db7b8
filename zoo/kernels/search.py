"""The largest values of a long axis, such as the logits of a vocabulary."""

import math

from keras import ops


def top_k(values, k):
    """The k largest of the last axis: they are in the k blocks that have the largest maxima.

    Compilers sort a whole axis for its top-k; this way there is little to sort. Blocks that divide
    the axis need no padding.

    Returns:
        (values, indices int32), each [..., k]; or None if the axis is short.
    """
    shape, length = ops.shape(values), values.shape[-1]
    block = max((n for n in range(64, 129) if length % n == 0), default=128)
    if length <= 4 * k * block or any(n is None for n in shape):  # of a `keras.Input`
        return None
    count = -(-length // block)  # blocks of a row
    padding = [(0, 0), (0, count * block - length)]
    values = ops.pad(ops.reshape(values, (-1, length)), padding, constant_values=-math.inf)
    blocks = ops.reshape(values, (-1, block))
    _, best = ops.top_k(ops.reshape(ops.max(blocks, axis=-1), (-1, count)), k)
    best = ops.sort(ops.cast(best, "int32"), axis=-1)  # equal values keep their order
    # Whole blocks are taken: XLA takes the values one by one if each has an index.
    first_block = count * ops.arange(ops.shape(best)[0], dtype="int32")[:, None]
    candidates = ops.reshape(ops.take(blocks, first_block + best, axis=0), (-1, k * block))
    largest, place = ops.top_k(candidates, k)
    place = ops.cast(place, "int32")
    index = ops.take_along_axis(best, place // block, axis=-1) * block + place % block
    return tuple(ops.reshape(x, (*shape[:-1], k)) for x in (largest, index))
