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

    Each has a residual connection. Without a memory, as in a language model, there is no attention
    to it. To decode step by step, `start` makes a cache, and `step` takes it and returns the next.
    Source: Vaswani et al. 2017, section 3.1, with ``norm="post", activation="relu"``.

    Args, Output, Raises: see `zoo.layers.TransformerEncoder`.

    Inputs: `x` [B, T, E]; `memory` [B, S, any width], such as an encoder's output, or None; `mask`
    (in addition to the causal mask) and `memory_mask`, bool, True = attend: see
    `zoo.layers.attention_mask`; `bias`, added to the scores of the self-attention, broadcastable to
    [B, H, T, T]; `angles` of `zoo.layers.RotaryPositions` for it, [B, 1, T, D].
    """

    attention_layers = {
        "self_attention": MultiHeadSelfAttention,
        "cross_attention": MultiHeadAttention,
    }

    def build(self, x_shape, memory_shape=None):
        self.self_attention.build(x_shape)
        names = ["self_attention", "feed_forward"]
        if memory_shape is not None:
            self.cross_attention.build(x_shape, memory_shape)
            names.append("cross_attention")
        else:
            # `keras.Model.quantize` refuses a model with layers that are not built.
            parts = [f"cross_attention{end}" for end in ("", "_norm", "_scale")]
            for part in parts if self.layer_scale is not None else parts[:2]:
                self._layers.remove(getattr(self, part))
        self.build_residuals(names, x_shape)

    def call(self, x, memory=None, mask=None, memory_mask=None, bias=None, angles=None):
        self._check_memory(memory is not None)
        x = self._attend_to_itself(x, mask, bias, angles)
        if memory is not None:
            x = self.residual("cross_attention", x, memory, mask=memory_mask)
        return self.residual("feed_forward", x)

    def compute_output_shape(self, x_shape, memory_shape=None):
        return x_shape

    def start(self, length, memory=None, batch_size=None):
        """The cache for up to `length` positions, a `DecoderCache`.

        Args:
            length: number of positions.
            memory: [B, S, width], what they attend to, or None. The mask that it carries has to be
                given to `step`: the cache does not keep it.
            batch_size: B, needed without a memory.
        """
        self._check_memory(memory is not None)
        batch_size = batch_size if memory is None else ops.shape(memory)[0]
        projected = () if memory is None else self.cross_attention.project(memory)
        return DecoderCache(self.self_attention.allocate_cache(batch_size, length), projected)

    def step(self, x, cache, position, mask, memory_mask=None, bias=None, angles=None):
        """Computes new positions.

        Args:
            x: [B, T, E], the new positions.
            position, bias, angles: see `zoo.layers.MultiHeadSelfAttention.step`.
            cache: `DecoderCache` of `length` positions.
            mask: bool, broadcastable to [B, H, T, length]: what the new positions may attend to,
                themselves included.
            memory_mask: bool, as for a call.

        Returns:
            ([B, T, E], the cache with `x` written to it).
        """
        attended, target = self.self_attention.step(
            self.sublayer_input("self_attention", x), cache.target, position, mask, bias, angles
        )
        x = self.add_residual("self_attention", x, attended)
        if cache.memory:
            attended = self.cross_attention.attend(
                self.sublayer_input("cross_attention", x), cache.memory, memory_mask
            )
            x = self.add_residual("cross_attention", x, attended)
        return self.residual("feed_forward", x), cache._replace(target=target)

    def cross_attention_weights(
        self, x, memory, mask=None, memory_mask=None, bias=None, angles=None
    ):
        """The attention weights of each position over the memory: [B, H, T, S]."""
        x = self._attend_to_itself(x, mask, bias, angles)
        x = self.sublayer_input("cross_attention", x)
        return self.cross_attention.attention_weights(x, memory, memory_mask)

    def _attend_to_itself(self, x, mask, bias, angles):
        causal = attention_mask(causal_mask(ops.shape(x)[1]), mask)
        return self.residual("self_attention", x, mask=causal, bias=bias, angles=angles)

    def _check_memory(self, given):
        if given != self.cross_attention.built:
            raise ValueError(
                "A decoder block has attention to a memory if it was built with one. This one was "
                f"built {'with' if self.cross_attention.built else 'without'} a memory, and is "
                f"called {'with' if given else 'without'}."
            )
