"""The position-wise feed-forward network of a Transformer block."""

import keras
from keras import ops

from zoo.layers.config import ConfigMixin


def gelu(x):
    """x·Φ(x), exactly: Hendrycks and Gimpel 2016, "Gaussian Error Linear Units", section 2.

    The same as `keras.ops.gelu` with ``approximate=False``, which TensorFlow computes by a
    complementary error function: that is slower in training, and ONNX has none.
    """
    return 0.5 * x * (1.0 + ops.erf(x * 2**-0.5))


@keras.saving.register_keras_serializable("zoo")
class FeedForward(ConfigMixin, keras.layers.Layer):
    """Two linear layers with an activation between, at each position by itself.

    Source: Vaswani et al. 2017, section 3.3, with ReLU; Dosovitskiy et al. 2020, section 3.1, with
    GELU.

    Args:
        embed_dim: E, width of the output.
        ff_dim: width of the hidden layer; ``4 * embed_dim`` by default.
        activation: name of a Keras activation, or a function; "gelu" is `zoo.layers.gelu`.
        dropout: rate in [0, 1) at which hidden units are dropped in training.
        kernel_initializer: initializer of both matrices.

    Input: [B, T, any width].

    Output: [B, T, E].
    """

    def __init__(
        self,
        embed_dim,
        ff_dim=None,
        activation="gelu",
        dropout=0.0,
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.embed_dim = embed_dim
        self.ff_dim = ff_dim
        self.activation = activation
        self.dropout = dropout
        self.kernel_initializer = kernel_initializer
        self.supports_masking = True
        self.hidden = self._dense(
            ff_dim or 4 * embed_dim, "hidden", gelu if activation == "gelu" else activation
        )
        self.output_projection = self._dense(embed_dim, "output")
        self._dropout = keras.layers.Dropout(dropout, dtype=self.dtype_policy)

    def build(self, input_shape):
        self.hidden.build((None, input_shape[-1]))
        self.output_projection.build((None, self.hidden.units))

    def call(self, x):
        # As one matrix of all positions: TensorFlow then fuses product, bias and activation.
        rows = ops.reshape(x, (-1, x.shape[-1]))
        rows = self.output_projection(self._dropout(self.hidden(rows)))
        return ops.reshape(rows, (-1, *ops.shape(x)[1:-1], self.embed_dim))

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-1], self.embed_dim)

    def _dense(self, units, name, activation=None):
        return keras.layers.Dense(
            units,
            activation=activation,
            kernel_initializer=self.kernel_initializer,
            dtype=self.dtype_policy,
            name=name,
        )
