"""Pooling by attention.

Axes: B batch, T tokens, E model width.
"""

import keras
from keras import ops

from zoo.layers.config import ConfigMixin, build_layers
from zoo.layers.feed_forward import FeedForward
from zoo.layers.multi_head_attention import MultiHeadAttention
from zoo.layers.normalization import normalization_layer


@keras.saving.register_keras_serializable("zoo")
class AttentionPool(ConfigMixin, keras.layers.Layer):
    """Pools tokens by the attention of a learned vector, the probe: y + FFN(norm(y)).

    Here y = attention(probe, x). Source: Zhai et al. 2021, "Scaling Vision Transformers", section
    3.2, multihead attention pooling (MAP); Lee et al. 2019, "Set Transformer", section 3.2.

    Args:
        embed_dim: E.
        num_heads: number of attention heads.
        ff_dim: hidden width of the feed-forward network; ``4 * embed_dim`` by default.
        activation: of the feed-forward network; see `zoo.layers.FeedForward`.
        key_dim: width of a head; ``embed_dim / num_heads`` by default.
        epsilon: added to the variance or mean square in the normalization.
        kernel_initializer: initializer of the matrices.
        norm_type: "layer" or "rms"; see `zoo.layers.normalization_layer`.

    Input: x, [B, T, E]. Output: [B, 1, E].
    """

    def __init__(
        self,
        embed_dim,
        num_heads,
        ff_dim=None,
        activation="gelu",
        key_dim=None,
        epsilon=1e-6,
        kernel_initializer="glorot_uniform",
        norm_type="layer",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.embed_dim = embed_dim
        self.attention = MultiHeadAttention(
            embed_dim,
            num_heads,
            key_dim,
            kernel_initializer=kernel_initializer,
            dtype=self.dtype_policy,
            name="attention",
        )
        self.norm = normalization_layer(norm_type, epsilon, dtype=self.dtype_policy, name="norm")
        self.feed_forward = FeedForward(
            embed_dim,
            ff_dim,
            activation,
            kernel_initializer=kernel_initializer,
            dtype=self.dtype_policy,
            name="feed_forward",
        )

    def build(self, input_shape):
        self.probe = self.add_weight((1, self.embed_dim), "glorot_uniform", name="probe")
        self.attention.build((None, 1, self.embed_dim), input_shape)
        build_layers(self, (None, 1, self.embed_dim))

    def call(self, x):
        y = self.attention(self._probe(x), x)  # [B, 1, E]
        return y + self.feed_forward(self.norm(y))

    def attention_weights(self, x):
        """The attention weights of the probe over the tokens: [B, heads, 1, T]."""
        return self.attention.attention_weights(self._probe(x), x)

    def _probe(self, x):
        probe = ops.cast(self.probe, x.dtype)
        return ops.broadcast_to(probe, (ops.shape(x)[0], 1, self.embed_dim))

    def compute_output_shape(self, input_shape):
        return (input_shape[0], 1, self.embed_dim)
