"""Exact attention, computed block by block in memory that grows linearly with the length.

Sources: Milakov and Gimelshein 2018, "Online normalizer calculation for softmax", section 3, for
the running maximum and sum; Rabe and Staats 2021, "Self-attention Does Not Need O(n²) Memory",
for attention in blocks; Dao et al. 2022, "FlashAttention", section 3.1 and appendix B, for the
gradient, which computes the weights of each block again.

Axes: B batch, T queries, S keys, H heads, D head width, b block; n, m numbers of blocks.
"""

from typing import Any, NamedTuple

import keras
from keras import ops

from zoo.layers.attention import (
    CausalMixin,
    MultiHeadSelfAttention,
    attention_scores,
    check_causal,
    scaled_dot_product_attention,
)
from zoo.layers.masks import attention_mask, causal_mask

BLOCK_SIZE = 512


def blockwise_attention(
    query, key, value, mask=None, bias=None, causal=False, block_size=BLOCK_SIZE
):
    """What `zoo.layers.scaled_dot_product_attention` computes, without a tensor [B, H, T, S].

    Forward and backward, it holds only blocks of b·b scores at a time; masks and biases with axes
    of length one are not expanded either. Up to b queries are computed by
    `scaled_dot_product_attention`. Gradients of gradients are not supported.

    Args:
        query, key, value, mask, bias: see `zoo.layers.attention_weights` and
            `zoo.layers.scaled_dot_product_attention`.
        causal: whether a query attends to keys at its own position and before only; T = S. Blocks
            of keys after the queries are skipped.
        block_size: b.

    Returns:
        [B, H, T, value_dim]. A query that may attend to nothing gives zeros.

    Raises:
        ValueError: if `causal` and T != S.
    """
    length = query.shape[2]
    mask, bias = (None if x is None else _of_rank_4(x) for x in (mask, bias))
    if causal:
        check_causal(query, key)
    if length is not None and length <= block_size:
        mask = attention_mask(mask, causal_mask(length) if causal else None)
        return scaled_dot_product_attention(query, key, value, mask, bias=bias)
    if length is None:  # If T is 0, B cannot be inferred from the size of the query.
        shape = (ops.shape(key)[0], *ops.shape(query)[1:])
        query = ops.broadcast_to(query, shape)
    if key.shape[2] is None or key.shape[2] % block_size:
        # As blocks, it is padded by False, which hides the keys that pad the last block.
        mask = attention_mask(mask, ops.ones((1, ops.shape(key)[2]), "bool"))
    tensors = [_blocks(x, 2, block_size) for x in (query, key, value)]
    mask, bias = (None if x is None else _tiles(x, block_size) for x in (mask, bias))
    output = _attend(*tensors, mask, bias, causal)
    output = ops.reshape(ops.transpose(output, (1, 2, 0, 3, 4)), _merged(output))
    return output[:, :, : ops.shape(query)[2]]


