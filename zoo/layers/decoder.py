"""One decoder block.

Axes: B batch, T target tokens, S source tokens, H heads, E model width.
"""

import keras
from keras import ops

from zoo.layers.attention import MultiHeadAttention, MultiHeadSelfAttention
from zoo.layers.cache import DecoderCache
from zoo.layers.masks import attention_mask, causal_mask
from zoo.layers.residual import TransformerBlock


@keras.saving.register_keras_serializable("zoo")
class TransformerDecoder(TransformerBlock):
    """One block: causal self-attention, attention to the memory, feed-forward.

    Each has a residual connection. To decode step by step, `start` makes a cache, and `step` takes
    it and returns the next. Source: Vaswani et al. 2017, section 3.1, with ``norm="post",
    activation="relu"``.

    Args, Output, Raises: see `zoo.layers.TransformerEncoder`.

    Inputs: `x` [B, T, E]; `memory` [B, S, any width], such as an encoder's output; `mask` (in
    addition to the causal mask) and `memory_mask`, bool, True = attend: see
    `zoo.layers.attention_mask`; `bias`, added to the scores of the self-attention, broadcastable to
    [B, H, T, T].
    """

    attention_layers = {
        "self_attention": MultiHeadSelfAttention,
        "cross_attention": MultiHeadAttention,
    }

    def build(self, x_shape, memory_shape):
        super().build(x_shape)
        self.self_attention.build(x_shape)
        self.cross_attention.build(x_shape, memory_shape)

    def call(self, x, memory, mask=None, memory_mask=None, bias=None):
        causal = attention_mask(causal_mask(ops.shape(x)[1]), mask)
        x = self.residual("self_attention", x, mask=causal, bias=bias)
        x = self.residual("cross_attention", x, memory, mask=memory_mask)
        return self.residual("feed_forward", x)

    def compute_output_shape(self, x_shape, memory_shape):
        return x_shape

    def start(self, memory, length):
        """The `DecoderCache` for up to `length` positions that attend to `memory` [B, S, width].

        The mask that the memory carries has to be given to `step`: the cache does not keep it.
        """
        return DecoderCache(
            self.self_attention.allocate_cache(ops.shape(memory)[0], length),
            self.cross_attention.project(memory),
        )

    def step(self, x, cache, position, mask, memory_mask=None, bias=None):
        """Computes new positions.

        Args:
            x: [B, T, E], the new positions.
            position, bias: see `zoo.layers.MultiHeadSelfAttention.step`.
            cache: `DecoderCache` of `length` positions.
            mask: bool, broadcastable to [B, H, T, length]: what the new positions may attend to,
                themselves included.
            memory_mask: bool, as for a call.

        Returns:
            ([B, T, E], the cache with `x` written to it).
        """
        attended, target = self.self_attention.step(
            self.sublayer_input("self_attention", x), cache.target, position, mask, bias
        )
        x = self.add_residual("self_attention", x, attended)
        attended = self.cross_attention.attend(
            self.sublayer_input("cross_attention", x), cache.memory, memory_mask
        )
        x = self.add_residual("cross_attention", x, attended)
        return self.residual("feed_forward", x), cache._replace(target=target)

    def cross_attention_weights(self, x, memory, mask=None, memory_mask=None, bias=None):
        """The attention weights of each position over the memory: [B, H, T, S]."""
        causal = attention_mask(causal_mask(ops.shape(x)[1]), mask)
        x = self.residual("self_attention", x, mask=causal, bias=bias)
        x = self.sublayer_input("cross_attention", x)
        return self.cross_attention.attention_weights(x, memory, memory_mask)
