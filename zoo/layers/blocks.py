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
        initializer = keras.initializers.Constant(self.initial_value)
        self.gamma = self.add_weight((input_shape[-1],), initializer, name="gamma")

    def call(self, x):
        return x * ops.cast(self.gamma, x.dtype)


class TransformerBlock(SameShapeLayer):
    """Base class of `TransformerEncoder` and `TransformerDecoder`.

    Each sub-layer has a residual connection:

    - with ``norm="pre"``, x + dropout(sublayer(norm(x)))
    - with ``norm="post"``, norm(x + dropout(sublayer(x)))

    A stack of pre-norm blocks needs one more normalization after its last block, which belongs to
    the model.
    """

    def build(self, input_shape):
        build_layers(self, input_shape)

    def pre_norm(self, norm, x):
        """norm(x) in a pre-norm block; otherwise `x`."""
        return norm(x) if self.norm == "pre" else x

    def post_norm(self, norm, x):
        """norm(x) in a post-norm block; otherwise `x`."""
        return norm(x) if self.norm == "post" else x

    def drop(self, y):
        """Dropout and stochastic depth of a sub-layer's output."""
        return self._stochastic_depth(self._dropout(y))

    def _add_feed_forward(self, x):
        """The last sub-layer of each block: [B, T, E]."""
        y = self.pre_norm(self.feed_forward_norm, x)
        y = self.feed_forward(y)
        x = x + self.drop(self.feed_forward_scale(y))
        return self.post_norm(self.feed_forward_norm, x)

    def _create_norm(self, name):
        return normalization_layer(self.norm_type, self.epsilon, dtype=self.dtype_policy, name=name)

    def _create_scale(self, name):
        if self.layer_scale is None:
            return keras.layers.Identity(dtype=self.dtype_policy, name=name)
        return LayerScale(self.layer_scale, dtype=self.dtype_policy, name=name)


