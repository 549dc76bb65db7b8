"""One encoder block."""

import keras

from zoo.layers.attention import MultiHeadSelfAttention
from zoo.layers.config import ConfigMixin
from zoo.layers.feed_forward import FeedForward
from zoo.layers.residual import Residual


@keras.saving.register_keras_serializable("zoo")
class TransformerEncoder(ConfigMixin, keras.layers.Layer):
    """One block: self-attention, then feed-forward, each with its residual connection.

    Source: Vaswani et al. 2017, section 3.1, with ``norm="post", activation="relu"``; Dosovitskiy
    et al. 2020, section 3.1, equations 2 and 3, with the defaults. A pre-norm stack needs one more
    layer normalization after its last block: that belongs to the model.

    Args:
        embed_dim: E, width of the block.
        num_heads: H.
        ff_dim: hidden width of the feed-forward network; ``4 * embed_dim`` by default.
        dropout: rate in [0, 1) on the output of both parts and on the hidden units.
        attention_dropout: rate in [0, 1) on the attention weights.
        norm: "pre" or "post"; see `zoo.layers.Residual`, as for the two that follow.
        stochastic_depth: rate in [0, 1) at which a part is left out for a whole example.
        layer_scale: start of the learned scale of each part's output; none by default.
        activation: activation of the feed-forward network.
        key_dim: D, width of a head; ``embed_dim / num_heads`` by default.
        epsilon: added to the variance in the layer normalizations.

    Inputs: `x` [B, T, E]; `mask` bool, True = attend: a padding mask [B, T] or any mask
    broadcastable to [B, H, T, T]; `bias`, added to the scores, broadcastable likewise.
    `num_queries`: only that many positions, the first, are computed, for a last block of which no
    more is read.

    Output: [B, T, E]; [B, num_queries, E] with `num_queries`.

    Raises:
        ValueError: if `num_heads` does not divide `embed_dim` and there is no `key_dim`, or if
            `norm` is unknown.
    """

    def __init__(
        self,
        embed_dim,
        num_heads,
        ff_dim=None,
        dropout=0.0,
        attention_dropout=0.0,
        norm="pre",
        stochastic_depth=0.0,
        layer_scale=None,
        activation="gelu",
        key_dim=None,
        epsilon=1e-6,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.ff_dim = ff_dim
        self.dropout = dropout
        self.attention_dropout = attention_dropout
        self.norm = norm
        self.stochastic_depth = stochastic_depth
        self.layer_scale = layer_scale
        self.activation = activation
        self.key_dim = key_dim
        self.epsilon = epsilon
        self.supports_masking = True
        policy = self.dtype_policy
        self.attention = self._residual(
            MultiHeadSelfAttention(
                embed_dim,
                num_heads,
                key_dim,
                dropout=attention_dropout,
                dtype=policy,
                name="layer",
            ),
            "attention",
        )
        self.feed_forward = self._residual(
            FeedForward(embed_dim, ff_dim, activation, dropout, dtype=policy, name="layer"),
            "feed_forward",
        )

    def build(self, input_shape):
        self.attention.build(input_shape)
        self.feed_forward.build(input_shape)

    def call(self, x, mask=None, num_queries=None, bias=None):
        x = self.attention(x, mask=mask, num_queries=num_queries, bias=bias)
        return self.feed_forward(x)

    def attention_weights(self, x, mask=None, bias=None):
        """What each position of the input takes from each other one: [B, H, T, T]."""
        return self.attention.layer.attention_weights(self.attention.layer_input(x), mask, bias)

    def compute_mask(self, inputs, previous_mask):
        return getattr(inputs, "_keras_mask", None)

    def compute_output_shape(self, input_shape):
        return input_shape

    def _residual(self, layer, name):
        return Residual(
            layer,
            self.norm,
            self.dropout,
            self.stochastic_depth,
            self.layer_scale,
            self.epsilon,
            dtype=self.dtype_policy,
            name=name,
        )
