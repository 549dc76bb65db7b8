"""Attention. Source of all of it: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.

Axes: B batch, T queries, S keys, H heads, D head width, E model width.
"""

from typing import Any, NamedTuple

import keras
from keras import ops

from zoo.layers.config import ConfigMixin
from zoo.layers.masks import as_attention_mask, combine_masks


class KeyValue(NamedTuple):
    """Heads that can be attended to: `key` [B, H, S, D], `value` [B, H, S, value width]."""

    key: Any
    value: Any


def scaled_dot_product_attention(query, key, value, mask=None, dropout=None, bias=None):
    """softmax(QKᵀ/√D)V, equation 1 of the paper, for every head at once.

    Args:
        query: [B, H, T, D].
        key: [B, H, S, D].
        value: [B, H, S, value width].
        mask: bool, True = attend, broadcastable to [B, H, T, S]; see `zoo.layers.padding_mask` and
            `zoo.layers.causal_mask`.
        dropout: function applied to the weights, for training.
        bias: added to the scores, broadcastable to [B, H, T, S], such as
            `zoo.layers.RelativePositions`.

    Returns:
        [B, H, T, value width]. A query that may attend to nothing gives zeros.
    """
    weights = attention_weights(query, key, mask, bias)
    if dropout is not None:
        weights = dropout(weights)
    return ops.matmul(weights, value)


def attention_weights(query, key, mask=None, bias=None):
    """softmax(QKᵀ/√D + bias): how much each query takes from each key.

    Args:
        query: [B, H, T, D].
        key: [B, H, S, D].
        mask: bool, True = attend, broadcastable to [B, H, T, S].
        bias: added to the scores, broadcastable to [B, H, T, S].

    Returns:
        [B, H, T, S] in the dtype of `query`, computed in float32 or wider. Each row sums to one;
        what the mask hides is exactly zero, so a row that may attend to nothing is all zeros.
    """
    dtype = keras.backend.standardize_dtype(query.dtype)
    # Scaling the query, not the scores, is less work and keeps float16 from overflowing.
    query = query * query.shape[-1] ** -0.5
    scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))
    if dtype != "float64":
        scores = ops.cast(scores, "float32")
    if bias is not None:
        scores = scores + ops.cast(bias, scores.dtype)
    if mask is not None:
        scores = ops.where(mask, scores, -1e9)
    weights = ops.softmax(scores, axis=-1)
    if mask is not None:
        # Only a row that is hidden as a whole needs this: its scores are all equal.
        weights = ops.where(mask, weights, 0.0)
    return ops.cast(weights, dtype)


