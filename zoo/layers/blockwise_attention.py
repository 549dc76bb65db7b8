"""Exact attention in memory that grows linearly with the length.

Sources: Rabe and Staats 2021, "Self-attention Does Not Need O(n²) Memory", for attention in blocks
of queries; Dao et al. 2022, "FlashAttention", appendix B, for the gradient, which computes the
weights of each block again.

Axes: B batch, T queries, S keys, H heads, D head width, b block; n number of blocks.
"""

import keras
from keras import ops

from zoo.dtypes import wide
from zoo.layers.attention import (
    attention_weights,
    check_broadcast,
    check_causal,
    chunks,
    joined,
    scaled_dot_product_attention,
    transposed,
)

BLOCK_SIZE = 128


def blockwise_attention(
    query,
    key,
    value,
    mask=None,
    dropout=None,
    bias=None,
    causal=False,
    block_size=BLOCK_SIZE,
):
    """What `zoo.layers.scaled_dot_product_attention` computes, for b queries at a time.

    Forward and backward, no tensor [B, H, T, S] is computed, but [B, H, b, S]; masks and biases
    with axes of length one are not expanded. Gradients of gradients are not supported.

    Args:
        query, key, value, mask, bias, causal: see `zoo.layers.attention_weights` and
            `zoo.layers.scaled_dot_product_attention`.
        dropout: function applied to the values: it drops whole keys.
        block_size: b.

    Returns:
        [B, H, T, value_dim]. A query that may attend to nothing gives zeros.

    Raises:
        ValueError: if the mask or the bias does not broadcast, or if `causal` and T != S.
    """
    value = value if dropout is None else dropout(value)
    length = query.shape[2]
    if length is not None and length <= block_size:
        return scaled_dot_product_attention(query, key, value, mask, None, bias, causal)
    if causal:
        check_causal(query, key)
    if keras.backend.standardize_dtype(query.dtype) == "float16":  # its gradients would underflow
        arguments = (mask, None, bias, causal, block_size)
        output = blockwise_attention(wide(query), wide(key), wide(value), *arguments)
        return ops.cast(output, "float16")
    shape = (None, None, length, key.shape[2])  # of a batch, below
    check_broadcast("mask", mask, shape)
    check_broadcast("bias", bias, shape)
    mask, bias = (None if x is None else _rank_4(x) for x in (mask, bias))

    @ops.custom_gradient
    def attend(query, key, value, *bias):
        blocks = _Blocks(block_size, query, key, mask, bias[0] if bias else None, causal)
        output = _forward(blocks, value)
        # Without a copy, the result would hold its own gradient function on PyTorch.
        result = ops.stop_gradient(output)

        def gradient(*args, upstream=None):
            # PyTorch passes the function's arguments and `upstream` by name; others pass it alone.
            upstream = args[0] if upstream is None else upstream
            return _gradients(blocks, value, result, upstream)

        return output, gradient

    return attend(query, key, value, *([] if bias is None else [bias]))


class _Blocks:
    """Attention of a block of b queries to all keys, for one block after the other.

    The arguments are those of `blockwise_attention`; mask and bias are None or have rank 4.
    """

    def __init__(self, size, query, key, mask, bias, causal):
        self.size = size
        self.length = ops.shape(query)[2]
        self.count = -(-self.length // size)
        self.key = key
        self.queries, self.masks, self.biases = map(self.split, (query, mask, bias))
        self.causal = causal

    def split(self, x):
        """[B, H, T, D] -> [n, B, H, b, D], padded by zeros; None, or T = 1, stays as it is."""
        if x is None:
            return None
        if x.shape[2] == 1:
            return x[None]
        return ops.transpose(chunks(x, self.size), (2, 0, 1, 3, 4))

    def join(self, blocks):
        """[n, B, H, b, D] -> [B, H, T, D]."""
        return joined(ops.transpose(blocks, (1, 2, 0, 3, 4)), self.length)

    def weights(self, i):
        """The attention weights of block i: [B, H, b, S]."""
        mask, bias = _get_block(self.masks, i), _get_block(self.biases, i)
        if self.causal:
            positions = i * self.size + ops.arange(self.size)
            visible = ops.arange(ops.shape(self.key)[2]) <= positions[:, None]
            mask = visible if mask is None else ops.logical_and(mask, visible)
        return attention_weights(self.queries[i], self.key, mask, bias)


def _forward(blocks, value):
    def add_block(i, output):
        return _set_block(output, i, ops.matmul(blocks.weights(i), value))

    shape = (*ops.shape(blocks.queries)[:-1], value.shape[-1])
    output = ops.fori_loop(0, blocks.count, add_block, ops.zeros(shape, value.dtype))
    return blocks.join(output)


def _gradients(blocks, value, output, upstream):
    """The gradients of the query, key, value and, if there is one, bias."""
    query, key, bias = blocks.queries, blocks.key, blocks.biases
    # The softmax's gradient is weights · (change - its weighted mean).
    mean = blocks.split(ops.sum(wide(output) * wide(upstream), axis=-1, keepdims=True))
    upstream = blocks.split(upstream)
    scale = query.shape[-1] ** -0.5

    def add_block(i, sums):
        d_query, d_key, d_value, *d_bias = sums
        weights = blocks.weights(i)
        change = wide(ops.matmul(upstream[i], transposed(value)))
        d_scores = wide(weights) * (change - mean[i])
        if bias is not None:
            [total], index = d_bias, 0 if bias.shape[0] == 1 else i
            d_bias = [_set_block(total, index, total[index] + _sum_to_shape(bias[0], d_scores))]
        d_scores = ops.cast(d_scores, key.dtype)
        d_query = _set_block(d_query, i, scale * ops.matmul(d_scores, key))
        d_key = d_key + scale * wide(ops.matmul(transposed(d_scores), query[i]))
        d_value = d_value + wide(ops.matmul(transposed(weights), upstream[i]))
        return d_query, d_key, d_value, *d_bias

    sums = [ops.zeros_like(query), *(ops.zeros_like(wide(x)) for x in (key, value))]
    sums += [] if bias is None else [ops.zeros_like(wide(bias))]
    d_query, d_key, d_value, *d_bias = ops.fori_loop(0, blocks.count, add_block, tuple(sums))
    gradients = [blocks.join(d_query), ops.cast(d_key, key.dtype), ops.cast(d_value, value.dtype)]
    for gradient in d_bias:
        gradient = gradient[0] if bias.shape[0] == 1 else blocks.join(gradient)
        gradients.append(ops.cast(gradient, bias.dtype))
    return tuple(gradients)


def _sum_to_shape(bias, gradient):
    """The gradient of a bias that is broadcast: the sum over its axes of length one."""
    axes = [axis for axis in range(4) if bias.shape[axis] == 1]
    return ops.sum(gradient, axis=axes, keepdims=True) if axes else gradient


def _set_block(blocks, i, block):
    return ops.slice_update(blocks, (i, 0, 0, 0, 0), ops.cast(block, blocks.dtype)[None])


def _get_block(blocks, i):
    """Block i of a mask or bias, which is the same for all if there is one only."""
    if blocks is None:
        return None
    return blocks[0] if blocks.shape[0] == 1 else blocks[i]


def _rank_4(x):
    x = ops.convert_to_tensor(x)
    return ops.reshape(x, (*[1] * (4 - len(x.shape)), *ops.shape(x)))
