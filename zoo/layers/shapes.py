"""Shapes for `ops.reshape`."""

from keras import ops


def shape_for_reshape(x):
    """Returns the shape of `x` [B, ...], with -1 for B where `ops.reshape` can infer it.

    A graph then need not compute the shape. B cannot be inferred if another dimension is 0; if one
    is unknown, values that do not fit would become more rows.
    """
    batch, *others = ops.shape(x)
    if all(isinstance(size, int) and size > 0 for size in others):
        batch = -1
    return batch, *others