class _Attention(ConfigMixin, keras.layers.Layer):
    """What attention to oneself and to another sequence share: settings, heads, output."""

    def __init__(
        self,
        embed_dim,
        num_heads,
        key_dim=None,
        value_dim=None,
        dropout=0.0,
        use_bias=True,
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(**kwargs)
        if num_heads < 1:
            raise ValueError(f"num_heads must be at least 1. Received: num_heads={num_heads}.")
        if key_dim is None and embed_dim % num_heads:
            raise ValueError(
                f"num_heads must divide embed_dim. Received: embed_dim={embed_dim}, "
                f"num_heads={num_heads}. Change one of them, or give the heads' width as key_dim."
            )
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.key_dim = key_dim
        self.value_dim = value_dim
        self.dropout = dropout
        self.use_bias = use_bias
        self.kernel_initializer = kernel_initializer
        self.supports_masking = True
        self._weights_dropout = keras.layers.Dropout(dropout, dtype=self.dtype_policy)
        self.output_projection = self._projection("output", embed_dim)

    @property
    def _key_width(self):
        """Width of all heads' queries (or keys) together, H·D."""
        return self.num_heads * (self.key_dim or self.embed_dim // self.num_heads)

    @property
    def _value_width(self):
        """Width of all heads' values together."""
        return self.num_heads * self.value_dim if self.value_dim else self._key_width

    def _projection(self, name, *widths):
        """A dense layer that makes projections of these widths in one matrix product."""
        return keras.layers.Dense(
            sum(widths),
            use_bias=self.use_bias,
            kernel_initializer=_side_by_side(self.kernel_initializer, widths),
            dtype=self.dtype_policy,
            name=name,
        )

    def compute_mask(self, inputs, previous_mask):
        # Keras would pass on the mask given to the call, which need not be the output's: it may be
        # the memory's, or causal. The output is padded where the queries are.
        return getattr(inputs, "_keras_mask", None)

    def _heads(self, projected, length):
        """[B·T, H·D] -> [B, H, T, D]."""
        width = projected.shape[-1] // self.num_heads
        return ops.transpose(
            ops.reshape(projected, (-1, length, self.num_heads, width)), (0, 2, 1, 3)
        )

    def _attend(self, query, key, value, mask, bias=None):
        """Heads of queries, keys and values -> [B, T, E]."""
        dropout = self._weights_dropout if self.dropout else None
        x = scaled_dot_product_attention(query, key, value, mask, dropout, bias)
        x = ops.reshape(ops.transpose(x, (0, 2, 1, 3)), (-1, self._value_width))
        x = self.output_projection(x)
        return ops.reshape(x, (-1, ops.shape(query)[2], self.embed_dim))


@keras.saving.register_keras_serializable("zoo")
class MultiHeadSelfAttention(_Attention):
    """Attention of a sequence to itself, in several heads.

    Queries, keys and values come from one matrix product: the kernel of `qkv` holds the three
    projections side by side, [E, H·D + H·D + H·value width], the heads of each in order.
    Source: Vaswani et al. 2017, section 3.2.2.

    Args:
        embed_dim: E, width of the output.
        num_heads: H.
        key_dim: D, width of a head's queries and keys; ``embed_dim / num_heads`` by default.
        value_dim: width of a head's values; that of its keys by default.
        dropout: rate in [0, 1) at which attention weights are dropped in training.
        use_bias: whether the projections have biases.
        kernel_initializer: initializer of each projection's matrix.

    Inputs: `x` [B, T, any width]; `mask` bool, True = attend: a padding mask [B, T] or any mask
    broadcastable to [B, H, T, T]; `bias`, added to the scores, broadcastable likewise.
    `num_queries`: only that many positions, the first, attend.

    Output: [B, T, E]; [B, num_queries, E] with `num_queries`.

    Raises:
        ValueError: if `num_heads` does not divide `embed_dim` and there is no `key_dim`; on a call,
            if the mask has another rank.
    """

    def build(self, input_shape):
        self.qkv = self._projection("qkv", self._key_width, self._key_width, self._value_width)
        self.qkv.build((None, input_shape[-1]))
        self.output_projection.build((None, self._value_width))

    def call(self, x, mask=None, num_queries=None, bias=None):
        query, key, value = self._project(x)
        mask = as_attention_mask(mask)
        if num_queries is not None:
            query = query[:, :, :num_queries]
            mask = None if mask is None else mask[:, :, :num_queries]
            bias = None if bias is None else bias[:, :, :num_queries]
        return self._attend(query, key, value, mask, bias)

    def empty_cache(self, batch_size, length):
        """Room for the keys and values of `length` positions, for `step`: a `KeyValue` of zeros."""
        widths = (self._key_width // self.num_heads, self._value_width // self.num_heads)
        shape = (batch_size, self.num_heads, length)
        return KeyValue(*(ops.zeros((*shape, width), self.compute_dtype) for width in widths))

    @staticmethod
    def write(room, heads, position):
        """`room` [B, H, S, D] with `heads` [B, H, T, D] in it, from `position` on.

        Export sets another function here, of operations that the format has.
        """
        return ops.slice_update(room, (0, 0, position, 0), heads)

    def step(self, x, cache, position, mask, bias=None):
        """Takes in further positions, which attend to those of the cache as `mask` says.

        Args:
            x: [B, T, any width], the new positions.
            cache: `KeyValue` of S positions, S being fixed: see `empty_cache`.
            position: where in the cache `x` begins, an int or a scalar tensor.
            mask: bool, broadcastable to [B, H, T, S].
            bias: added to the scores, broadcastable to [B, H, T, S].

        Returns:
            ([B, T, E], the cache with the keys and values of `x` in it).
        """
        query, *new = self._project(x)
        cache = KeyValue(*(self.write(old, heads, position) for old, heads in zip(cache, new)))
        return self._attend(query, *cache, as_attention_mask(mask), bias), cache

    def attention_weights(self, x, mask=None, bias=None):
        """What each position takes from each other one: [B, H, T, T], without dropout."""
        query, key, _ = self._project(x)
        return attention_weights(query, key, as_attention_mask(mask), bias)

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-1], self.embed_dim)

    def _project(self, x):
        """Heads of the queries, keys and values."""
        ends = (self._key_width, 2 * self._key_width)
        parts = ops.split(self.qkv(_rows(x)), ends, axis=-1)
        return [self._heads(part, ops.shape(x)[1]) for part in parts]


@keras.saving.register_keras_serializable("zoo")
class MultiHeadAttention(_Attention):
    """Attention of one sequence, the queries, to another, the memory, in several heads.

    Keys and values come from one matrix product: the kernel of `key_value` holds the two
    projections side by side. To attend to the same memory again and again, as in decoding, call
    `project` once and `attend` for each query.
    Source: Vaswani et al. 2017, sections 3.2.2 and 3.2.3 ("encoder-decoder attention").

    Args:
        embed_dim: E, width of the output.
        num_heads: H.
        key_dim: D, width of a head's queries and keys; ``embed_dim / num_heads`` by default.
        value_dim: width of a head's values; that of its keys by default.
        dropout: rate in [0, 1) at which attention weights are dropped in training.
        use_bias: whether the projections have biases.
        kernel_initializer: initializer of each projection's matrix.

    Inputs: `query` [B, T, any width]; `memory` [B, S, any width]; `mask` bool, True = attend: the
    padding mask of the memory [B, S] or any mask broadcastable to [B, H, T, S]. `memory_mask` is
    the mask that Keras carries along with the memory, if it has one; both are obeyed.

    Output: [B, T, E].

    Raises:
        ValueError: if `num_heads` does not divide `embed_dim` and there is no `key_dim`; on a call,
            if the mask has another rank.
    """

    def build(self, query_shape, memory_shape):
        self.query = self._projection("query", self._key_width)
        self.query.build((None, query_shape[-1]))
        self.key_value = self._projection("key_value", self._key_width, self._value_width)
        self.key_value.build((None, memory_shape[-1]))
        self.output_projection.build((None, self._value_width))

    def call(self, query, memory, mask=None, memory_mask=None):
        mask = combine_masks(as_attention_mask(mask), as_attention_mask(memory_mask))
        return self.attend(query, *self.project(memory), mask)

    def project(self, memory):
        """The memory's heads, a `KeyValue`."""
        parts = ops.split(self.key_value(_rows(memory)), [self._key_width], axis=-1)
        return KeyValue(*(self._heads(part, ops.shape(memory)[1]) for part in parts))

    def attend(self, query, key, value, mask=None):
        """Attends from `query` [B, T, any width] to what `project` returned: [B, T, E]."""
        return self._attend(self._query(query), key, value, as_attention_mask(mask))

    def attention_weights(self, query, memory, mask=None):
        """What each query takes from each position of the memory: [B, H, T, S], without dropout."""
        key, _ = self.project(memory)
        return attention_weights(self._query(query), key, as_attention_mask(mask))

    def compute_output_shape(self, query_shape, memory_shape):
        return (*query_shape[:-1], self.embed_dim)

    def _query(self, x):
        """Heads of the queries."""
        return self._heads(self.query(_rows(x)), ops.shape(x)[1])


def _rows(x):
    """[B, T, width] -> [B·T, width]: TensorFlow fuses product and bias of a matrix only."""
    return ops.reshape(x, (-1, x.shape[-1]))


def _side_by_side(initializer, widths):
    """Draws each of several matrices by itself, so that its own size sets its scale."""

    def initialize(shape, dtype=None):
        drawn = []
        for index, width in enumerate(widths):
            # A Keras initializer with a seed draws the same numbers on every call.
            part = keras.initializers.get(initializer).clone()
            if isinstance(getattr(part, "_init_seed", None), int):
                part.seed = part._init_seed + index
            drawn.append(part((*shape[:-1], width), dtype=dtype))
        return ops.concatenate(drawn, axis=-1)

    return initialize
