"""The blocks of a Transformer.

Sources: Vaswani et al. 2017, "Attention Is All You Need", section 3.1 (post-norm); Dosovitskiy et
al. 2020, "An Image is Worth 16x16 Words", section 3.1, equations 2 and 3 (pre-norm).

Axes: B batch, T target tokens, S source tokens, H heads, D head width, E model width.
"""

import keras
from keras import ops

from zoo.errors import check_choice
from zoo.layers.cache import DecoderCache
from zoo.layers.config import SameShapeLayer, build_layers
from zoo.layers.dropout import Dropout
from zoo.layers.feed_forward import FeedForward
from zoo.layers.multi_head_attention import MultiHeadAttention, MultiHeadSelfAttention
from zoo.layers.normalization import normalization_layer
from zoo.layers.ssru import SSRU


@keras.saving.register_keras_serializable("zoo")
class LayerScale(SameShapeLayer):
    """Multiplies [B, T, E] by a learned vector [E] that starts at `initial_value`.

    Source: Touvron et al. 2021, "Going deeper with Image Transformers", section 2.
    """

    def __init__(self, initial_value, **kwargs):
        super().__init__(**kwargs)
        self.initial_value = initial_value

    def build(self, input_shape):
        start = keras.initializers.Constant(self.initial_value)
        self.gamma = self.add_weight((input_shape[-1],), start, name="gamma")

    def call(self, x):
        return x * ops.cast(self.gamma, x.dtype)


