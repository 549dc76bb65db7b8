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
    length = values.shape[-1]
    block = max((n for n in range(64, 129) if length % n == 0), default=128)
    if length <= 4 * k * block:
        return None
    shape, count = (*ops.shape(values)[:-1], k), -(-length // block)
    padding = [(0, 0), (0, count * block - length)]
    blocks = ops.pad(ops.reshape(values, (-1, length)), padding, constant_values=-math.inf)
    blocks = ops.reshape(blocks, (-1, block))
    _, best = ops.top_k(ops.reshape(ops.max(blocks, axis=-1), (-1, count)), k)
    best = ops.sort(ops.cast(best, "int32"), axis=-1)  # equal values keep their order
    first = count * ops.arange(ops.shape(best)[0], dtype="int32")[:, None]
    candidates = ops.take(blocks, first + best, axis=0)
    largest, place = ops.top_k(ops.reshape(candidates, (-1, k * block)), k)
    place = ops.cast(place, "int32")
    index = ops.take_along_axis(best, place // block, axis=-1) * block + place % block
    return ops.reshape(largest, shape), ops.reshape(index, shape)
