"""Scaled dot-product attention.

Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.

Axes: B batch, T queries, S keys, H heads, D head width.
"""

import keras
from keras import ops

from zoo import kernels
from zoo.dtypes import at_least_float32
from zoo.layers.masks import causal_mask


@kernels.accelerated_by(kernels.attention)  # computes the same, on CPUs in training
def scaled_dot_product_attention(
    query, key, value, mask=None, dropout=None, bias=None, causal=False
):
    """softmax(QKᵀ/√D)V, equation 1 of the paper, for every head at once.

    Args:
        query, key, mask, bias, causal: see `attention_weights`.
        value: [B, H, S, value_dim].
        dropout: callable applied to the attention weights in training.

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
        [B, H, T, S] in the dtype of `query`; the softmax is computed in at least float32. Each row
        sums to one, or is zero if the query may attend to nothing. Masked weights are zero.

    Raises:
        ValueError: if the mask or the bias does not broadcast, or if `causal` and T != S.
    """
    dtype = query.dtype
    if keras.backend.standardize_dtype(dtype) == "float16":  # the products would overflow
        query = at_least_float32(query)
        key = at_least_float32(key)
    query = query * query.shape[-1] ** -0.5  # cheaper than scaling the scores
    scores = ops.matmul(query, ops.swapaxes(key, -1, -2))  # [B, H, T, S]
    scores = at_least_float32(scores)
    check_broadcast("mask", mask, tuple(scores.shape))
    check_broadcast("bias", bias, tuple(scores.shape))
    if causal:
        check_causal(query, key)
        visible = causal_mask(ops.shape(key)[2])
        mask = visible if mask is None else ops.logical_and(mask, visible)
    if bias is not None:
        scores = scores + ops.cast(bias, scores.dtype)
    if mask is None:
        return ops.cast(ops.softmax(scores, axis=-1), dtype)
    weights = ops.softmax(ops.where(mask, scores, -1e9), axis=-1)
    # The softmax of a row that is masked as a whole is uniform; its weights have to be 0.
    return ops.cast(ops.where(mask, weights, 0.0), dtype)


def check_broadcast(name, tensor, shape):
    """Raises ValueError if a mask or bias does not broadcast to `shape`, [B, H, T, S].

    For example, a layer takes a mask of rank 2 for [B, S]. If [T, T] is passed by mistake, it
    becomes [T, 1, 1, T], and a batch of one would silently be broadcast to a batch of T.
    """
    if tensor is None:
        return
    lengths = tuple(ops.shape(tensor))
    for length, expected in zip(reversed(lengths), reversed(shape)):
        is_known = isinstance(length, int) and expected is not None
        if is_known and length not in (1, expected):
            raise ValueError(
                f"{name} must broadcast to [B, H, T, S], {shape}. Received: {lengths}."
            )


def check_causal(query, key):
    """Raises ValueError if there are not as many queries [B, H, T, D] as keys [B, H, S, D]."""
    queries = query.shape[2]
    keys = key.shape[2]
    if None not in (queries, keys) and queries != keys:
        raise ValueError(
            "Causal attention needs as many queries as keys. "
            f"Received: causal=True, {queries} queries and {keys} keys."
        )
