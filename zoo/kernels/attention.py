"""Attention with an explicit gradient.

Axes: B batch, H heads, T queries, S keys, D head width.
"""

from keras import ops

from zoo import compat
from zoo.dtypes import at_least_float32


def attention(query, key, value, mask=None, dropout=None, bias=None, causal=False):
    """`zoo.layers.scaled_dot_product_attention` with a gradient in fewer passes over memory.

    With the weights W and the gradient U of the output O = WV, the gradient of the scores is
    W∘(UVᵀ - sums of the rows of U∘O): Dao et al. 2022, "FlashAttention", appendix B.2. As the
    product [U, -sums]·[V, 1]ᵀ it is rounded once. The sums are split into a high and a low part:
    rounded to bfloat16, they would be less exact than the difference.
    """
    if bias is not None or dropout is not None or not _supports(query, key, value, mask, causal):
        return None
    if causal:
        positions = ops.arange(ops.shape(key)[2])
        visible = positions <= positions[:, None]
        mask = visible if mask is None else ops.logical_and(mask, visible)
    scale = query.shape[-1] ** -0.5

    @ops.custom_gradient
    def attend(query, key, value):
        weights = _weights(query * scale, key, mask)
        output = ops.matmul(weights, value)

        def gradient(upstream):
            sums = ops.sum(
                at_least_float32(upstream) * at_least_float32(output), axis=-1, keepdims=True
            )
            high = ops.cast(sums, output.dtype)
            low = ops.cast(sums - at_least_float32(high), output.dtype)
            ones = ops.ones_like(value[..., :1])
            left = ops.concatenate([upstream, -high, -low], axis=-1)
            right = ops.concatenate([value, ones, ones], axis=-1)
            d_scores = weights * ops.matmul(left, ops.swapaxes(right, -1, -2))
            return (
                ops.matmul(d_scores, key * scale),
                ops.matmul(ops.swapaxes(d_scores, -1, -2), query * scale),
                ops.matmul(ops.swapaxes(weights, -1, -2), upstream),
            )

        return output, gradient

    return attend(query, key, value)


def _supports(query, key, value, mask, causal):
    """Not float16, whose gradients would underflow, nor shapes that are broadcast or wrong."""
    fit = query.shape[:2] == key.shape[:2] and key.shape[:3] == value.shape[:3]
    if query.dtype == "float16" or not fit or (causal and query.shape[2] != key.shape[2]):
        return False
    full = (*query.shape[:3], key.shape[2])
    return mask is None or all(
        length in (1, other) for length, other in zip(mask.shape[::-1], full[::-1])
    )


def _weights(query, key, mask):
    scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))
    if compat.in_xla_context():  # TensorFlow's own softmax of bfloat16 computes in float32
        scores = at_least_float32(scores)
    if mask is not None:
        scores = ops.where(mask, scores, -1e9)
    weights = ops.softmax(scores, axis=-1)
    if mask is not None:
        weights = ops.where(mask, weights, 0.0)
    return ops.cast(weights, query.dtype)
