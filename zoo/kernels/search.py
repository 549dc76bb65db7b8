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
    rows = ops.shape(values)[:-1]
    padding = [(0, 0)] * len(rows) + [(0, -length % block)]
    blocks = ops.reshape(ops.pad(values, padding, constant_values=-math.inf), (*rows, -1, block))
    _, best = ops.top_k(ops.max(blocks, axis=-1), k)
    best = ops.sort(ops.cast(best, "int32"), axis=-1)  # equal values keep their order
    candidates = ops.take_along_axis(blocks, best[..., None], axis=-2)
    largest, place = ops.top_k(ops.reshape(candidates, (*rows, k * block)), k)
    place = ops.cast(place, "int32")
    return largest, ops.take_along_axis(best, place // block, axis=-1) * block + place % block
