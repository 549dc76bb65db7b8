"""Attention as a function. Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.

Axes: B batch, T queries, S keys, H heads, D head width.
"""

import keras
from keras import ops

from zoo import kernels
from zoo.dtypes import wide
from zoo.kernels import accelerated_by
from zoo.layers.masks import attention_mask, causal_mask


@accelerated_by(kernels.attention)
def scaled_dot_product_attention(
    query, key, value, mask=None, dropout=None, bias=None, causal=False
):
    """softmax(QKᵀ/√D)V, equation 1 of the paper, for every head at once.

    Args:
        query, key, mask, bias, causal: see `attention_weights`.
        value: [B, H, S, value_dim].
        dropout: function applied to the weights, for training.

    Returns:
        [B, H, T, value_dim]. A query that may attend to nothing gives zeros.
    """
    weights = attention_weights(query, key, mask, bias, causal)
    if dropout is not None:
        weights = dropout(weights)
    return ops.matmul(weights, value)


def attention_weights(query, key, mask=None, bias=None, causal=False):
    """softmax(QKᵀ/√D + bias), the attention weights of each query over the keys.

    Args:
        query: [B, H, T, D].
        key: [B, H, S, D].
        mask: bool, True = attend, broadcastable to [B, H, T, S]; see `zoo.layers.padding_mask` and
            `zoo.layers.causal_mask`.
        bias: added to the scores, broadcastable to [B, H, T, S], such as
            `zoo.layers.RelativePositions`.
        causal: whether a query attends to keys at its own position and before only; T = S.

    Returns:
        [B, H, T, S] in the dtype of `query`. The softmax is computed in float32 or wider, and so
        are the scores of float16, which would overflow; those of bfloat16 are products in bfloat16.
        Each row sums to one; masked weights are exactly zero, and so are all of a query that may
        attend to nothing.

    Raises:
        ValueError: if the mask or the bias does not broadcast, or if `causal` and T != S.
    """
    if causal:
        check_causal(query, key)
        mask = attention_mask(mask, causal_mask(ops.shape(key)[2]))
    weights = ops.softmax(attention_scores(query, key, mask, bias), axis=-1)
    if mask is not None:
        # A row that is masked as a whole has equal scores, so that its softmax is uniform.
        weights = ops.where(mask, weights, 0.0)
    return ops.cast(weights, query.dtype)


def attention_scores(query, key, mask=None, bias=None):
    """QKᵀ/√D + bias, and -1e9 where masked: [B, H, T, S], in float32 or wider.

    The arguments are those of `attention_weights`.
    """
    if keras.backend.standardize_dtype(query.dtype) == "float16":
        query, key = ops.cast(query, "float32"), ops.cast(key, "float32")
    # Scaling the query is cheaper than scaling the scores.
    query = query * query.shape[-1] ** -0.5
    scores = wide(ops.matmul(query, ops.transpose(key, (0, 1, 3, 2))))
    for name, tensor in {"mask": mask, "bias": bias}.items():
        # Otherwise a mask [T, T] of a batch of one, for example, would make it a batch of T.
        shape, full = () if tensor is None else tuple(ops.shape(tensor)), tuple(scores.shape)
        pairs = zip(shape[::-1], full[::-1])
        if any(isinstance(x, int) and y is not None and x not in (1, y) for x, y in pairs):
            raise ValueError(f"{name} must broadcast to [B, H, T, S], {full}. Received: {shape}.")
    if bias is not None:
        scores = scores + ops.cast(bias, scores.dtype)
    return scores if mask is None else ops.where(mask, scores, -1e9)


def check_causal(query, key):
    """Raises ValueError if there are not as many queries [B, H, T, D] as keys [B, H, S, D]."""
    queries, keys = query.shape[2], key.shape[2]
    if None not in (queries, keys) and queries != keys:
        raise ValueError(
            "Causal attention needs as many queries as keys. "
            f"Received: causal=True, {queries} queries and {keys} keys."
        )
