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

    Input: [B, T, E]. Output: [B, R + T, E].
    """

    def __init__(self, num_tokens=1, **kwargs):
        super().__init__(**kwargs)
        self.store(locals())

    def build(self, input_shape):
        self.token = self.add_weight(
            shape=(self.num_tokens, input_shape[-1]), initializer="zeros", name="token"
        )

    def call(self, x):
        return ops.concatenate([_for_each_example(self.token, x), x], axis=1)

    def compute_output_shape(self, input_shape):
        return _longer(input_shape, self.num_tokens)


@keras.saving.register_keras_serializable("zoo")
class RegisterTokens(ConfigMixin, keras.layers.Layer):
    """Inserts learned tokens that a model computes with, and whose outputs are discarded.

    They have no positions. Source: Darcet et al. 2023, "Vision Transformers Need Registers",
    section 2.2.

    Args:
        num_registers: R.
        num_prefix_tokens: tokens, such as CLS, that stay before the registers.

    Input: [B, T, E]. Output: [B, T + R, E].
    """

    def __init__(self, num_registers, num_prefix_tokens=0, **kwargs):
        super().__init__(**kwargs)
        self.store(locals())

    def build(self, input_shape):
        self.tokens = self.add_weight(
            shape=(self.num_registers, input_shape[-1]),
            initializer=keras.initializers.TruncatedNormal(stddev=0.02),
            name="tokens",
        )

    def call(self, x):
        parts = ops.split(x, [self.num_prefix_tokens], axis=1) if self.num_prefix_tokens else [x]
        parts.insert(-1, _for_each_example(self.tokens, x))
        return ops.concatenate(parts, axis=1)

    def compute_output_shape(self, input_shape):
        return _longer(input_shape, self.num_registers)


def _for_each_example(tokens, x):
    """[R, E] -> [B, R, E], in the dtype of `x`."""
    return ops.broadcast_to(ops.cast(tokens, x.dtype), (ops.shape(x)[0], *tokens.shape))


def _longer(shape, extra):
    batch, length, width = shape
    return (batch, None if length is None else length + extra, width)