@keras.saving.register_keras_serializable("zoo")
class TransformerEncoder(TransformerBlock):
    """Encoder block: self-attention and a feed-forward network, each with a residual connection.

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
        use_bias: whether the other projections, to the output of attention and in the feed-forward
            network, have biases.

    Inputs:
        x: [B, T, E].
        mask, bias, rotation: see `zoo.layers.MultiHeadSelfAttention`.

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
        use_bias=True,
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
        self.use_bias = use_bias
        self.input_spec = keras.layers.InputSpec(ndim=3)
        # The order of creation is that of the weights in `get_weights`.
        self.attention_norm = self._create_norm("attention_norm")
        self.attention_scale = self._create_scale("attention_scale")
        self.feed_forward_norm = self._create_norm("feed_forward_norm")
        self.feed_forward_scale = self._create_scale("feed_forward_scale")
        self.attention = MultiHeadSelfAttention(
            embed_dim,
            num_heads,
            key_dim,
            dropout=attention_dropout,
            qkv_bias=qkv_bias,
            output_bias=use_bias,
            kernel_initializer=kernel_initializer,
            attention=attention,
            dtype=self.dtype_policy,
            name="attention",
        )
        self.feed_forward = FeedForward(
            embed_dim,
            ff_dim,
            activation,
            dropout,
            kernel_initializer,
            use_bias,
            dtype=self.dtype_policy,
            name="feed_forward",
        )
        self._dropout = Dropout(dropout, dtype=self.dtype_policy)
        self._stochastic_depth = Dropout(
            stochastic_depth, noise_shape=(None, 1, 1), dtype=self.dtype_policy
        )  # one draw per example

    def call(self, x, mask=None, bias=None, rotation=None):
        y = self.pre_norm(self.attention_norm, x)
        y = self.attention(y, mask=mask, bias=bias, rotation=rotation)
        x = x + self.drop(self.attention_scale(y))  # equation 2
        x = self.post_norm(self.attention_norm, x)
        return self._add_feed_forward(x)  # equation 3

    def first_tokens(self, x, count, mask=None, bias=None, rotation=None):
        """Computes the output at the first `count` positions only: [B, count, E]."""
        x = ops.convert_to_tensor(x)
        y = self.pre_norm(self.attention_norm, x)
        y = self.attention.first_tokens(y, count, mask, bias, rotation)  # [B, count, E]
        x = x[:, :count] + self.drop(self.attention_scale(y))
        x = self.post_norm(self.attention_norm, x)
        return self._add_feed_forward(x)

    def attention_weights(self, x, mask=None, bias=None, rotation=None):
        """The attention weights of each position over all, without dropout: [B, H, T, T]."""
        y = self.pre_norm(self.attention_norm, x)
        return self.attention.attention_weights(y, mask, bias, rotation)


@keras.saving.register_keras_serializable("zoo")
class TransformerDecoder(TransformerBlock):
    """Decoder block: causal self-attention, attention to a memory and a feed-forward network.

    Each has a residual connection. To decode step by step, call `create_cache` once, then `step`.
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
        use_bias: whether the other projections, to the output of attention and in the feed-forward
            network, have biases.

    Inputs:
        x: [B, T, E].
        memory: [B, S, any width], such as the output of an encoder; with cross-attention only.
        mask: bool, True = attend, in addition to the causal mask; see `zoo.layers.attention_mask`.
        memory_mask: the mask of the cross-attention.
        bias, rotation: of the self-attention; see `zoo.layers.MultiHeadSelfAttention`.

    Output: [B, T, E].

    Raises:
        ValueError: see `zoo.layers.TransformerEncoder`; when called, if a memory is missing or not
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
        use_bias=True,
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
        self.use_bias = use_bias
        self.input_spec = keras.layers.InputSpec(ndim=3)
        if attention == "ssru" and not cross_attention:
            raise ValueError("A decoder block with attention='ssru' needs a memory.")
        self.has_memory = cross_attention
        # The order of creation is that of the weights in `get_weights`.
        self.self_attention_norm = self._create_norm("self_attention_norm")
        self.self_attention_scale = self._create_scale("self_attention_scale")
        if cross_attention:
            self.cross_attention_norm = self._create_norm("cross_attention_norm")
            self.cross_attention_scale = self._create_scale("cross_attention_scale")
        self.feed_forward_norm = self._create_norm("feed_forward_norm")
        self.feed_forward_scale = self._create_scale("feed_forward_scale")
        if attention == "ssru":
            self.self_attention = SSRU(
                embed_dim, kernel_initializer, dtype=self.dtype_policy, name="self_attention"
            )
        else:
            self.self_attention = MultiHeadSelfAttention(
                embed_dim,
                num_heads,
                key_dim,
                dropout=attention_dropout,
                qkv_bias=qkv_bias,
                output_bias=use_bias,
                kernel_initializer=kernel_initializer,
                attention=attention,
                causal=True,
                dtype=self.dtype_policy,
                name="self_attention",
            )
        if cross_attention:
            self.cross_attention = MultiHeadAttention(
                embed_dim,
                num_heads,
                key_dim,
                dropout=attention_dropout,
                qkv_bias=qkv_bias,
                output_bias=use_bias,
                kernel_initializer=kernel_initializer,
                dtype=self.dtype_policy,
                name="cross_attention",
            )
        self.feed_forward = FeedForward(
            embed_dim,
            ff_dim,
            activation,
            dropout,
            kernel_initializer,
            use_bias,
            dtype=self.dtype_policy,
            name="feed_forward",
        )
        self._dropout = Dropout(dropout, dtype=self.dtype_policy)
        self._stochastic_depth = Dropout(
            stochastic_depth, noise_shape=(None, 1, 1), dtype=self.dtype_policy
        )  # one draw per example

    def build(self, x_shape, memory_shape=None):
        self.self_attention.build(x_shape)
        if self.has_memory:
            self.cross_attention.build(x_shape, memory_shape or x_shape)
        super().build(x_shape)

    def call(self, x, memory=None, mask=None, memory_mask=None, bias=None, rotation=None):
        self._check_memory(memory)
        x = self._add_self_attention(x, mask, bias, rotation)

        if self.has_memory:
            y = self.pre_norm(self.cross_attention_norm, x)
            y = self.cross_attention(y, memory, mask=memory_mask)
            x = x + self.drop(self.cross_attention_scale(y))
            x = self.post_norm(self.cross_attention_norm, x)
        return self._add_feed_forward(x)

    def _add_self_attention(self, x, mask, bias, rotation):
        y = self.pre_norm(self.self_attention_norm, x)
        y = self.self_attention(y, mask=mask, bias=bias, rotation=rotation)
        x = x + self.drop(self.self_attention_scale(y))
        return self.post_norm(self.self_attention_norm, x)

    def create_cache(self, length, memory=None, batch_size=None):
        """Returns the cache of one hypothesis for up to `length` positions, a `DecoderCache`.

        Args:
            length: number of positions.
            memory: [B, S, width] or None. A mask that Keras attached to it is not kept in the
                cache: give it to `step`.
            batch_size: B, needed without a memory.
        """
        self._check_memory(memory)
        projected_memory = ()
        if memory is not None:
            batch_size = ops.shape(memory)[0]
            projected_memory = self.cross_attention.project(memory)
        self_attention = self.self_attention.create_cache(batch_size, length)
        return DecoderCache(self_attention, projected_memory)

    def step(self, x, cache, position, mask, memory_mask=None, bias=None, rotation=None):
        """Computes new positions.

        Args:
            x, position, mask, bias, rotation: see `zoo.layers.MultiHeadSelfAttention.step`.
            cache: `DecoderCache`, from `create_cache` or the step before.
            memory_mask: bool, as for a call.

        Returns:
            ([B, T, E], the cache with `x` written to it).
        """
        x = ops.convert_to_tensor(x)
        y = self.pre_norm(self.self_attention_norm, x)
        y, state = self.self_attention.step(y, cache.self_attention, position, mask, bias, rotation)
        x = x + self.drop(self.self_attention_scale(y))
        x = self.post_norm(self.self_attention_norm, x)

        if self.has_memory:
            y = self.pre_norm(self.cross_attention_norm, x)
            y = self.cross_attention.attend(y, cache.memory, memory_mask)
            x = x + self.drop(self.cross_attention_scale(y))
            x = self.post_norm(self.cross_attention_norm, x)
        return self._add_feed_forward(x), cache._replace(self_attention=state)

    def cross_attention_weights(
        self, x, memory, mask=None, memory_mask=None, bias=None, rotation=None
    ):
        """The attention weights of each position over the memory: [B, H, T, S]."""
        self._check_memory(memory)
        x = self._add_self_attention(ops.convert_to_tensor(x), mask, bias, rotation)
        y = self.pre_norm(self.cross_attention_norm, x)
        return self.cross_attention.attention_weights(y, memory, memory_mask)

    def _check_memory(self, memory):
        if (memory is not None) != self.has_memory:
            raise ValueError(
                "A decoder block needs a memory, unless it is made with cross_attention=False. "
                f"Received: cross_attention={self.has_memory}, "
                f"{'no memory' if memory is None else 'a memory'}."
            )
