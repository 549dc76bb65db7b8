"""Multi-head attention. Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.2.

Axes: B batch, T queries, S keys, H heads, D head width, E model width.
"""

import keras
import numpy as np
from keras import ops

from zoo.errors import check_at_least_1, check_choice
from zoo.layers.attention import attention_weights, scaled_dot_product_attention
from zoo.layers.blockwise_attention import blockwise_attention
from zoo.layers.cache import KeyValue
from zoo.layers.config import SameLengthLayer, own_initializer
from zoo.layers.dense import Dense
from zoo.layers.dropout import Dropout
from zoo.layers.linear_attention import linear_attention, linear_attention_weights
from zoo.layers.masks import attention_mask
from zoo.layers.rotary import rotate
from zoo.layers.shapes import shape_for_reshape

ATTENTION = {
    "softmax": scaled_dot_product_attention,
    "blockwise": blockwise_attention,
    "linear": linear_attention,
}
WEIGHTS = {  # the functions that compute the weights of each kind
    "softmax": attention_weights,
    "blockwise": attention_weights,
    "linear": linear_attention_weights,
}


def head_width(embed_dim, num_heads, key_dim=None):
    """Returns D, the width of a head's queries and keys: `key_dim` if given.

    Raises:
        ValueError: if `num_heads` is less than 1, or does not divide `embed_dim` without `key_dim`.
    """
    check_at_least_1(num_heads=num_heads)
    if key_dim is not None:
        return key_dim
    if embed_dim % num_heads:
        raise ValueError(
            f"num_heads must divide embed_dim. Received: embed_dim={embed_dim}, "
            f"num_heads={num_heads}. Change one of them, or set the width of a head by key_dim."
        )
    return embed_dim // num_heads


