"""Dense layers on sequences."""

from keras import ops


def linear(dense, x):
    """``dense(x)`` for `x` [B, ..., width], computed on a matrix [rows, width].

    TensorFlow fuses the product, the bias and the activation of a matrix only.
    """
    lengths = ops.shape(x)[1:-1]
    if None in lengths:  # of a `keras.Input`
        raise ValueError(
            "Outside a call, the length of a symbolic input must be known. "
            f"Received: shape {x.shape}. Give it in keras.Input, or call the layer or model itself."
        )
    rows = dense(ops.reshape(x, (-1, x.shape[-1])))
    return ops.reshape(rows, (-1, *lengths, rows.shape[-1]))
