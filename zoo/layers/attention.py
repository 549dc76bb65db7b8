"""Attention. Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.

Axes: B batch, T queries, S keys, H heads, D head width, E model width.
"""

import functools
import itertools

import keras
from keras import ops

from zoo.layers.cache import KeyValue
from zoo.layers.compiled import in_xla, trains_on_cpus, wide
from zoo.layers.config import ConfigMixin, own_initializer
from zoo.layers.dropout import Dropout
from zoo.layers.linear import Dense, linear
from zoo.layers.masks import attention_mask, carried_mask, causal_mask
from zoo.layers.rotary import rotate
from zoo.layers.training import training_argument


def scaled_dot_product_attention(query, key, value, mask=None, dropout=None, bias=None):
    """softmax(QKᵀ/√D)V, equation 1 of the paper, for every head at once.

    Args:
        query, key, mask, bias: see `attention_weights`.
        value: [B, H, S, value_dim].
        dropout: function applied to the weights, for training.

    Returns:
        [B, H, T, value_dim]. A query that may attend to nothing gives zeros.
    """
    weights = attention_weights(query, key, mask, bias)
    if dropout is not None:
        weights = dropout(weights)
    return ops.matmul(weights, value)


def attention_weights(query, key, mask=None, bias=None):
    """softmax(QKᵀ/√D + bias), the attention weights of each query over the keys.

    Args:
        query: [B, H, T, D].
        key: [B, H, S, D].
        mask: bool, True = attend, broadcastable to [B, H, T, S]; see `zoo.layers.padding_mask` and
            `zoo.layers.causal_mask`.
        bias: added to the scores, broadcastable to [B, H, T, S], such as
            `zoo.layers.RelativePositions`.

    Returns:
        [B, H, T, S] in the dtype of `query`. The softmax is computed in float32 or wider, and so
        are the scores of float16, which would overflow; those of bfloat16 are products in bfloat16.
        Each row sums to one; masked weights are exactly zero, and so are all of a query that may
        attend to nothing.
    """
    scores = attention_scores(query, key, mask, bias)
    return ops.cast(_masked_softmax(scores, mask), query.dtype)


def _masked_softmax(scores, mask):
    weights = ops.softmax(scores, axis=-1)
    if mask is not None:
        # A row that is masked as a whole has equal scores, so that its softmax is uniform.
        weights = ops.where(mask, weights, 0.0)
    return weights


def attention_scores(query, key, mask=None, bias=None, dtype=None):
    """QKᵀ/√D + bias, and -1e9 where masked: [B, H, T, S].

    The arguments are those of `attention_weights`; `dtype` is that of the result, by default
    float32, or float64 for a query in float64.
    """
    if keras.backend.standardize_dtype(query.dtype) == "float16":
        query, key = ops.cast(query, "float32"), ops.cast(key, "float32")
    # Scaling the query is cheaper than scaling the scores.
    query = query * query.shape[-1] ** -0.5
    scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))
    scores = ops.cast(scores, dtype) if dtype else wide(scores)
    for name, tensor in {"mask": mask, "bias": bias}.items():
        # Otherwise a mask [T, T] of a batch of one, for example, would make it a batch of T.
        shape, full = () if tensor is None else tuple(ops.shape(tensor)), tuple(scores.shape)
        pairs = zip(shape[::-1], full[::-1])
        if any(isinstance(x, int) and y is not None and x not in (1, y) for x, y in pairs):
            raise ValueError(f"{name} must broadcast to [B, H, T, S], {full}. Received: {shape}.")
    if bias is not None:
        scores = scores + ops.cast(bias, scores.dtype)
    return scores if mask is None else ops.where(mask, scores, -1e9)


