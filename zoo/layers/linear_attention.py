"""Linear attention, in time and memory that grow linearly with the length.

Source: Katharopoulos et al. 2020, "Transformers are RNNs: Fast Autoregressive Transformers with
Linear Attention", sections 3.2 (bidirectional) and 3.3 (causal).

Axes: B batch, T queries, S keys, H heads, D head width, c chunk; n number of chunks.
"""

from keras import ops

from zoo.dtypes import at_least_float32
from zoo.layers.attention import check_causal
from zoo.layers.chunks import join_chunks, split_into_chunks
from zoo.layers.masks import attention_mask, key_mask

CHUNK_SIZE = 128


def linear_attention(
    query, key, value, mask=None, dropout=None, bias=None, causal=False, chunk_size=CHUNK_SIZE
):
    """φ(Q)(φ(K)ᵀV), each row divided by φ(Q)Σφ(K); equations 5 and 6 of the paper.

    φ is the `feature_map`. No scores [B, H, T, S] are computed. Sums are in at least float32.

    Args:
        query: [B, H, T, D].
        key: [B, H, S, D].
        value: [B, H, S, value_dim].
        mask: bool, True = attend, broadcastable to [B, H, 1, S]: it may not depend on the query.
        dropout: callable applied to the values in training: it drops whole keys.
        bias: None, since there are no scores.
        causal: whether a query attends to keys at its own position and before only (equations 8
            and 9); T = S.
        chunk_size: c, which changes the speed of causal attention only.

    Returns:
        [B, H, T, value_dim] in the dtype of `value`. A query that may attend to nothing gives
        zeros.

    Raises:
        ValueError: if the mask depends on the query, if there is a bias, or if `causal` and T != S.
    """
    _check_bias(bias)
    if dropout is not None:
        value = dropout(value)
    queries = feature_map(query)
    keys = feature_map(key)
    if mask is not None:
        advice = "For causal attention, use `causal=True`."
        visible = key_mask(attention_mask(mask), "linear attention", advice)  # [B, H, S, 1]
        keys = ops.where(visible, keys, 0.0)
    values = ops.cast(value, queries.dtype)
    # The sum over a column of ones is that of the weights, by which the output is divided.
    values = ops.concatenate([values, ops.ones_like(values[..., :1])], axis=-1)
    if causal:
        check_causal(query, key)
        sums = _causal_sums(queries, keys, values, chunk_size)
    else:
        products = ops.matmul(ops.swapaxes(keys, -1, -2), values)  # [B, H, D, value_dim + 1]
        sums = ops.matmul(queries, products)  # [B, H, T, value_dim + 1]
    return ops.cast(_divide(sums[..., :-1], sums[..., -1:]), value.dtype)


def linear_attention_weights(query, key, mask=None, bias=None, causal=False):
    """Returns the weights of `linear_attention`, [B, H, T, S] in the dtype of `query`.

    Time and memory are quadratic in the length. Any mask of `zoo.layers.attention_weights` is
    supported.
    """
    _check_bias(bias)
    weights = ops.matmul(feature_map(query), ops.swapaxes(feature_map(key), -1, -2))
    if causal:
        check_causal(query, key)
        weights = ops.tril(weights)
    if mask is not None:
        weights = ops.where(mask, weights, 0.0)
    return ops.cast(_divide(weights, ops.sum(weights, axis=-1, keepdims=True)), query.dtype)


def feature_map(x):
    """elu(x) + 1, equation 7, in at least float32: x + 1 if x > 0, and otherwise exp(x)."""
    x = at_least_float32(x)
    # elu(x) + 1 itself is rounded to zero from x = -17 on.
    return ops.where(x > 0.0, x + 1.0, ops.exp(ops.minimum(x, 0.0)))


def _causal_sums(queries, keys, values, size):
    """Σ (φ(q_t)·φ(k_s)) v_s over s ≤ t, causal attention before the division; equations 8 and 9.

    The output at t has two parts: φ(q_t) times the sum of φ(k_s)ᵀv_s over all chunks before that of
    t, and the masked weights within its chunk times their values.

    Args:
        queries, keys: features, φ(q) and φ(k), [B, H, T, D].
        values: [B, H, T, value_dim + 1].
        size: c.

    Returns:
        [B, H, T, value_dim + 1].
    """
    length = ops.shape(queries)[2]
    queries = split_into_chunks(queries, size)  # [B, H, n, c, D]
    keys = split_into_chunks(keys, size)
    values = split_into_chunks(values, size)  # [B, H, n, c, value_dim + 1]
    transposed_keys = ops.swapaxes(keys, -1, -2)  # [B, H, n, D, c]
    products = ops.matmul(transposed_keys, values)  # [B, H, n, D, value_dim + 1]
    products = ops.cumsum(products, axis=2)
    products_before = ops.pad(products[:, :, :-1], [(0, 0), (0, 0), (1, 0), (0, 0), (0, 0)])
    weights_within = ops.tril(ops.matmul(queries, transposed_keys))  # [B, H, n, c, c]
    sums = ops.matmul(queries, products_before) + ops.matmul(weights_within, values)
    return join_chunks(sums, length)


def _divide(sums, totals):
    """sums / totals, and 0 where the total is 0."""
    return sums / ops.where(totals > 0.0, totals, 1.0)


def _check_bias(bias):
    if bias is not None:
        raise ValueError(
            "Linear attention does not support a bias, as it has no attention scores. Received: a "
            f"bias of shape {tuple(ops.shape(bias))}. Use absolute or rotary positions, or another "
            "kind of attention."
        )
