"""Attention with an explicit gradient, for training.

Axes: B batch, H heads, T queries, S keys, D head width.
"""

from keras import ops

from zoo import compat
from zoo.dtypes import at_least_float32


def attention(query, key, value, mask=None, dropout=None, bias=None, causal=False):
    """`zoo.layers.scaled_dot_product_attention` with a gradient in fewer passes over memory.

    The forward pass is that of the plain function. With the attention weights W and the gradient U
    of the output O = WV, the gradient of the scores is

        W ∘ (UVᵀ - r), where r are the sums of the rows of U ∘ O.

    Source: Dao et al. 2022, "FlashAttention", appendix B.2. The difference is computed as one
    product, [U, -r] [V, 1]ᵀ, so that it is rounded once. In bfloat16, r would lose too many digits:
    it is the sum of a high and a low part, each with a column of its own.
    """
    if query.dtype == "float16":  # gradients would underflow
        return None
    if bias is not None or dropout is not None:
        return None
    if causal:
        if query.shape[2] != key.shape[2]:
            return None
        position = ops.arange(ops.shape(key)[2], dtype="int32")
        visible = position <= position[:, None]  # [T, S]
        mask = visible if mask is None else ops.logical_and(mask, visible)
    if not _fit(query, key, value, mask):
        return None
    scale = query.shape[-1] ** -0.5

    @ops.custom_gradient
    def attend(query, key, value):
        weights = _weights(query * scale, key, mask)  # [B, H, T, S]
        output = ops.matmul(weights, value)  # [B, H, T, value_dim]

        def gradient(upstream):
            products = at_least_float32(upstream) * at_least_float32(output)
            sums = ops.sum(products, axis=-1, keepdims=True)  # [B, H, T, 1], r
            high = ops.cast(sums, output.dtype)
            low = ops.cast(sums - at_least_float32(high), output.dtype)
            ones = ops.ones_like(value[..., :1])  # [B, H, S, 1]
            left = ops.concatenate([upstream, -high, -low], axis=-1)  # [B, H, T, value_dim + 2]
            right = ops.concatenate([value, ones, ones], axis=-1)  # [B, H, S, value_dim + 2]
            d_scores = weights * ops.matmul(left, ops.swapaxes(right, -1, -2))  # [B, H, T, S]
            d_query = ops.matmul(d_scores, key * scale)
            d_key = ops.matmul(ops.swapaxes(d_scores, -1, -2), query * scale)
            d_value = ops.matmul(ops.swapaxes(weights, -1, -2), upstream)
            return d_query, d_key, d_value

        return output, gradient

    return attend(query, key, value)


def _fit(query, key, value, mask):
    """Whether no tensor is broadcast, except for the mask, and none has a wrong shape."""
    if query.shape[:2] != key.shape[:2] or key.shape[:3] != value.shape[:3]:
        return False
    if mask is None:
        return True
    scores = (*query.shape[:3], key.shape[2])  # [B, H, T, S]
    lengths = zip(reversed(mask.shape), reversed(scores))
    return all(length in (1, other) for length, other in lengths)


def _weights(query, key, mask):
    """The attention weights [B, H, T, S] of queries that are scaled.

    These are the last lines of `zoo.layers.attention.attention_weights`, where the checks of its
    arguments are left out: change both. tests/kernels/test_attention.py compares them.
    """
    scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))
    if compat.in_xla_context():  # TensorFlow's own softmax of bfloat16 computes in float32
        scores = at_least_float32(scores)
    if mask is None:
        return ops.cast(ops.softmax(scores, axis=-1), query.dtype)
    weights = ops.softmax(ops.where(mask, scores, -1e9), axis=-1)
    return ops.cast(ops.where(mask, weights, 0.0), query.dtype)