def _blocks(x, axis, size):
    """Splits an axis in blocks, padded by zeros: [.., length, ..] -> [n, .., b, ..]."""
    if x.shape[axis] == 1:  # it is broadcast
        return x[None]
    shape = list(ops.shape(x))
    count = -(-shape[axis] // size)
    if x.shape[axis] is None:  # XLA cannot compile a loop over no blocks
        count = ops.maximum(count, 1)
    padding = [(0, 0)] * len(shape)
    padding[axis] = (0, count * size - shape[axis])
    x = ops.reshape(ops.pad(x, padding), (*shape[:axis], count, size, *shape[axis + 1 :]))
    return ops.moveaxis(x, axis, 0)


def _of_rank_4(x):
    x = ops.convert_to_tensor(x)
    return ops.reshape(x, (*[1] * (4 - len(x.shape)), *ops.shape(x)))


def _tiles(x, size):
    """A mask or bias, broadcastable to [B, H, T, S], in tiles: [n or 1, m or 1, B, H, b, b]."""
    return _blocks(_blocks(x, 3, size), 3, size)


def _merged(blocks):
    count, batch, heads, size, width = ops.shape(blocks)
    return batch, heads, count * size, width


def _attend(query, key, value, mask, bias, causal):
    """Attention of blocks [n, B, H, b, D] and tiles: [n, B, H, b, value_dim]."""

    @ops.custom_gradient
    def attend(query, key, value, *bias):
        tiles = _Tiles(query, key, mask, bias[0] if bias else None, causal)
        output, log_total = _forward(tiles, value)
        # Without a copy, the result would hold its own gradient function on PyTorch.
        result = ops.stop_gradient(output)

        def gradient(*args, upstream=None):
            # PyTorch passes the function's arguments and `upstream` by name; others pass it alone.
            upstream = args[0] if upstream is None else upstream
            return _gradients(tiles, value, result, log_total, upstream)

        return output, gradient

    return attend(query, key, value, *([] if bias is None else [bias]))


class _Tiles(NamedTuple):
    """The scores of blocks of queries for blocks of keys.

    Fields:
        query: [n, B, H, b, D].
        key: [m, B, H, b, D].
        mask: None, or bool, broadcastable to [n, m, B, H, b, b].
        bias: None, or broadcastable to it.
        causal: whether queries attend to their own position and before only.
    """

    query: Any
    key: Any
    mask: Any
    bias: Any
    causal: bool

    def keys_of(self, i):
        """The range of the blocks of keys that the queries of block i attend to."""
        return (0, i + 1) if self.causal else (0, ops.shape(self.key)[0])

    def queries_of(self, j):
        """The range of the blocks of queries that attend to the keys of block j."""
        return (j if self.causal else 0), ops.shape(self.query)[0]

    def scores(self, i, j):
        """(scores, which of them count or None): float32 [B, H, b, b], bool."""
        mask = None if self.mask is None else _tile(self.mask, i, j)
        if self.causal:
            size = self.query.shape[3]
            offsets = ops.arange(size)
            mask = attention_mask(mask, (j * size + offsets <= i * size + offsets[:, None])[None])
        bias = None if self.bias is None else _tile(self.bias, i, j)
        return attention_scores(self.query[i], self.key[j], mask, bias), mask

    def weights(self, i, j, log_total):
        """The attention weights, given the logarithm of the sum of exponentials in each row."""
        scores, mask = self.scores(i, j)
        return _visible(ops.exp(scores - log_total[i]), mask)


def _tile(x, i, j):
    x = x[0] if x.shape[0] == 1 else x[i]
    return x[0] if x.shape[0] == 1 else x[j]


def _visible(weights, mask):
    return weights if mask is None else ops.where(mask, weights, 0.0)


def _product(x, y):
    """The matrix product in the dtype of `y`, to be summed in that of `x`, float32 or wider."""
    return ops.cast(ops.matmul(ops.cast(x, y.dtype), y), x.dtype)


def _transposed(x):
    return ops.swapaxes(x, -1, -2)


def _forward(tiles, value):
    """The output in blocks, and the logarithm of the sum of exponentials: [n, B, H, b, 1]."""

    dtype = keras.backend.result_type(value.dtype, "float32")
    queries = ops.shape(tiles.query)[1:4]

    zeros = [ops.zeros((*queries, width), dtype) for width in (1, value.shape[-1])]

    def of_queries(i):
        def add_keys(j, state):
            maximum, total, output = state
            scores, mask = tiles.scores(i, j)
            new = ops.maximum(maximum, ops.max(scores, axis=-1, keepdims=True))
            weights, decay = _visible(ops.exp(scores - new), mask), ops.exp(maximum - new)
            total = total * decay + ops.sum(weights, axis=-1, keepdims=True)
            return new, total, output * decay + _product(weights, value[j])

        start = (zeros[0] - 1e9, *zeros)
        maximum, total, output = ops.fori_loop(*tiles.keys_of(i), add_keys, start)
        total = ops.where(total > 0.0, total, 1.0)  # of a query that may attend to nothing
        return maximum + ops.log(total), output / total

    log_total, output = _one_by_one(of_queries, ops.shape(tiles.query)[0], tuple(zeros))
    return ops.cast(output, value.dtype), log_total


def _one_by_one(function, count, zeros):
    """`function` of 0 to count - 1, stacked; its results are like `zeros`.

    `ops.map` computes several of them at once on TensorFlow, which takes more memory.
    """
    return ops.scan(lambda zeros, i: (zeros, function(i)), zeros, ops.arange(count))[1]


def _gradients(tiles, value, output, log_total, upstream):
    """The gradients of the query, key, value and, if there is one, bias, in blocks and tiles."""
    dtype = keras.backend.result_type(value.dtype, "float32")
    # The softmax's gradient is weights · (change - its weighted mean).
    mean = ops.sum(ops.cast(output, dtype) * ops.cast(upstream, dtype), axis=-1, keepdims=True)
    scale = tiles.query.shape[-1] ** -0.5

    def of_scores(i, j):
        weights = tiles.weights(i, j, log_total)
        change = ops.cast(ops.matmul(upstream[i], _transposed(value[j])), dtype)
        return weights, weights * (change - mean[i])

    zeros = [ops.zeros(ops.shape(x)[1:], dtype) for x in (tiles.query, tiles.key, value)]

    def of_queries(i):
        def add_keys(j, total):
            return total + _product(of_scores(i, j)[1], tiles.key[j])

        return scale * ops.fori_loop(*tiles.keys_of(i), add_keys, zeros[0])

    def of_keys(j):
        def add_queries(i, totals):
            weights, scores = map(_transposed, of_scores(i, j))
            products = _product(scores, tiles.query[i]), _product(weights, upstream[i])
            return tuple(map(ops.add, totals, products))

        of_key, of_value = ops.fori_loop(*tiles.queries_of(j), add_queries, tuple(zeros[1:]))
        return scale * of_key, of_value

    n, m = (ops.shape(x)[0] for x in (tiles.query, tiles.key))
    gradients = [
        _one_by_one(of_queries, n, zeros[0]),
        *_one_by_one(of_keys, m, tuple(zeros[1:])),
    ]
    inputs = [tiles.query, tiles.key, value]
    if tiles.bias is not None:
        gradients.append(_of_bias(tiles.bias, lambda i, j: of_scores(i, j)[1], n, m, dtype))
        inputs.append(tiles.bias)
    return tuple(ops.cast(x, like.dtype) for x, like in zip(gradients, inputs))


def _of_bias(bias, of_scores, n, m, dtype):
    """The gradient of a bias in tiles: that of the scores, summed where the bias is broadcast."""
    axes = [axis - 2 for axis in range(2, 6) if bias.shape[axis] == 1]

    def of_tile(i, j):
        return ops.sum(of_scores(i, j), axis=axes, keepdims=True) if axes else of_scores(i, j)

    zeros = ops.zeros(ops.shape(bias)[2:], dtype)
    rows = ops.zeros((m, *ops.shape(bias)[2:]), dtype)
    tiles = _one_by_one(lambda i: _one_by_one(lambda j: of_tile(i, j), m, zeros), n, rows)
    axes = [axis for axis in range(2) if bias.shape[axis] == 1]
    return ops.sum(tiles, axis=axes, keepdims=True) if axes else tiles


@keras.saving.register_keras_serializable("zoo")
class BlockwiseSelfAttention(MultiHeadSelfAttention):
    """`zoo.layers.MultiHeadSelfAttention` in memory that grows linearly with the length.

    It has the same weights and computes the same, see `zoo.layers.blockwise_attention`. The matrix
    of all attention weights is never computed, so in training `dropout` drops whole keys, each for
    all queries of a head (Zehui et al. 2019, "DropAttention", section 3).

    Args, Inputs, Output, Raises: see `zoo.layers.MultiHeadSelfAttention`. A subclass may set
    another `block_size`.
    """

    block_size = BLOCK_SIZE
    _dropout_shape = (None, None, None, 1)

    def _attention(self, query, key, value, mask, dropout, bias, causal=False):
        value = dropout(value)  # the product with weights whose columns are dropped
        return blockwise_attention(query, key, value, mask, bias, causal, self.block_size)


@keras.saving.register_keras_serializable("zoo")
class CausalBlockwiseSelfAttention(CausalMixin, BlockwiseSelfAttention):
    """Causal `zoo.layers.BlockwiseSelfAttention`: positions attend to themselves and those before.

    It needs no causal mask, which would have T·T entries, and skips blocks of later keys.
    """