class _MultiHead(SameLengthLayer):
    """Base class of `MultiHeadSelfAttention` and `MultiHeadAttention`; see their arguments.

    It has what both need beside attention itself: dropout, the output projection, and the reshaping
    of projections [B, T, H·D] to heads [B, H, T, D] and back.
    """

    def __init__(
        self,
        embed_dim,
        num_heads,
        key_dim=None,
        value_dim=None,
        dropout=0.0,
        qkv_bias=True,
        output_bias=True,
        kernel_initializer="glorot_uniform",
        attention="softmax",
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_choice("attention", attention, tuple(ATTENTION))
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.key_dim = key_dim
        self.value_dim = value_dim
        self.dropout = dropout
        self.qkv_bias = qkv_bias
        self.output_bias = output_bias
        self.kernel_initializer = kernel_initializer
        self.attention = attention
        self.input_spec = keras.layers.InputSpec(ndim=3)
        # widths of all heads together
        self._key_width = num_heads * head_width(embed_dim, num_heads, key_dim)
        self._value_width = self._key_width if value_dim is None else num_heads * value_dim
        self._dropout = None
        if dropout:
            # Softmax attention drops weights [B, H, T, S]. The others never have them all: they
            # drop rows of the values [B, H, S, value_dim], which are whole keys.
            noise_shape = None if attention == "softmax" else (None, None, None, 1)
            self._dropout = Dropout(dropout, noise_shape, dtype=self.dtype_policy)
        self.output_projection = Dense(
            embed_dim,
            use_bias=output_bias,
            kernel_initializer=own_initializer(kernel_initializer),
            dtype=self.dtype_policy,
            name="output_projection",
        )

    def _create_projection(self, name, *widths):
        """A dense layer that computes several projections side by side."""
        return Dense(
            sum(widths),
            use_bias=self.qkv_bias,
            kernel_initializer=SideBySide(self.kernel_initializer, widths),
            dtype=self.dtype_policy,
            name=name,
        )

    def _split_heads(self, x, *widths):
        """Projections side by side, [B, T, sum of the widths], to heads, [B, H, T, D] of each."""
        if len(set(widths)) > 1:
            return self._split_unequal_heads(x, widths)
        heads = self._heads(x, len(widths) * self.num_heads)  # one transpose, such as [B, 3H, T, D]
        return ops.split(heads, len(widths), axis=1)

    def _split_unequal_heads(self, x, widths):
        ends = np.cumsum(widths).tolist()
        parts = ops.split(x, ends[:-1], axis=-1)  # [B, T, H·D] of each
        return [self._heads(part, self.num_heads) for part in parts]

    def _heads(self, x, count):
        batch, length, width = shape_for_reshape(x, infers_unknown=True)
        x = ops.reshape(x, (batch, length, count, width // count))  # [B, T, count, D]
        return ops.transpose(x, (0, 2, 1, 3))  # [B, count, T, D]

    def _join_heads(self, heads):
        """[B, H, T, value_dim] to [B, T, H·value_dim]."""
        batch, _, length, _ = shape_for_reshape(heads, infers_unknown=True)
        x = ops.transpose(heads, (0, 2, 1, 3))  # [B, T, H, value_dim]
        return ops.reshape(x, (batch, length, self._value_width))  # [B, T, H·value_dim]


@keras.saving.register_keras_serializable("zoo")
class MultiHeadSelfAttention(_MultiHead):
    """Self-attention in several heads.

    Queries, keys and values come from one matrix product: the kernel of `qkv` holds the three
    projections side by side, each H·D wide (values: H·value_dim), with the heads in order.
    Source: Vaswani et al. 2017, section 3.2.2.

    Args:
        embed_dim: E, width of the output.
        num_heads: H.
        key_dim: D, width of a head's queries and keys; ``embed_dim / num_heads`` by default.
        value_dim: width of a head's values; that of its keys by default.
        dropout: rate in [0, 1) at which attention weights are dropped in training. With "blockwise"
            and "linear" attention, whole keys are dropped instead, each for all queries of a head
            (Zehui et al. 2019, "DropAttention", section 3).
        qkv_bias: whether the projections to queries, keys and values have biases.
        output_bias: whether the projection to the output has a bias.
        kernel_initializer: initializer of each projection's matrix.
        attention: "softmax", `zoo.layers.scaled_dot_product_attention`; "blockwise", which computes
            the same in memory that grows linearly with the length
            (`zoo.layers.blockwise_attention`); or "linear", `zoo.layers.linear_attention`, where
            the mask may not depend on the query and there is no bias.
        causal: whether a position attends to itself and those before only.

    Inputs:
        x: [B, T, any width].
        mask: bool, True = attend; see `zoo.layers.attention_mask`.
        bias: added to the scores, broadcastable to [B, H, T, T].
        rotation: of queries and keys, the output of `zoo.layers.RotaryPositions`: [B, 1, T, D].

    Output: [B, T, E].

    Raises:
        ValueError: if `num_heads` is less than 1, or does not divide `embed_dim` without `key_dim`,
            or if `attention` is unknown; on a call, if the rank of the mask is not 2, 3 or 4, or
            its dtype is floating point.
    """

    def __init__(
        self,
        embed_dim,
        num_heads,
        key_dim=None,
        value_dim=None,
        dropout=0.0,
        qkv_bias=True,
        output_bias=True,
        kernel_initializer="glorot_uniform",
        attention="softmax",
        causal=False,
        **kwargs,
    ):
        super().__init__(
            embed_dim,
            num_heads,
            key_dim,
            value_dim,
            dropout,
            qkv_bias,
            output_bias,
            kernel_initializer,
            attention,
            **kwargs,
        )
        self.causal = causal

    def build(self, input_shape):
        self.qkv = self._create_projection(
            "qkv", self._key_width, self._key_width, self._value_width
        )
        self.qkv.build((None, input_shape[-1]))
        self.output_projection.build((None, self._value_width))

    def call(self, x, mask=None, bias=None, rotation=None):
        query, key, value = self.project(x, rotation)  # [B, H, T, D]
        mask = attention_mask(mask, keys=x)
        # By default `scaled_dot_product_attention`: softmax(QKᵀ/√D + bias)V
        attend = ATTENTION[self.attention]
        heads = attend(
            query, key, value, mask=mask, dropout=self._dropout, bias=bias, causal=self.causal
        )  # [B, H, T, value_dim]
        return self.output_projection(self._join_heads(heads))  # [B, T, E]

    def project(self, x, rotation=None):
        """The heads of queries and keys, [B, H, T, D], and of values, [B, H, T, value_dim]."""
        query, key, value = self._split_heads(
            self.qkv(x), self._key_width, self._key_width, self._value_width
        )
        if rotation is not None:
            query = rotate(query, rotation)
            key = rotate(key, rotation)
        return query, key, value

    def first_tokens(self, x, count, mask=None, bias=None, rotation=None):
        """Computes the output at the first `count` positions only: [B, count, E].

        Not for causal attention. The rank of the bias is at least 2.
        """
        query, key, value = self.project(x, rotation)  # [B, H, T, D]
        query = query[:, :, :count]  # [B, H, count, D]
        mask = attention_mask(mask, keys=x)
        if mask is not None:
            mask = mask[:, :, :count]
        if bias is not None:
            bias = bias[..., :count, :]
        attend = ATTENTION[self.attention]
        heads = attend(
            query, key, value, mask=mask, dropout=self._dropout, bias=bias, causal=self.causal
        )  # [B, H, count, value_dim]
        return self.output_projection(self._join_heads(heads))

    def create_cache(self, batch_size, length):
        """Returns an empty cache for `step`: a `KeyValue` of zeros at `length` positions."""
        shape = (batch_size, self.num_heads, length)
        key = ops.zeros((*shape, self._key_width // self.num_heads), self.compute_dtype)
        value = ops.zeros((*shape, self._value_width // self.num_heads), self.compute_dtype)
        return KeyValue(key, value)

    def step(self, x, cache, position, mask, bias=None, rotation=None):
        """Computes new positions, which attend to those in the cache as `mask` allows.

        Linear attention computes its weights explicitly here, in time linear in the length of the
        cache, and supports any mask.

        Args:
            x: [B, T, any width], the new positions.
            cache: `KeyValue` of S positions; see `create_cache`.
            position: index in the cache of the first new position, an int or a scalar tensor.
            mask: bool, broadcastable to [B, H, T, S]: which positions the new ones attend to,
                themselves included.
            bias: added to the scores, broadcastable to [B, H, T, S].
            rotation: of the new positions, as for a call.

        Returns:
            ([B, T, E], the cache with the keys and values of `x` written to it).
        """
        query, key, value = self.project(x, rotation)  # [B, H, T, D]
        cache = cache.write(key, value, position)
        weights_of = WEIGHTS[self.attention]
        weights = weights_of(query, cache.key, attention_mask(mask), bias)  # [B, H, T, S]
        heads = ops.matmul(weights, cache.value)  # [B, H, T, value_dim]
        return self.output_projection(self._join_heads(heads)), cache

    def attention_weights(self, x, mask=None, bias=None, rotation=None):
        """The attention weights of each position over all, without dropout: [B, H, T, T]."""
        query, key, _ = self.project(x, rotation)
        weights_of = WEIGHTS[self.attention]
        return weights_of(query, key, attention_mask(mask, keys=x), bias, self.causal)


@keras.saving.register_keras_serializable("zoo")
class MultiHeadAttention(_MultiHead):
    """Attention of one sequence, the queries, to another, the memory, in several heads.

    Keys and values come from one matrix product: the kernel of `key_value` holds the two
    projections side by side. To attend to the same memory repeatedly, as in decoding, call
    `project` once and `attend` for each query.
    Source: Vaswani et al. 2017, sections 3.2.2 and 3.2.3 ("encoder-decoder attention").

    Args, Output, Raises: see `zoo.layers.MultiHeadSelfAttention`, without `causal`.

    Inputs:
        query: [B, T, any width].
        memory: [B, S, any width].
        mask: bool, True = attend; see `zoo.layers.attention_mask`.
    """

    def build(self, query_shape, memory_shape):
        self.query = self._create_projection("query", self._key_width)
        self.query.build((None, query_shape[-1]))
        self.key_value = self._create_projection("key_value", self._key_width, self._value_width)
        self.key_value.build((None, memory_shape[-1]))
        self.output_projection.build((None, self._value_width))

    def call(self, query, memory, mask=None):
        return self.attend(query, self.project(memory), attention_mask(mask, keys=memory))

    def project(self, memory):
        """The heads of the memory's keys and values, a `KeyValue`."""
        key, value = self._split_heads(self.key_value(memory), self._key_width, self._value_width)
        return KeyValue(key, value)

    def attend(self, query, memory, mask=None):
        """Attends to a projected memory.

        Args:
            query: [B, T, any width].
            memory: `KeyValue`, the result of `project`. A mask that Keras attached to the memory
                is not kept in it: give it as `mask`.
            mask: as for a call.

        Returns:
            [B, T, E].
        """
        query = self._heads(self.query(query), self.num_heads)  # [B, H, T, D]
        mask = attention_mask(mask)
        attend = ATTENTION[self.attention]
        heads = attend(
            query, memory.key, memory.value, mask=mask, dropout=self._dropout
        )  # [B, H, T, value_dim]
        return self.output_projection(self._join_heads(heads))

    def attention_weights(self, query, memory, mask=None):
        """The attention weights of each query over the memory, without dropout: [B, H, T, S]."""
        query = self._heads(self.query(query), self.num_heads)  # [B, H, T, D]
        key = self.project(memory).key  # [B, H, S, D]
        weights_of = WEIGHTS[self.attention]
        return weights_of(query, key, attention_mask(mask, keys=memory))


@keras.saving.register_keras_serializable("zoo")
class SideBySide(keras.initializers.Initializer):
    """Initializes kernels that are stored side by side, each by its own fan-in and fan-out.

    Args:
        initializer: initializer of each kernel.
        widths: widths of the kernels.
    """

    def __init__(self, initializer, widths):
        self.initializer = initializer
        self.widths = widths

    def __call__(self, shape, dtype=None):
        parts = []
        for index, width in enumerate(self.widths):
            initializer = own_initializer(keras.initializers.get(self.initializer))
            if hasattr(initializer, "seed"):
                seed = initializer.get_config().get("seed")
                if isinstance(seed, int):  # given by the user: the kernels still have to differ
                    initializer.seed = seed + index
            parts.append(initializer((*shape[:-1], width), dtype=dtype))
        return ops.concatenate(parts, axis=-1)

    def get_config(self):
        initializer = keras.saving.serialize_keras_object(self.initializer)
        return {"initializer": initializer, "widths": self.widths}