class TransformerBlock(SameShapeLayer):
    """Base class of the blocks. Its arguments are described in `TransformerEncoder`.

    A block consists of sub-layers, and computes for each of them

    - with ``norm="pre"``: x + dropout(sublayer(norm(x)))
    - with ``norm="post"``: norm(x + dropout(sublayer(x)))

    which is written as::

        y = self.pre_norm(norm, x)
        y = sublayer(y)
        x = self.residual(x, y, scale)
        x = self.post_norm(norm, x)

    A stack of pre-norm blocks needs one more normalization after its last block, which belongs to
    the model.
    """

    def __init__(
        self,
        embed_dim,
        num_heads,
        ff_dim,
        dropout,
        attention_dropout,
        norm,
        activation,
        stochastic_depth,
        layer_scale,
        key_dim,
        qkv_bias,
        epsilon,
        kernel_initializer,
        norm_type,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_choice("norm", norm, ("pre", "post"))
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.ff_dim = ff_dim
        self.dropout = dropout
        self.attention_dropout = attention_dropout
        self.norm = norm
        self.activation = activation
        self.stochastic_depth = stochastic_depth
        self.layer_scale = layer_scale
        self.key_dim = key_dim
        self.qkv_bias = qkv_bias
        self.epsilon = epsilon
        self.kernel_initializer = kernel_initializer
        self.norm_type = norm_type
        self.input_spec = keras.layers.InputSpec(ndim=3)

    def build(self, input_shape):
        build_layers(self, input_shape)

    def pre_norm(self, norm, x):
        """norm(x) in a pre-norm block; otherwise `x`."""
        return norm(x) if self.norm == "pre" else x

    def post_norm(self, norm, x):
        """norm(x) in a post-norm block; otherwise `x`."""
        return norm(x) if self.norm == "post" else x

    def residual(self, x, y, scale):
        """x + dropout(scale · y), where `y` is the output of a sub-layer: [B, T, E]."""
        if scale is not None:
            y = scale(y)
        y = self._stochastic_depth(self._dropout(y))
        return ops.convert_to_tensor(x) + y  # `ops.add` may take an empty batch for a bias

    def add_feed_forward(self, x):
        """The last sub-layer of each block: [B, T, E]."""
        y = self.pre_norm(self.feed_forward_norm, x)
        y = self.feed_forward(y)
        x = self.residual(x, y, self.feed_forward_scale)
        return self.post_norm(self.feed_forward_norm, x)

    def create_norm(self, name):
        return normalization_layer(self.norm_type, self.epsilon, dtype=self.dtype_policy, name=name)

    def create_scale(self, name):
        """A layer scale, or None if the block has none."""
        if self.layer_scale is None:
            return None
        return LayerScale(self.layer_scale, dtype=self.dtype_policy, name=name)

    def create_attention(self, layer_class, name, **arguments):
        return layer_class(
            self.embed_dim,
            self.num_heads,
            self.key_dim,
            dropout=self.attention_dropout,
            qkv_bias=self.qkv_bias,
            kernel_initializer=self.kernel_initializer,
            dtype=self.dtype_policy,
            name=name,
            **arguments,
        )

    def create_feed_forward(self):
        """Creates the feed-forward network, and the dropout of all sub-layers."""
        self.feed_forward = FeedForward(
            self.embed_dim,
            self.ff_dim,
            self.activation,
            self.dropout,
            self.kernel_initializer,
            dtype=self.dtype_policy,
            name="feed_forward",
        )
        self._dropout = Dropout(self.dropout, dtype=self.dtype_policy)
        whole_examples = (None, 1, 1)
        self._stochastic_depth = Dropout(
            self.stochastic_depth, whole_examples, dtype=self.dtype_policy
        )


@keras.saving.register_keras_serializable("zoo")
class TransformerEncoder(TransformerBlock):
    """One block: self-attention, then feed-forward, each with a residual connection.

    Source: Vaswani et al. 2017, section 3.1, with ``norm="post", activation="relu"``; Dosovitskiy
    et al. 2020, section 3.1, equations 2 and 3, with the defaults.

    Args:
        embed_dim: E, width of the block.
        num_heads: H.
        ff_dim: hidden width of the feed-forward network; ``4 * embed_dim`` by default.
        dropout: rate in [0, 1) on the output of each sub-layer and on the hidden units.
        attention_dropout: rate in [0, 1) on the attention weights.
        norm: "pre" or "post": whether normalization comes before each sub-layer, or after each
            residual sum.
        activation: activation of the feed-forward network; see `zoo.layers.FeedForward`.
        stochastic_depth: rate in [0, 1) at which, in training, a sub-layer is skipped for a whole
            example; otherwise its output is divided by 1 - rate. Source: Huang et al. 2016.
        layer_scale: if given, the output of each sub-layer is multiplied by a learned vector that
            starts at this value, see `zoo.layers.LayerScale`.
        key_dim: D, width of a head; ``embed_dim / num_heads`` by default.
        qkv_bias: whether the projections to queries, keys and values have biases.
        epsilon: added to the variance or mean square in the normalizations.
        kernel_initializer: initializer of the matrices, such as "glorot_uniform" (Xavier) or
            "he_normal".
        attention: "softmax", "blockwise" or "linear", see `zoo.layers.MultiHeadSelfAttention`.
        norm_type: "layer" or "rms", the kind of normalization: `zoo.layers.LayerNormalization` or
            `zoo.layers.RMSNormalization`.

    Inputs: `x` [B, T, E]; `mask` bool, True = attend: see `zoo.layers.attention_mask`; `bias`,
    added to the scores, broadcastable to [B, H, T, T]; `rotation` of `zoo.layers.RotaryPositions`,
    [B, 1, T, D].
    Output: [B, T, E].

    Raises:
        ValueError: if `num_heads` does not divide `embed_dim` and there is no `key_dim`, or if
            `norm`, `attention` or `norm_type` is unknown.
    """

    def __init__(
        self,
        embed_dim,
        num_heads,
        ff_dim=None,
        dropout=0.0,
        attention_dropout=0.0,
        norm="pre",
        activation="gelu",
        stochastic_depth=0.0,
        layer_scale=None,
        key_dim=None,
        qkv_bias=True,
        epsilon=1e-6,
        kernel_initializer="glorot_uniform",
        attention="softmax",
        norm_type="layer",
        **kwargs,
    ):
        super().__init__(
            embed_dim=embed_dim,
            num_heads=num_heads,
            ff_dim=ff_dim,
            dropout=dropout,
            attention_dropout=attention_dropout,
            norm=norm,
            activation=activation,
            stochastic_depth=stochastic_depth,
            layer_scale=layer_scale,
            key_dim=key_dim,
            qkv_bias=qkv_bias,
            epsilon=epsilon,
            kernel_initializer=kernel_initializer,
            norm_type=norm_type,
            **kwargs,
        )
        self.attention_norm = self.create_norm("attention_norm")
        self.attention_scale = self.create_scale("attention_scale")
        self.feed_forward_norm = self.create_norm("feed_forward_norm")
        self.feed_forward_scale = self.create_scale("feed_forward_scale")
        self.attention = self.create_attention(
            MultiHeadSelfAttention, "attention", attention=attention
        )
        self.create_feed_forward()

    def call(self, x, mask=None, bias=None, rotation=None):
        y = self.pre_norm(self.attention_norm, x)
        y = self.attention(y, mask=mask, bias=bias, rotation=rotation)
        x = self.residual(x, y, self.attention_scale)  # equation 2
        x = self.post_norm(self.attention_norm, x)
        return self.add_feed_forward(x)  # equation 3

    def first_tokens(self, x, count, mask=None, bias=None, rotation=None):
        """The output at the first `count` positions, for less work than all: [B, count, E]."""
        y = self.pre_norm(self.attention_norm, x)
        y = self.attention.first_tokens(y, count, mask, bias, rotation)  # [B, count, E]
        x = self.residual(x[:, :count], y, self.attention_scale)
        x = self.post_norm(self.attention_norm, x)
        return self.add_feed_forward(x)

    def attention_weights(self, x, mask=None, bias=None, rotation=None):
        """The attention weights of each position over all, without dropout: [B, H, T, T]."""
        y = self.pre_norm(self.attention_norm, x)
        return self.attention.attention_weights(y, mask, bias, rotation)


@keras.saving.register_keras_serializable("zoo")
class TransformerDecoder(TransformerBlock):
    """One block: causal self-attention, attention to the memory, feed-forward.

    Each has a residual connection. To decode step by step, `start` makes a cache, and `step` takes
    it and returns the next.
    Source: Vaswani et al. 2017, section 3.1, with ``norm="post", activation="relu"``.

    Args:
        embed_dim: E, width of the block.
        num_heads: H.
        ff_dim: hidden width of the feed-forward network; ``4 * embed_dim`` by default.
        cross_attention: whether the block attends to a memory; not in a language model.
        dropout: rate in [0, 1) on the output of each sub-layer and on the hidden units.
        attention_dropout: rate in [0, 1) on the attention weights.
        norm: "pre" or "post": whether normalization comes before each sub-layer, or after each
            residual sum.
        activation: activation of the feed-forward network; see `zoo.layers.FeedForward`.
        stochastic_depth: rate in [0, 1) at which, in training, a sub-layer is skipped for a whole
            example; otherwise its output is divided by 1 - rate. Source: Huang et al. 2016.
        layer_scale: if given, the output of each sub-layer is multiplied by a learned vector that
            starts at this value, see `zoo.layers.LayerScale`.
        key_dim: D, width of a head; ``embed_dim / num_heads`` by default.
        qkv_bias: whether the projections to queries, keys and values have biases.
        epsilon: added to the variance or mean square in the normalizations.
        kernel_initializer: initializer of the matrices, such as "glorot_uniform" (Xavier) or
            "he_normal".
        attention: the kind of self-attention: "softmax", "blockwise" or "linear", see
            `zoo.layers.MultiHeadSelfAttention`; or "ssru", a `zoo.layers.SSRU` in its place, which
            needs cross-attention, and supports no `bias`, no `rotation` and no mask that depends on
            the query.
        norm_type: "layer" or "rms", the kind of normalization: `zoo.layers.LayerNormalization` or
            `zoo.layers.RMSNormalization`.

    Inputs: `x` [B, T, E]; `memory` [B, S, any width], such as an encoder's output, with
    cross-attention only; `mask` (in addition to the causal mask) and `memory_mask`, bool, True =
    attend: see `zoo.layers.attention_mask`; `bias`, added to the scores of the self-attention,
    broadcastable to [B, H, T, T]; `rotation` of `zoo.layers.RotaryPositions` for it, [B, 1, T, D].
    Output: [B, T, E].

    Raises:
        ValueError: as `zoo.layers.TransformerEncoder`; when called, if a memory is missing or not
            expected.
    """

    def __init__(
        self,
        embed_dim,
        num_heads,
        ff_dim=None,
        *,
        cross_attention=True,
        dropout=0.0,
        attention_dropout=0.0,
        norm="pre",
        activation="gelu",
        stochastic_depth=0.0,
        layer_scale=None,
        key_dim=None,
        qkv_bias=True,
        epsilon=1e-6,
        kernel_initializer="glorot_uniform",
        attention="softmax",
        norm_type="layer",
        **kwargs,
    ):
        super().__init__(
            embed_dim=embed_dim,
            num_heads=num_heads,
            ff_dim=ff_dim,
            dropout=dropout,
            attention_dropout=attention_dropout,
            norm=norm,
            activation=activation,
            stochastic_depth=stochastic_depth,
            layer_scale=layer_scale,
            key_dim=key_dim,
            qkv_bias=qkv_bias,
            epsilon=epsilon,
            kernel_initializer=kernel_initializer,
            norm_type=norm_type,
            **kwargs,
        )
        self.has_memory = cross_attention
        self.self_attention_norm = self.create_norm("self_attention_norm")
        self.self_attention_scale = self.create_scale("self_attention_scale")
        if cross_attention:
            self.cross_attention_norm = self.create_norm("cross_attention_norm")
            self.cross_attention_scale = self.create_scale("cross_attention_scale")
        self.feed_forward_norm = self.create_norm("feed_forward_norm")
        self.feed_forward_scale = self.create_scale("feed_forward_scale")
        self.self_attention = self._create_self_attention(attention)
        if cross_attention:
            self.cross_attention = self.create_attention(MultiHeadAttention, "cross_attention")
        self.create_feed_forward()

    def _create_self_attention(self, kind):
        if kind != "ssru":
            return self.create_attention(
                MultiHeadSelfAttention, "self_attention", attention=kind, causal=True
            )
        if not self.has_memory:
            raise ValueError("A decoder block with attention='ssru' needs a memory.")
        return SSRU(
            self.embed_dim,
            self.kernel_initializer,
            dtype=self.dtype_policy,
            name="self_attention",
        )

    def build(self, x_shape, memory_shape=None):
        self.self_attention.build(x_shape)
        if self.has_memory:
            self.cross_attention.build(x_shape, memory_shape or x_shape)
        super().build(x_shape)

    def call(self, x, memory=None, mask=None, memory_mask=None, bias=None, rotation=None):
        self._check_memory(memory)
        x = self.add_self_attention(x, mask, bias, rotation)
        if self.has_memory:
            y = self.pre_norm(self.cross_attention_norm, x)
            y = self.cross_attention(y, memory, mask=memory_mask)
            x = self.residual(x, y, self.cross_attention_scale)
            x = self.post_norm(self.cross_attention_norm, x)
        return self.add_feed_forward(x)

    def add_self_attention(self, x, mask, bias, rotation):
        """The first sub-layer: [B, T, E]."""
        y = self.pre_norm(self.self_attention_norm, x)
        y = self.self_attention(y, mask=mask, bias=bias, rotation=rotation)
        x = self.residual(x, y, self.self_attention_scale)
        return self.post_norm(self.self_attention_norm, x)

    def start(self, length, memory=None, batch_size=None):
        """The cache of one hypothesis for up to `length` positions, a `DecoderCache`.

        Args:
            length: number of positions.
            memory: [B, S, width] or None. A mask that Keras attached to it has to be given to
                `step`: the cache does not keep it.
            batch_size: B, needed without a memory.
        """
        self._check_memory(memory)
        heads_of_memory = ()
        if memory is not None:
            batch_size = ops.shape(memory)[0]
            heads_of_memory = self.cross_attention.project(memory)
        target = self.self_attention.allocate_cache(batch_size, length)
        return DecoderCache(target, heads_of_memory)

    def step(self, x, cache, position, mask, memory_mask=None, bias=None, rotation=None):
        """Computes new positions.

        Args:
            x, position, mask, bias, rotation: see `zoo.layers.MultiHeadSelfAttention.step`.
            cache: `DecoderCache`, from `start` or the step before.
            memory_mask: bool, as for a call.

        Returns:
            ([B, T, E], the cache with `x` written to it).
        """
        y = self.pre_norm(self.self_attention_norm, x)
        y, target = self.self_attention.step(y, cache.target, position, mask, bias, rotation)
        x = self.residual(x, y, self.self_attention_scale)
        x = self.post_norm(self.self_attention_norm, x)
        if self.has_memory:
            y = self.pre_norm(self.cross_attention_norm, x)
            y = self.cross_attention.attend(y, cache.memory, memory_mask)
            x = self.residual(x, y, self.cross_attention_scale)
            x = self.post_norm(self.cross_attention_norm, x)
        return self.add_feed_forward(x), cache._replace(target=target)

    def cross_attention_weights(
        self, x, memory, mask=None, memory_mask=None, bias=None, rotation=None
    ):
        """The attention weights of each position over the memory: [B, H, T, S]."""
        self._check_memory(memory)
        x = self.add_self_attention(x, mask, bias, rotation)
        y = self.pre_norm(self.cross_attention_norm, x)
        return self.cross_attention.attention_weights(y, memory, memory_mask)

    def _check_memory(self, memory):
        if (memory is not None) != self.has_memory:
            raise ValueError(
                "A decoder block needs a memory, unless it is made with cross_attention=False. "
                f"Received: cross_attention={self.has_memory}, "
                f"{'no memory' if memory is None else 'a memory'}."
            )