def _with_explicit_gradient(query, key, value, mask):
    """`scaled_dot_product_attention` with a gradient that TensorFlow computes in fewer passes.

    With the weights W and the gradient U of the output O = WV, the gradient of the scores is
    W∘(UVᵀ - sums of the rows of U∘O): Dao et al. 2022, "FlashAttention", appendix B.2. As the
    product [U, -sums]·[V, 1]ᵀ it is rounded once. Two columns hold the sums, since one of bfloat16
    would lose more than the difference has.

    The arguments are of one dtype, but not float16, whose gradients would underflow, and of one
    batch size and number of heads.
    """

    @ops.custom_gradient
    def attend(query, key, value):
        # TensorFlow's softmax of bfloat16 computes in float32, so that scores need no cast; XLA's
        # does not.
        scores = attention_scores(query, key, mask, dtype=None if in_xla() else query.dtype)
        weights = ops.cast(_masked_softmax(scores, mask), query.dtype)
        output = ops.matmul(weights, value)

        def gradient(upstream):
            sums = ops.sum(wide(upstream) * wide(output), axis=-1, keepdims=True)
            high = ops.cast(sums, output.dtype)
            low = ops.cast(sums - wide(high), output.dtype)
            ones = ops.ones_like(value[..., :1])
            left = ops.concatenate([upstream, -high, -low], axis=-1)
            right = ops.concatenate([value, ones, ones], axis=-1)
            d_scores = weights * ops.matmul(left, ops.swapaxes(right, -1, -2))
            scale = query.shape[-1] ** -0.5
            return (
                ops.matmul(d_scores, key * scale),
                ops.matmul(ops.swapaxes(d_scores, -1, -2), query * scale),
                ops.matmul(ops.swapaxes(weights, -1, -2), upstream),
            )

        return output, gradient

    return attend(query, key, value)


def head_width(embed_dim, num_heads, key_dim=None):
    """D, the width of a head's queries and keys: `key_dim` if given.

    Raises:
        ValueError: if `num_heads` is less than 1, or does not divide `embed_dim` without `key_dim`.
    """
    if num_heads < 1:
        raise ValueError(f"num_heads must be at least 1. Received: num_heads={num_heads}.")
    if key_dim is None and embed_dim % num_heads:
        raise ValueError(
            f"num_heads must divide embed_dim. Received: embed_dim={embed_dim}, "
            f"num_heads={num_heads}. Change one of them, or set the width of a head by key_dim."
        )
    return key_dim or embed_dim // num_heads


def check_causal(query, key):
    """Raises ValueError if there are not as many queries [B, H, T, D] as keys [B, H, S, D]."""
    queries, keys = query.shape[2], key.shape[2]
    if None not in (queries, keys) and queries != keys:
        raise ValueError(
            "Causal attention needs as many queries as keys. "
            f"Received: causal=True, {queries} queries and {keys} keys."
        )


