"""One encoder block."""

import keras

from zoo.layers.attention import MultiHeadSelfAttention
from zoo.layers.residual import TransformerBlock


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

    Inputs: `x` [B, T, E]; `mask` bool, True = attend: see `zoo.layers.attention_mask`; `bias`,
    added to the scores, broadcastable to [B, H, T, T]; `angles` of `zoo.layers.RotaryPositions`,
    [B, 1, T, D].
    Output: [B, T, E].

    Raises:
        ValueError: if `num_heads` does not divide `embed_dim` and there is no `key_dim`, or if
            `norm` is unknown.
    """

    attention_layers = {"attention": MultiHeadSelfAttention}

    def build(self, input_shape):
        self.attention.build(input_shape)
        self.build_residuals(("attention", "feed_forward"), input_shape)

    def call(self, x, mask=None, bias=None, angles=None):
        x = self.residual("attention", x, mask=mask, bias=bias, angles=angles)
        return self.residual("feed_forward", x)

    def first_tokens(self, x, count, mask=None, bias=None, angles=None, training=None):
        """The output at the first `count` positions, for less work than all: [B, count, E]."""
        attended = self.sublayer_input("attention", x)
        attended = self.attention.first_queries(attended, count, mask, bias, angles, training)
        x = self.add_residual("attention", x[:, :count], attended, training)
        return self.residual("feed_forward", x, training=training)

    def attention_weights(self, x, mask=None, bias=None, angles=None):
        """The attention weights of each position over all, without dropout: [B, H, T, T]."""
        x = self.sublayer_input("attention", x)
        return self.attention.attention_weights(x, mask, bias, angles)
