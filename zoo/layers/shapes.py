"""Shapes for `ops.reshape`."""

from keras import ops


def shape_for_reshape(x, infers_unknown=False):
    """Returns the shape of `x` [B, ...], with -1 for B where `ops.reshape` can infer it.

    A graph then need not compute the shape. B cannot be inferred if another dimension is 0; if one
    is unknown, values that do not fit would become more rows. With `infers_unknown`, B is -1 then
    as well, as graphs need to be converted to ONNX; they fail for an unknown dimension that is 0.
    """
    batch, *others = ops.shape(x)
    if all(size > 0 if isinstance(size, int) else infers_unknown for size in others):
        batch = -1
    return batch, *others
