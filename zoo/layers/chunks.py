"""Sequences cut into chunks. Axes: B batch, H heads, T length, D width; n chunks of length c."""

from keras import ops


def split_into_chunks(x, size):
    """[B, H, T, D] to [B, H, n, c, D], padded by zeros."""
    batch, heads, length, width = ops.shape(x)
    count = -(-length // size)
    if not isinstance(count, int):  # one chunk for no tokens: TensorFlow maps over at least one
        count = ops.maximum(count, 1)
    x = ops.pad(x, [(0, 0), (0, 0), (0, count * size - length), (0, 0)])
    return ops.reshape(x, (batch, heads, count, size, width))


def join_chunks(x, length):
    """[B, H, n, c, D] to [B, H, T, D]: the inverse of `split_into_chunks`."""
    batch, heads, count, size, width = ops.shape(x)
    return ops.reshape(x, (batch, heads, count * size, width))[:, :, :length]
