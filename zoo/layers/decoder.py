"""One decoder block.

Axes: B batch, T target tokens, S source tokens, H heads, D head width, E model width.
"""

from typing import NamedTuple

import keras
from keras import ops

from zoo.layers.attention import KeyValue, MultiHeadAttention, MultiHeadSelfAttention
from zoo.layers.config import ConfigMixin
from zoo.layers.feed_forward import FeedForward
from zoo.layers.masks import as_attention_mask, causal_mask, combine_masks
from zoo.layers.residual import Residual


class DecoderCache(NamedTuple):
    """What a block keeps from one decoding step to the next.

    Fields:
        target: keys and values of the positions taken in so far, in a room of fixed size.
        memory: keys and values of the memory, computed once.
    """

    target: KeyValue
    memory: KeyValue


@keras.saving.register_keras_serializable("zoo")
class TransformerDecoder(ConfigMixin, keras.layers.Layer):
    """One block: masked self-attention, attention to the memory, feed-forward.

    Each has its residual connection. The self-attention is causal by itself. To decode step by
    step, `start` makes a cache, and `step` takes it and returns the next.
    Source: Vaswani et al. 2017, section 3.1, with ``norm="post", activation="relu"``. A pre-norm
    stack needs one more layer normalization after its last block: that belongs to the model.

    Args:
        embed_dim: E, width of the block.
        num_heads: H.
        ff_dim: hidden width of the feed-forward network; ``4 * embed_dim`` by default.
        dropout: rate in [0, 1) on the output of the three parts and on the hidden units.
        attention_dropout: rate in [0, 1) on the attention weights.
        norm: "pre" or "post"; see `zoo.layers.Residual`.
        activation: activation of the feed-forward network.
        key_dim: D, width of a head; ``embed_dim / num_heads`` by default.
        epsilon: added to the variance in the layer normalizations.

    Inputs: `x` [B, T, E]; `memory` [B, S, any width], such as an encoder's output; `mask` bool,
    True = attend: which positions of `x` are attended to, besides causality: a padding mask [B, T]
    or any mask broadcastable to [B, H, T, T]; `memory_mask`: likewise for the memory, [B, S] or
    broadcastable to [B, H, T, S]; `bias`, added to the scores of the self-attention, broadcastable
    to [B, H, T, T].

    Output: [B, T, E].

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
        self.activation = activation
        self.key_dim = key_dim
        self.epsilon = epsilon
        self.supports_masking = True
        settings = {"dropout": attention_dropout, "dtype": self.dtype_policy, "name": "layer"}
        self.self_attention = self._residual(
            MultiHeadSelfAttention(embed_dim, num_heads, key_dim, **settings), "self_attention"
        )
        self.cross_attention = self._residual(
            MultiHeadAttention(embed_dim, num_heads, key_dim, **settings), "cross_attention"
        )
        self.feed_forward = self._residual(
            FeedForward(
                embed_dim, ff_dim, activation, dropout, dtype=self.dtype_policy, name="layer"
            ),
            "feed_forward",
        )

    def build(self, x_shape, memory_shape):
        self.cross_attention.layer.build(x_shape, memory_shape)
        for part in (self.self_attention, self.cross_attention, self.feed_forward):
            part.build(x_shape)

    def call(self, x, memory, mask=None, memory_mask=None, bias=None):
        causal = combine_masks(causal_mask(ops.shape(x)[1]), as_attention_mask(mask))
        x = self.self_attention(x, mask=causal, bias=bias)
        x = self.cross_attention(x, memory=memory, mask=memory_mask)
        return self.feed_forward(x)

    def start(self, memory, length):
        """The `DecoderCache` for up to `length` positions that attend to `memory` [B, S, width]."""
        return DecoderCache(
            self.self_attention.layer.empty_cache(ops.shape(memory)[0], length),
            self.cross_attention.layer.project(memory),
        )

    def step(self, x, cache, position, mask, memory_mask=None, bias=None):
        """Takes in further positions.

        Args:
            x: [B, T, E], the new positions.
            cache: `DecoderCache` of `length` positions.
            position: where in the cache `x` begins, an int or a scalar tensor.
            mask: bool, broadcastable to [B, H, T, length]: what the new positions attend to.
            memory_mask: bool, [B, S] or broadcastable to [B, H, T, S].
            bias: added to the scores of the self-attention, broadcastable to [B, H, T, length].

        Returns:
            ([B, T, E], the cache with `x` taken in).
        """
        part = self.self_attention
        change, target = part.layer.step(part.layer_input(x), cache.target, position, mask, bias)
        x = part.connect(x, change)
        part = self.cross_attention
        change = part.layer.attend(part.layer_input(x), *cache.memory, memory_mask)
        x = part.connect(x, change)
        return self.feed_forward(x), DecoderCache(target, cache.memory)

    def cross_attention_weights(self, x, memory, mask=None, memory_mask=None, bias=None):
        """What each position of `x` takes from each of the memory: [B, H, T, S]."""
        causal = combine_masks(causal_mask(ops.shape(x)[1]), as_attention_mask(mask))
        x = self.self_attention(x, mask=causal, bias=bias)
        part = self.cross_attention
        return part.layer.attention_weights(part.layer_input(x), memory, memory_mask)

    def compute_mask(self, inputs, previous_mask):
        return getattr(inputs, "_keras_mask", None)

    def compute_output_shape(self, x_shape, memory_shape):
        return x_shape

    def _residual(self, layer, name):
        return Residual(
            layer,
            self.norm,
            self.dropout,
            epsilon=self.epsilon,
            dtype=self.dtype_policy,
            name=name,
        )
