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
from zoo.layers.normalization import LayerNormalization
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
    """What the blocks share: their arguments, and the residual connection.

    A block computes, for each of its sub-layers, by `pre_norm` and `residual`:

    - ``norm="pre"``: x + dropout(sublayer(norm(x)))
    - ``norm="post"``: norm(x + dropout(sublayer(x)))

    The arguments are described in `zoo.layers.TransformerEncoder`. A pre-norm stack needs one more
    layer normalization after its last block, which belongs to the model.
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
        self._attention = attention
        self.input_spec = keras.layers.InputSpec(ndim=3)
        self.create_sublayers()
        settings = {"kernel_initializer": kernel_initializer, "dtype": self.dtype_policy}
        self.feed_forward = FeedForward(
            embed_dim, ff_dim, activation, dropout, **settings, name="feed_forward"
        )
        self._dropout = Dropout(dropout, dtype=self.dtype_policy)
        whole = (None, 1, 1)  # a draw for each example
        self._stochastic_depth = Dropout(stochastic_depth, whole, dtype=self.dtype_policy)

    def create_sublayers(self):
        """Creates the normalizations, the layer scales and the attention of the block."""
        raise NotImplementedError

    def build(self, input_shape):
        build_layers(self, input_shape)

    def pre_norm(self, norm, x):
        """The input of a sub-layer: `x`, normalized in a pre-norm block."""
        return norm(x) if self.norm == "pre" else x

    def residual(self, x, y, norm, scale):
        """x + dropout(scale · y), with `y` the output of a sub-layer; normalized if post-norm."""
        y = self._stochastic_depth(self._dropout(y if scale is None else scale(y)))
        x = ops.convert_to_tensor(x) + y  # `ops.add` may take an empty batch for a bias
        return norm(x) if self.norm == "post" else x

    def add_feed_forward(self, x):
        """The output of the block, given the sum after its attention."""
        y = self.feed_forward(self.pre_norm(self.feed_forward_norm, x))
        return self.residual(x, y, self.feed_forward_norm, self.feed_forward_scale)

    def norm_layer(self, name):
        return LayerNormalization(self.epsilon, dtype=self.dtype_policy, name=name)

    def scale_layer(self, name):
        """A layer scale, or None if the block has none."""
        if self.layer_scale is None:
            return None
        return LayerScale(self.layer_scale, dtype=self.dtype_policy, name=name)

    def attention_layer(self, layer_class, name, **arguments):
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
        norm: "pre" or "post": whether layer normalization comes before each sub-layer, or after
            each residual sum.
        activation: activation of the feed-forward network; see `zoo.layers.FeedForward`.
        stochastic_depth: rate in [0, 1) at which, in training, a sub-layer is skipped for a whole
            example; otherwise its output is divided by 1 - rate. Source: Huang et al. 2016.
        layer_scale: if given, the output of each sub-layer is multiplied by a learned vector that
            starts at this value, see `zoo.layers.LayerScale`.
        key_dim: D, width of a head; ``embed_dim / num_heads`` by default.
        qkv_bias: whether the projections to queries, keys and values have biases.
        epsilon: added to the variance in the layer normalizations.
        kernel_initializer: initializer of the matrices, such as "glorot_uniform" (Xavier) or
            "he_normal".
        attention: "softmax", "blockwise" or "linear", see `zoo.layers.MultiHeadSelfAttention`.

    Inputs: `x` [B, T, E]; `mask` bool, True = attend: see `zoo.layers.attention_mask`; `bias`,
    added to the scores, broadcastable to [B, H, T, T]; `angles` of `zoo.layers.RotaryPositions`,
    [B, 1, T, D].
    Output: [B, T, E].

    Raises:
        ValueError: if `num_heads` does not divide `embed_dim` and there is no `key_dim`, or if
            `norm` or `attention` is unknown.
    """

    def create_sublayers(self):
        self.attention_norm = self.norm_layer("attention_norm")
        self.attention_scale = self.scale_layer("attention_scale")
        self.feed_forward_norm = self.norm_layer("feed_forward_norm")
        self.feed_forward_scale = self.scale_layer("feed_forward_scale")
        self.attention = self.attention_layer(
            MultiHeadSelfAttention, "attention", attention=self._attention
        )

    def call(self, x, mask=None, bias=None, angles=None):
        y = self.pre_norm(self.attention_norm, x)
        y = self.attention(y, mask=mask, bias=bias, angles=angles)
        x = self.residual(x, y, self.attention_norm, self.attention_scale)  # equation 2
        return self.add_feed_forward(x)  # equation 3

    def first_tokens(self, x, count, mask=None, bias=None, angles=None):
        """The output at the first `count` positions, for less work than all: [B, count, E]."""
        y = self.pre_norm(self.attention_norm, x)
        y = self.attention.first_tokens(y, count, mask, bias, angles)
        x = self.residual(x[:, :count], y, self.attention_norm, self.attention_scale)
        return self.add_feed_forward(x)

    def attention_weights(self, x, mask=None, bias=None, angles=None):
        """The attention weights of each position over all, without dropout: [B, H, T, T]."""
        x = self.pre_norm(self.attention_norm, x)
        return self.attention.attention_weights(x, mask, bias, angles)


