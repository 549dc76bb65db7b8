"""Shapes for `ops.reshape`."""

from keras import ops


def sides(x):
    """Returns the shape of `x` [B, ...] for `ops.reshape`; B is -1 if the other sides are known.

    Graphs compute no shapes then. If a side is 0, B could not be inferred from -1; if one is
    unknown, what does not fit would become more rows.
    """
    batch, *others = ops.shape(x)
    if all(isinstance(side, int) and side > 0 for side in others):
        batch = -1
    return batch, *others
