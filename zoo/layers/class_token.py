"""Learned tokens that a Vision Transformer adds to its patches."""

import keras
from keras import ops

from zoo.layers.config import ConfigMixin


@keras.saving.register_keras_serializable("zoo")
class ClassToken(ConfigMixin, keras.layers.Layer):
    """Puts a learned token, CLS, before a sequence: it gathers what is known of the whole.

    Source: Devlin et al. 2018, section 3; Dosovitskiy et al. 2020, section 3.1, equation 1. It
    starts at zero, as in the latter's code.

    Input: [B, T, E].

    Output: [B, 1 + T, E].
    """

    def build(self, input_shape):
        self.token = self.add_weight(shape=(1, input_shape[-1]), initializer="zeros", name="token")

    def call(self, x):
        return ops.concatenate([_for_each_example(self.token, x), x], axis=1)

    def compute_output_shape(self, input_shape):
        return _longer(input_shape, 1)


@keras.saving.register_keras_serializable("zoo")
class RegisterTokens(ConfigMixin, keras.layers.Layer):
    """Puts learned tokens after a sequence, for the model to compute in; they are no output.

    Source: Darcet et al. 2023, "Vision Transformers Need Registers", section 2.2. They have no
    position, so it makes no difference that they stand last: CLS stays first.

    Args:
        num_registers: R.

    Input: [B, T, E].

    Output: [B, T + R, E].
    """

    def __init__(self, num_registers, **kwargs):
        super().__init__(**kwargs)
        self.num_registers = num_registers

    def build(self, input_shape):
        self.tokens = self.add_weight(
            shape=(self.num_registers, input_shape[-1]),
            initializer=keras.initializers.TruncatedNormal(stddev=0.02),
            name="tokens",
        )

    def call(self, x):
        return ops.concatenate([x, _for_each_example(self.tokens, x)], axis=1)

    def compute_output_shape(self, input_shape):
        return _longer(input_shape, self.num_registers)


def _for_each_example(tokens, x):
    """[tokens, E] -> [B, tokens, E], in the dtype of `x`."""
    shape = (ops.shape(x)[0], *tokens.shape)
    return ops.broadcast_to(ops.cast(tokens, x.dtype)[None], shape)


def _longer(shape, extra):
    batch, length, width = shape
    return (batch, None if length is None else length + extra, width)
