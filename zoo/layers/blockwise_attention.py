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

    No tensor [B, H, T, S] is computed, neither forward nor backward, but [B, H, b, S]. Axes of
    length one are not expanded: in masks any of them, in biases the batch and the heads.

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
    if dropout is not None:
        value = dropout(value)
    length = query.shape[2]
    dtype = value.dtype
    if length is not None and length <= block_size:
        return scaled_dot_product_attention(query, key, value, mask, None, bias, causal)
    if causal:
        check_causal(query, key)
    scores_shape = (None, None, length, key.shape[2])  # below, the batch may be any
    check_broadcast("mask", mask, scores_shape)
    check_broadcast("bias", bias, scores_shape)
    queries = _blocks(query, block_size)  # [n, B, H, b, D]
    masks = None
    if mask is not None:
        masks = _blocks(_rank_4(mask), block_size)
    mapped = [ops.arange(ops.shape(queries)[0]), queries]
    if bias is not None:  # with T = 1, TensorFlow 2.21 would optimize its graph to empty gradients
        bias = _rank_4(bias)
        batch, heads, _, keys = ops.shape(bias)
        bias = ops.broadcast_to(bias, (batch, heads, ops.shape(query)[2], keys))
        mapped.append(_blocks(bias, block_size))
    # The gradients of keys and values are sums over the blocks, in the dtype of these copies.
    all_keys = at_least_float32(key)
    all_values = at_least_float32(value)
    training = compat.call_training()  # is not known any more when a block is computed again

    def attend(inputs):
        """The output of block i: [B, H, b, value_dim]."""
        i, *of_block = inputs

        @keras.remat
        def output(key, value, query, bias=None):
            block_mask = _mask_of_block(i, block_size, masks, causal, ops.shape(key)[2])
            key = ops.cast(key, query.dtype)
            value = ops.cast(value, dtype)
            with compat.call_context(training):
                return scaled_dot_product_attention(query, key, value, block_mask, bias=bias)

        return output(all_keys, all_values, *of_block)

    output = ops.map(attend, mapped)  # [n, B, H, b, value_dim]
    output = ops.transpose(output, (1, 2, 0, 3, 4))  # [B, H, n, b, value_dim]
    return joined(output, ops.shape(query)[2])


def _mask_of_block(i, size, masks, causal, num_keys):
    """The mask of block i, broadcastable to [B, H, b, S], or None."""
    mask = None
    if masks is not None:
        mask = masks[0] if masks.shape[0] == 1 else masks[i]
    if not causal:
        return mask
    positions = i * size + ops.arange(size)
    visible = ops.arange(num_keys) <= positions[:, None]  # [b, S]
    return visible if mask is None else ops.logical_and(mask, visible)


def _blocks(x, size):
    """[B, H, T, D] to [n, B, H, b, D], padded by zeros; of a mask with T = 1, n = 1."""
    if x.shape[2] == 1:
        return x[None]
    return ops.transpose(chunks(x, size), (2, 0, 1, 3, 4))


def _rank_4(x):
    x = ops.convert_to_tensor(x)
    while len(x.shape) < 4:
        x = x[None]
    return x