class _Attention(ConfigMixin, keras.layers.Layer):
    """What all kinds of attention share: settings, heads and the output projection."""

    _dropout_shape = None  # `noise_shape` of the dropout

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
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.store(locals())
        self.supports_masking = True
        self.input_spec = keras.layers.InputSpec(ndim=3)
        # widths of all heads together
        self._key_width = num_heads * head_width(embed_dim, num_heads, key_dim)
        self._value_width = num_heads * value_dim if value_dim else self._key_width
        self._weights_dropout = Dropout(dropout, self._dropout_shape, dtype=self.dtype_policy)
        self.output_projection = Dense(
            embed_dim,
            use_bias=output_bias,
            kernel_initializer=kernel_initializer,
            dtype=self.dtype_policy,
            name="output_projection",
        )

    def _projection(self, name, *widths):
        """A dense layer whose output holds several projections side by side."""
        return Dense(
            sum(widths),
            use_bias=self.qkv_bias,
            kernel_initializer=SideBySide(self.kernel_initializer, widths),
            dtype=self.dtype_policy,
            name=name,
        )

    def _heads(self, x, *widths):
        """[B, T, sum of the widths], projections side by side -> [B, H, T, D] of each."""
        if len(set(widths)) > 1:
            parts = ops.split(x, list(itertools.accumulate(widths[:-1])), axis=-1)
            return [self._heads(part, width)[0] for part, width in zip(parts, widths)]
        heads = len(widths) * self.num_heads  # one transpose is faster than one of each
        shape = (-1, ops.shape(x)[1], heads, x.shape[-1] // heads)
        return ops.split(ops.transpose(ops.reshape(x, shape), (0, 2, 1, 3)), len(widths), axis=1)

    def _attend(self, query, key, value, mask, bias=None, training=None, **options):
        """Heads of queries, keys and values -> [B, T, E]."""
        dropout = functools.partial(self._weights_dropout, **training_argument(training))
        return self._output(self._attention(query, key, value, mask, dropout, bias, **options))

    def _attention(self, query, key, value, mask, dropout, bias):
        """What `scaled_dot_product_attention` computes; other kinds of attention replace it."""
        return scaled_dot_product_attention(query, key, value, mask, dropout, bias)

    def _output(self, x):
        """Heads [B, H, T, value_dim] -> [B, T, E]."""
        x = ops.reshape(ops.transpose(x, (0, 2, 1, 3)), (-1, ops.shape(x)[2], self._value_width))
        return linear(self.output_projection, x)

    def compute_mask(self, inputs, previous_mask):
        # Keras would pass on the mask of the call, which is not the padding of the output: it may
        # be the memory's, or causal. The output is padded where the queries are.
        return carried_mask(inputs)


@keras.saving.register_keras_serializable("zoo")
class MultiHeadSelfAttention(_Attention):
    """Self-attention in several heads.

    Queries, keys and values come from one matrix product: the kernel of `qkv` holds the three
    projections side by side, each H·D wide (values: H·value_dim), with the heads in order.
    Source: Vaswani et al. 2017, section 3.2.2.

    Args:
        embed_dim: E, width of the output.
        num_heads: H.
        key_dim: D, width of a head's queries and keys; ``embed_dim / num_heads`` by default.
        value_dim: width of a head's values; that of its keys by default.
        dropout: rate in [0, 1) at which attention weights are dropped in training.
        qkv_bias: whether the projections to queries, keys and values have biases.
        output_bias: whether the projection to the output has a bias.
        kernel_initializer: initializer of each projection's matrix.

    Inputs: `x` [B, T, any width]; `mask` bool, True = attend: see `zoo.layers.attention_mask`;
    `bias`, added to the scores, broadcastable to [B, H, T, T]; `angles` of
    `zoo.layers.RotaryPositions`, [B, 1, T, D].
    Output: [B, T, E].

    Raises:
        ValueError: if `num_heads` is less than 1, or does not divide `embed_dim` without `key_dim`;
            on a call, if the mask has another rank or is floating point.
    """

    def build(self, input_shape):
        self.qkv = self._projection("qkv", self._key_width, self._key_width, self._value_width)
        self.qkv.build((None, input_shape[-1]))
        self.output_projection.build((None, self._value_width))

    def call(self, x, mask=None, bias=None, angles=None, training=None):
        mask = attention_mask(mask, keys=x)
        return self._attend(*self._project(x, angles), mask, bias, training)

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-1], self.embed_dim)

    def first_queries(self, x, count, mask=None, bias=None, angles=None, training=None):
        """The output at the first `count` positions, which attend to all of `x`: [B, count, E]."""
        query, key, value = self._project(x, angles)
        mask, bias = (
            tensor[..., :count, :] if tensor is not None and len(tensor.shape) > 1 else tensor
            for tensor in (attention_mask(mask, keys=x), bias)
        )
        return self._attend(query[:, :, :count], key, value, mask, bias, training)

    def allocate_cache(self, batch_size, length):
        """Zeros for the keys and values of `length` positions, for `step`: a `KeyValue`."""
        heads, widths = self.num_heads, (self._key_width, self._value_width)
        shapes = [(batch_size, heads, length, width // heads) for width in widths]
        return KeyValue(*(ops.zeros(shape, self.compute_dtype) for shape in shapes))

    def step(self, x, cache, position, mask, bias=None, angles=None):
        """Computes new positions, which attend to those in the cache as `mask` allows.

        Args:
            x: [B, T, any width], the new positions.
            cache: `KeyValue` of S positions, see `allocate_cache`.
            position: index in the cache of the first of them, an int or a scalar tensor.
            mask: bool, broadcastable to [B, H, T, S].
            bias: added to the scores, broadcastable to [B, H, T, S].
            angles: of the new positions, as for a call.

        Returns:
            ([B, T, E], the cache with the keys and values of `x` written to it).
        """
        query, key, value = self._project(x, angles)
        cache = cache.write(key, value, position)
        return self._attend(query, *cache, attention_mask(mask), bias), cache

    def attention_weights(self, x, mask=None, bias=None, angles=None):
        """The attention weights of each position over all, without dropout: [B, H, T, T]."""
        query, key, _ = self._project(x, angles)
        return attention_weights(query, key, attention_mask(mask, keys=x), bias)

    def _attend(self, query, key, value, mask, bias=None, training=None, **options):
        explicit = (
            trains_on_cpus(training)
            and type(self)._attention is _Attention._attention
            and query.dtype != "float16"
            and bias is None
            and not self.dropout
        )
        if explicit:
            return self._output(_with_explicit_gradient(query, key, value, mask))
        return super()._attend(query, key, value, mask, bias, training, **options)

    def _project(self, x, angles=None):
        """Heads of the queries, keys and values."""
        widths = self._key_width, self._key_width, self._value_width
        query, key, value = self._heads(linear(self.qkv, x), *widths)
        if angles is not None:
            query, key = rotate(query, angles), rotate(key, angles)
        return query, key, value


class CausalMixin:
    """Makes self-attention causal if its `_attention` has an argument `causal`; list it first."""

    def call(self, x, mask=None, bias=None, angles=None, training=None):
        mask = attention_mask(mask, keys=x)
        return self._attend(*self._project(x, angles), mask, bias, training, causal=True)

    def first_queries(self, x, count, mask=None, bias=None, angles=None, training=None):
        mask = attention_mask(mask, keys=x)
        mask, bias = (x if x is None else x[..., :count, :count] for x in (mask, bias))
        angles = None if angles is None else angles[:, :, :count]
        projected = self._project(x[:, :count], angles)
        return self._attend(*projected, mask, bias, training, causal=True)

    def attention_weights(self, x, mask=None, bias=None, angles=None):
        mask = attention_mask(mask, causal_mask(ops.shape(x)[1]))
        return super().attention_weights(x, mask, bias, angles)


@keras.saving.register_keras_serializable("zoo")
class MultiHeadAttention(_Attention):
    """Attention of one sequence, the queries, to another, the memory, in several heads.

    Keys and values come from one matrix product: the kernel of `key_value` holds the two
    projections side by side. To attend to the same memory repeatedly, as in decoding, call
    `project` once and `attend` for each query.
    Source: Vaswani et al. 2017, sections 3.2.2 and 3.2.3 ("encoder-decoder attention").

    Args, Output, Raises: see `zoo.layers.MultiHeadSelfAttention`.

    Inputs: `query` [B, T, any width]; `memory` [B, S, any width]; `mask` bool, True = attend: see
    `zoo.layers.attention_mask`.
    """

    def build(self, query_shape, memory_shape):
        self.query = self._projection("query", self._key_width)
        self.query.build((None, query_shape[-1]))
        self.key_value = self._projection("key_value", self._key_width, self._value_width)
        self.key_value.build((None, memory_shape[-1]))
        self.output_projection.build((None, self._value_width))

    def call(self, query, memory, mask=None):
        return self.attend(query, self.project(memory), attention_mask(mask, keys=memory))

    def compute_output_shape(self, query_shape, memory_shape):
        return (*query_shape[:-1], self.embed_dim)

    def project(self, memory):
        """The heads of the memory's keys and values, a `KeyValue`."""
        widths = self._key_width, self._value_width
        return KeyValue(*self._heads(linear(self.key_value, memory), *widths))

    def attend(self, query, memory, mask=None):
        """Attends from `query` [B, T, any width] to the result of `project`: [B, T, E].

        The mask that the memory carries has to be given as `mask`: `project` does not keep it.
        """
        [query] = self._heads(linear(self.query, query), self._key_width)
        return self._attend(query, *memory, attention_mask(mask))

    def attention_weights(self, query, memory, mask=None):
        """The attention weights of each query over the memory, without dropout: [B, H, T, S]."""
        [query] = self._heads(linear(self.query, query), self._key_width)
        key, _ = self.project(memory)
        return attention_weights(query, key, attention_mask(mask, keys=memory))


@keras.saving.register_keras_serializable("zoo")
class SideBySide(keras.initializers.Initializer):
    """Initializes each of several kernels side by side by its own shape.

    Args:
        initializer: that of each kernel.
        widths: of the kernels.
    """

    def __init__(self, initializer, widths):
        self.initializer = initializer
        self.widths = widths

    def __call__(self, shape, dtype=None):
        parts = []
        for index, width in enumerate(self.widths):
            draw = own_initializer(keras.initializers.get(self.initializer))
            if isinstance(getattr(draw, "_init_seed", None), int):
                draw.seed = draw._init_seed + index
            parts.append(draw((*shape[:-1], width), dtype=dtype))
        return ops.concatenate(parts, axis=-1)

    def get_config(self):
        initializer = keras.saving.serialize_keras_object(self.initializer)
        return {"initializer": initializer, "widths": self.widths}
