"""Learned tokens that a Vision Transformer adds to its patches."""

import keras
from keras import ops

from zoo.layers.config import ConfigMixin


@keras.saving.register_keras_serializable("zoo")
class ClassToken(ConfigMixin, keras.layers.Layer):
    """Prepends a learned token, CLS, whose output represents the whole sequence.

    Sources: Devlin et al. 2018, section 3; Dosovitskiy et al. 2020, section 3.1, equation 1. It
    starts at zero, as in the latter's code.

    Args:
        num_tokens: R; 2 for a class and a distillation token (Touvron et al. 2020, section 4).
        initializer: that of the tokens.

    Input: [B, T, E]. Output: [B, R + T, E].
    """

    num_prefix_tokens = 0  # how many tokens stay before these

    def __init__(self, num_tokens=1, initializer="zeros", **kwargs):
        super().__init__(**kwargs)
        self.store(locals())

    def build(self, input_shape):
        shape = (self.num_tokens, input_shape[-1])
        self.tokens = self.add_weight(shape, self.initializer, name="tokens")

    def call(self, x):
        shape = (ops.shape(x)[0], *self.tokens.shape)
        tokens = ops.broadcast_to(ops.cast(self.tokens, x.dtype), shape)
        prefix = self.num_prefix_tokens
        parts = [x[:, :prefix], tokens, x[:, prefix:]] if prefix else [tokens, x]
        return ops.concatenate(parts, axis=1)

    def compute_output_shape(self, input_shape):
        batch, length, width = input_shape
        return (batch, None if length is None else length + self.num_tokens, width)


@keras.saving.register_keras_serializable("zoo")
class RegisterTokens(ClassToken):
    """Inserts learned tokens that a model computes with, and whose outputs are discarded.

    They have no positions. Source: Darcet et al. 2023, "Vision Transformers Need Registers",
    section 2.2.

    Args:
        num_tokens: R.
        num_prefix_tokens: number of tokens, such as CLS, that stay before the registers.
        initializer: that of the tokens; a truncated normal distribution by default.

    Input: [B, T, E]. Output: [B, T + R, E].
    """

    def __init__(self, num_tokens, num_prefix_tokens=0, initializer=None, **kwargs):
        initializer = initializer or keras.initializers.TruncatedNormal(stddev=0.02)
        super().__init__(num_tokens, initializer, **kwargs)
        self.store(locals())
