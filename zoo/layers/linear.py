"""Dense layers on sequences."""

from keras import ops


def linear(dense, x):
    """``dense(x)`` for `x` [B, T, width], computed on a matrix [B·T, width].

    TensorFlow fuses the product, the bias and the activation of a matrix only.
    """
    rows = dense(ops.reshape(x, (-1, x.shape[-1])))
    return ops.reshape(rows, (-1, *ops.shape(x)[1:-1], rows.shape[-1]))