@keras.saving.register_keras_serializable("zoo")
class TransformerDecoder(TransformerBlock):
    """One block: causal self-attention, attention to the memory, feed-forward.

    Each has a residual connection. To decode step by step, `start` makes a cache, and `step` takes
    it and returns the next.
    Source: Vaswani et al. 2017, section 3.1, with ``norm="post", activation="relu"``.

    Args:
        cross_attention: whether the block attends to a memory; not in a language model.
        embed_dim, num_heads, ff_dim, **kwargs: see `zoo.layers.TransformerEncoder`; `attention` is
            that of the self-attention, or "ssru" for a `zoo.layers.SSRU` in its place. This needs
            cross-attention, and supports neither `bias` nor `angles` nor a mask that depends on the
            query.

    Inputs: `x` [B, T, E]; `memory` [B, S, any width], such as an encoder's output, with
    cross-attention only; `mask` (in addition to the causal mask) and `memory_mask`, bool, True =
    attend: see `zoo.layers.attention_mask`; `bias`, added to the scores of the self-attention,
    broadcastable to [B, H, T, T]; `angles` of `zoo.layers.RotaryPositions` for it, [B, 1, T, D].
    Output: [B, T, E].

    Raises:
        ValueError: as `zoo.layers.TransformerEncoder`; when called, if a memory is missing or not
            expected.
    """

    def __init__(self, embed_dim, num_heads, ff_dim=None, *, cross_attention=True, **kwargs):
        self._has_memory = cross_attention
        super().__init__(embed_dim, num_heads, ff_dim, **kwargs)

    def create_sublayers(self):
        self.self_attention_norm = self.norm_layer("self_attention_norm")
        self.self_attention_scale = self.scale_layer("self_attention_scale")
        if self._has_memory:
            self.cross_attention_norm = self.norm_layer("cross_attention_norm")
            self.cross_attention_scale = self.scale_layer("cross_attention_scale")
        self.feed_forward_norm = self.norm_layer("feed_forward_norm")
        self.feed_forward_scale = self.scale_layer("feed_forward_scale")
        if self._attention == "ssru":
            if not self._has_memory:
                raise ValueError("A decoder block with attention='ssru' needs a memory.")
            settings = {"dtype": self.dtype_policy, "name": "self_attention"}
            self.self_attention = SSRU(self.embed_dim, self.kernel_initializer, **settings)
        else:
            kind = {"attention": self._attention, "causal": True}
            self.self_attention = self.attention_layer(
                MultiHeadSelfAttention, "self_attention", **kind
            )
        if self._has_memory:
            self.cross_attention = self.attention_layer(MultiHeadAttention, "cross_attention")

    def build(self, x_shape, memory_shape=None):
        self.self_attention.build(x_shape)
        if self._has_memory:
            self.cross_attention.build(x_shape, memory_shape or x_shape)
        super().build(x_shape)

    def call(self, x, memory=None, mask=None, memory_mask=None, bias=None, angles=None):
        self._check_memory(memory)
        x = self.add_self_attention(x, mask, bias, angles)
        if self._has_memory:
            y = self.pre_norm(self.cross_attention_norm, x)
            y = self.cross_attention(y, memory, mask=memory_mask)
            x = self.residual(x, y, self.cross_attention_norm, self.cross_attention_scale)
        return self.add_feed_forward(x)

    def add_self_attention(self, x, mask, bias, angles):
        """The sum after the self-attention."""
        y = self.pre_norm(self.self_attention_norm, x)
        y = self.self_attention(y, mask=mask, bias=bias, angles=angles)
        return self.residual(x, y, self.self_attention_norm, self.self_attention_scale)

    def start(self, length, memory=None, batch_size=None):
        """The cache of one hypothesis for up to `length` positions, a `DecoderCache`.

        Args:
            length: number of positions.
            memory: [B, S, width] or None. A mask that Keras attached to it has to be given to
                `step`: the cache does not keep it.
            batch_size: B, needed without a memory.
        """
        self._check_memory(memory)
        batch_size = batch_size if memory is None else ops.shape(memory)[0]
        projected = () if memory is None else self.cross_attention.project(memory)
        target = self.self_attention.allocate_cache(batch_size, length)
        return DecoderCache(target, projected)

    def step(self, x, cache, position, mask, memory_mask=None, bias=None, angles=None):
        """Computes new positions.

        Args:
            x, position, mask, bias, angles: see `zoo.layers.MultiHeadSelfAttention.step`.
            cache: `DecoderCache`, from `start` or the step before.
            memory_mask: bool, as for a call.

        Returns:
            ([B, T, E], the cache with `x` written to it).
        """
        y = self.pre_norm(self.self_attention_norm, x)
        y, target = self.self_attention.step(y, cache.target, position, mask, bias, angles)
        x = self.residual(x, y, self.self_attention_norm, self.self_attention_scale)
        if self._has_memory:
            y = self.pre_norm(self.cross_attention_norm, x)
            y = self.cross_attention.attend(y, cache.memory, memory_mask)
            x = self.residual(x, y, self.cross_attention_norm, self.cross_attention_scale)
        return self.add_feed_forward(x), cache._replace(target=target)

    def cross_attention_weights(
        self, x, memory, mask=None, memory_mask=None, bias=None, angles=None
    ):
        """The attention weights of each position over the memory: [B, H, T, S]."""
        self._check_memory(memory)
        x = self.add_self_attention(x, mask, bias, angles)
        x = self.pre_norm(self.cross_attention_norm, x)
        return self.cross_attention.attention_weights(x, memory, memory_mask)

    def _check_memory(self, memory):
        if (memory is not None) != self._has_memory:
            raise ValueError(
                "A decoder block needs a memory, unless it is made with cross_attention=False. "
                f"Received: cross_attention={self._has_memory}, "
                f"{'no memory' if memory is None else 'a memory'}."
            )
