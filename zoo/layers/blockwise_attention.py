"""Exact attention in memory that grows linearly with the length.

Sources: Rabe and Staats 2021, "Self-attention Does Not Need O(n²) Memory", for attention in blocks
of queries; Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost", for the gradient,
which computes the weights of each block again.

Axes: B batch, T queries, S keys, H heads, D head width, b block; n number of blocks.
"""

import keras
from keras import ops

from zoo import compat
from zoo.dtypes import at_least_float32
from zoo.layers.attention import (
    check_broadcast,
    check_causal,
    chunks,
    joined,
    scaled_dot_product_attention,
)

BLOCK_SIZE = 128


def blockwise_attention(
    query, key, value, mask=None, dropout=None, bias=None, causal=False, block_size=BLOCK_SIZE
):
    """What `zoo.layers.scaled_dot_product_attention` computes, for b queries at a time.

    Forward and backward, no tensor [B, H, T, S] is computed, but [B, H, b, S]. Of
    masks, axes of length one are not expanded; of biases, those of batch and heads.

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
    length, dtype = query.shape[2], value.dtype
    if length is not None and length <= block_size:
        return scaled_dot_product_attention(query, key, value, mask, None, bias, causal)
    if causal:
        check_causal(query, key)
    shape = (None, None, length, key.shape[2])  # of a batch, below
    check_broadcast("mask", mask, shape)
    check_broadcast("bias", bias, shape)
    blocks = [_blocks(query, block_size)]
    masks = None if mask is None else _blocks(_rank_4(mask), block_size)
    if bias is not None:  # with T = 1, TensorFlow 2.21 would optimize its graph to empty gradients
        bias = _rank_4(bias)
        shape = (*ops.shape(bias)[:2], ops.shape(query)[2], ops.shape(bias)[3])
        blocks.append(_blocks(ops.broadcast_to(bias, shape), block_size))
    # The gradients of keys and values are sums over the blocks, in the dtype of these copies.
    memory = at_least_float32(key), at_least_float32(value)
    training = compat.call_training()  # is not known any more when a block is computed again

    def attend(inputs):
        """The output of block i: [B, H, b, value_dim]."""
        i, *inputs = inputs

        @keras.remat
        def output(key, value, query, bias=None):
            block_mask = None if masks is None else masks[0 if masks.shape[0] == 1 else i]
            if causal:
                positions = i * block_size + ops.arange(block_size)
                visible = ops.arange(ops.shape(key)[2]) <= positions[:, None]
                block_mask = visible if masks is None else ops.logical_and(block_mask, visible)
            key, value = ops.cast(key, query.dtype), ops.cast(value, dtype)
            with compat.call_context(training):
                return scaled_dot_product_attention(query, key, value, block_mask, bias=bias)

        return output(*memory, *inputs)

    output = ops.map(attend, [ops.arange(ops.shape(blocks[0])[0]), *blocks])
    return joined(ops.transpose(output, (1, 2, 0, 3, 4)), ops.shape(query)[2])


def _blocks(x, size):
    """[B, H, T, D] -> [n, B, H, b, D], padded by zeros; of a mask with T = 1, n = 1."""
    return x[None] if x.shape[2] == 1 else ops.transpose(chunks(x, size), (2, 0, 1, 3, 4))


def _rank_4(x):
    x = ops.convert_to_tensor(x)
    return ops.reshape(x, (*[1] * (4 - len(x.shape)), *ops.shape(x)))
