"""The position-wise feed-forward network of a Transformer block."""

import functools

import keras
from keras import ops

from zoo import kernels
from zoo.layers.config import SameLengthLayer, own_initializer
from zoo.layers.dense import Dense, apply_to_matrix
from zoo.layers.dropout import Dropout


@keras.saving.register_keras_serializable("zoo")
def gelu(x):
    """x·Φ(x), exactly: Hendrycks and Gimpel 2016, "Gaussian Error Linear Units", section 2.

    `keras.ops.gelu` with ``approximate=False`` uses TensorFlow's ``erfc``, which is slower in
    training and has no ONNX operator.
    """
    return 0.5 * x * (1.0 + ops.erf(x * 2**-0.5))


@keras.saving.register_keras_serializable("zoo")
def gelu_tanh(x):
    """GELU approximated by tanh (Hendrycks and Gimpel 2016, section 2), as in BERT and SigLIP."""
    return ops.gelu(x, approximate=True)


@keras.saving.register_keras_serializable("zoo")
def quick_gelu(x):
    """x·sigmoid(1.702·x): Hendrycks and Gimpel 2016, section 2; in OpenAI's CLIP."""
    return x * ops.sigmoid(1.702 * x)


@keras.saving.register_keras_serializable("zoo")
def swiglu(x):
    """Splits the last axis into a gate and a value and returns silu(gate)·value.

    Source: Shazeer 2020, "GLU Variants Improve Transformer", section 2.
    """
    gate, value = ops.split(x, 2, axis=-1)
    return ops.silu(gate) * value


@keras.saving.register_keras_serializable("zoo")
def geglu_tanh(x):
    """Splits the last axis into a gate and a value and returns gelu_tanh(gate)·value.

    Source: Shazeer 2020, "GLU Variants Improve Transformer", section 2; by tanh as in T5 1.1.
    """
    gate, value = ops.split(x, 2, axis=-1)
    return gelu_tanh(gate) * value


@kernels.accelerated_by(kernels.activation)
def activate(function, x):
    """``function(x)``, for one of `ACTIVATIONS`; a function of its own for its decorator."""
    return function(x)


GATED = (swiglu, geglu_tanh)
ACTIVATIONS = {function.__name__: function for function in (gelu, gelu_tanh, quick_gelu, *GATED)}


@keras.saving.register_keras_serializable("zoo")
class FeedForward(SameLengthLayer):
    """FFN(x) = act(xW₁ + b₁)W₂ + b₂, at each position separately.

    Source: Vaswani et al. 2017, section 3.3, equation 2, with ReLU; Dosovitskiy et al. 2020,
    section 3.1, with GELU.

    Args:
        embed_dim: E, width of the output.
        ff_dim: width of the hidden layer; ``4 * embed_dim`` by default.
        activation: "gelu" (exact), "gelu_tanh", "quick_gelu", "swiglu", "geglu_tanh", the name of a
            Keras activation, or a function. With "swiglu" and "geglu_tanh", the hidden layer has
            ``2 * ff_dim`` units.
        dropout: rate in [0, 1) at which hidden units are dropped in training.
        kernel_initializer: initializer of both matrices.
        use_bias: whether both layers have biases, b₁ and b₂.

    Input: [B, ..., any width].
    Output: [B, ..., E].
    """

    def __init__(
        self,
        embed_dim,
        ff_dim=None,
        activation="gelu",
        dropout=0.0,
        kernel_initializer="glorot_uniform",
        use_bias=True,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.embed_dim = embed_dim
        self.ff_dim = ff_dim
        self.activation = activation
        self.dropout = dropout
        self.kernel_initializer = kernel_initializer
        self.use_bias = use_bias
        function = keras.activations.get(ACTIVATIONS.get(activation, activation))
        self._activation = function
        if function in ACTIVATIONS.values():  # `kernels.activation` is for these only
            self._activation = functools.partial(activate, function)
        self._hidden_width = ff_dim or 4 * embed_dim
        gate_width = self._hidden_width if function in GATED else 0
        self.hidden = self._dense(gate_width + self._hidden_width, "hidden")
        self.output_projection = self._dense(embed_dim, "output_projection")
        self._dropout = Dropout(dropout, dtype=self.dtype_policy)

    def _dense(self, units, name):
        return Dense(
            units,
            use_bias=self.use_bias,
            kernel_initializer=own_initializer(self.kernel_initializer),
            dtype=self.dtype_policy,
            name=name,
        )

    def build(self, input_shape):
        self.hidden.build((None, input_shape[-1]))
        self.output_projection.build((None, self._hidden_width))

    def call(self, x):
        return apply_to_matrix(self._network, x)

    def _network(self, x):  # [N, width]
        hidden = self._activation(self.hidden(x))  # [N, ff_dim]
        return self.output_projection(self._dropout(hidden))  # [N, E]
