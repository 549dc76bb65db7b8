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
from zoo.layers.attention import check_broadcast, check_causal, scaled_dot_product_attention
from zoo.layers.chunks import join_chunks, split_into_chunks

BLOCK_SIZE = 128


def blockwise_attention(
    query, key, value, mask=None, dropout=None, bias=None, causal=False, block_size=BLOCK_SIZE
):
    """Computes `zoo.layers.scaled_dot_product_attention` in blocks of b queries.

    Only the scores of one block, [B, H, b, S], are in memory at a time, also for the gradient.

    Args:
        query, key, value, mask, bias, causal: see `zoo.layers.attention_weights` and
            `zoo.layers.scaled_dot_product_attention`.
        dropout: callable applied to the values in training: it drops whole keys.
        block_size: b. Up to this number of queries, there are no blocks.

    Returns:
        [B, H, T, value_dim]. A query that may attend to nothing gives zeros.

    Raises:
        ValueError: if the mask or the bias does not broadcast, or if `causal` and T != S.
    """
    if dropout is not None:
        value = dropout(value)
    length = query.shape[2]
    if length is not None and length <= block_size:
        return scaled_dot_product_attention(query, key, value, mask, None, bias, causal)
    if causal:
        check_causal(query, key)
    scores_shape = (None, None, length, key.shape[2])  # batch and heads are not checked
    check_broadcast("mask", mask, scores_shape)
    check_broadcast("bias", bias, scores_shape)

    # 1. Cut queries, masks and biases into blocks.
    queries = _blocks(query, block_size)  # [n, B, H, b, D]
    blocks = [ops.arange(ops.shape(queries)[0], dtype="int32"), queries]
    masks = None
    if mask is not None:
        masks = _blocks(_prepend_axes(mask), block_size)  # [n or 1, B or 1, H or 1, b or 1, S or 1]
    if bias is not None:
        bias = _prepend_axes(bias)
        batch, heads, _, keys = ops.shape(bias)
        # TensorFlow 2.21 would optimize the gradient of a bias with T = 1 away.
        bias = ops.broadcast_to(bias, (batch, heads, ops.shape(query)[2], keys))
        blocks.append(_blocks(bias, block_size))  # [n, B or 1, H or 1, b, S or 1]

    # 2. Attend from one block after the other. The gradient computes each block again.
    # Gradients of keys and values are sums over the blocks, in the dtype of these copies.
    keys = at_least_float32(key)
    values = at_least_float32(value)
    training = compat.call_training()  # unknown when the gradient computes a block again

    def attend(block):
        i, query_block, *bias_block = block

        @keras.remat
        def recomputed(keys, values, query, bias=None):
            mask = _mask_of_block(i, block_size, masks, causal, ops.shape(keys)[2])
            keys = ops.cast(keys, query.dtype)
            values = ops.cast(values, value.dtype)
            with compat.call_context(training):
                return scaled_dot_product_attention(query, keys, values, mask, bias=bias)

        return recomputed(keys, values, query_block, *bias_block)  # [B, H, b, value_dim]

    output = ops.map(attend, blocks)  # [n, B, H, b, value_dim]

    # 3. Join the blocks.
    output = ops.transpose(output, (1, 2, 0, 3, 4))  # [B, H, n, b, value_dim]
    return join_chunks(output, ops.shape(query)[2])


def _mask_of_block(i, size, masks, causal, num_keys):
    """The mask of block i, broadcastable to [B, H, b, S], or None."""
    mask = None
    if masks is not None:
        mask = masks[0] if masks.shape[0] == 1 else masks[i]
    if not causal:
        return mask
    positions = i * size + ops.arange(size, dtype="int32")
    visible = ops.arange(num_keys, dtype="int32") <= positions[:, None]  # [b, S]
    return visible if mask is None else ops.logical_and(mask, visible)


def _blocks(x, size):
    """[B, H, T, D] to [n, B, H, b, D], padded by zeros; with T = 1, n = 1 and b = 1."""
    if x.shape[2] == 1:
        return x[None]
    return ops.transpose(split_into_chunks(x, size), (2, 0, 1, 3, 4))


def _prepend_axes(x):
    """Adds axes of length one in front, up to rank 4."""
    x = ops.convert_to_tensor(x)
    while len(x.shape) < 4:
        x = x[None]
    return x
