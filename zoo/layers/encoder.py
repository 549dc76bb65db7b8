"""One encoder block."""

import keras

from zoo.layers.attention import MultiHeadSelfAttention
from zoo.layers.residual import TransformerBlock
from zoo.layers.training import passed_on


@keras.saving.register_keras_serializable("zoo")
class TransformerEncoder(TransformerBlock):
    """One block: self-attention, then feed-forward, each with a residual connection.

    Source: Vaswani et al. 2017, section 3.1, with ``norm="post", activation="relu"``; Dosovitskiy
    et al. 2020, section 3.1, equations 2 and 3, with the defaults. A pre-norm stack needs one more
    layer normalization after its last block, which belongs to the model.

    Args:
        embed_dim: E, width of the block.
        num_heads: H.
        ff_dim: hidden width of the feed-forward network; ``4 * embed_dim`` by default.
        dropout: rate in [0, 1) on the output of each part and on the hidden units.
        attention_dropout: rate in [0, 1) on the attention weights.
        norm: "pre" or "post": whether layer normalization comes before each part, or after each
            residual sum.
        activation: activation of the feed-forward network; see `zoo.layers.FeedForward`.
        stochastic_depth: rate in [0, 1) at which, in training, a part is skipped for a whole
            example; its output is scaled up otherwise. Source: Huang et al. 2016.
        layer_scale: if given, the output of each part is multiplied by a learned vector that starts
            at this value. Source: Touvron et al. 2021, "Going deeper with Image Transformers",
            section 2.
        key_dim: D, width of a head; ``embed_dim / num_heads`` by default.
        qkv_bias: whether the projections to queries, keys and values have biases.
        epsilon: added to the variance in the layer normalizations.

    Inputs: `x` [B, T, E]; `mask` bool, True = attend: see `zoo.layers.attention_mask`; `bias`,
    added to the scores, broadcastable to [B, H, T, T].

    Output: [B, T, E].

    Raises:
        ValueError: if `num_heads` does not divide `embed_dim` and there is no `key_dim`, or if
            `norm` is unknown.
    """

    parts = ("attention", "feed_forward")

    def create_attention(self, settings):
        self.attention = MultiHeadSelfAttention(**settings, name="attention")

    def build(self, input_shape):
        super().build(input_shape)
        self.attention.build(input_shape)

    def call(self, x, mask=None, bias=None):
        x = self.residual("attention", x, lambda x: self.attention(x, mask=mask, bias=bias))
        return self.residual("feed_forward", x, self.feed_forward)

    def first_tokens(self, x, count, mask=None, bias=None, training=None):
        """The output at the first `count` positions alone, for less work than all.

        Args:
            x, mask, bias, training: as for a call.
            count: T', an int.

        Returns:
            [B, T', E].
        """

        def attention(x):
            return self.attention.first_queries(x, count, mask, bias, training)

        x = self.residual("attention", x, attention, x[:, :count], training)
        return self.residual(
            "feed_forward", x, lambda x: self.feed_forward(x, **passed_on(training)), None, training
        )

    def attention_weights(self, x, mask=None, bias=None):
        """The attention weight of each position for each other, without dropout: [B, H, T, T]."""
        x = self.attention_norm(x) if self.norm == "pre" else x
        return self.attention.attention_weights(x, mask, bias)
