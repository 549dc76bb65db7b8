"""Long sequences in chunks of equal length.

Axes: B batch, H heads, T positions, D head width, c chunk; n number of chunks.
"""

from keras import ops


def chunks(x, size):
    """[B, H, T, D] -> [B, H, n, c, D], padded by zeros."""
    batch, heads, length, width = ops.shape(x)
    count = -(-length // size)
    x = ops.pad(x, [(0, 0), (0, 0), (0, count * size - length), (0, 0)])
    return ops.reshape(x, (batch, heads, count, size, width))


def joined(chunks, length):
    """[B, H, n, c, D] -> [B, H, T, D], the inverse of `chunks`."""
    batch, heads, count, size, width = ops.shape(chunks)
    return ops.reshape(chunks, (batch, heads, count * size, width))[:, :, :length]
