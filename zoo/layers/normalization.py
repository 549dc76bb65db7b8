"""Layer normalization. Source: Ba et al. 2016, "Layer Normalization", section 3."""

import keras
from keras import ops

from zoo import kernels
from zoo.dtypes import at_least_float32
from zoo.layers.config import SameShapeLayer


@kernels.accelerated_by(kernels.layer_normalization)
def layer_normalization(x, gamma, beta, epsilon):
    """γ·(x - mean)/√(variance + ε) + β over the last axis.

    It is computed in float32 or wider, and returned in the dtype of `x`. Inference engines compute
    it as one operation in exported models.
    """
    dtype, x = x.dtype, at_least_float32(x)
    gamma, beta = ops.cast(gamma, x.dtype), ops.cast(beta, x.dtype)
    centered = x - ops.mean(x, axis=-1, keepdims=True)
    # OpenVINO and ONNX Runtime recognize layer normalization by a power and a division.
    variance = ops.mean(ops.power(centered, 2.0), axis=-1, keepdims=True)
    normal = centered / ops.sqrt(variance + epsilon)
    return ops.cast(normal * gamma + beta, dtype)


@keras.saving.register_keras_serializable("zoo")
class LayerNormalization(SameShapeLayer):
    """Layer normalization of the last axis, with the weights and results of Keras's layer.

    Args:
        epsilon: ε, added to the variance; 1e-3 is the default of Keras's layer.

    Input: [..., width]. Output: the same shape.
    """

    def __init__(self, epsilon=1e-6, **kwargs):
        super().__init__(**kwargs)
        self.epsilon = epsilon
        self.autocast = False  # inputs of higher precision are normalized in it

    def build(self, input_shape):
        width = input_shape[-1]
        self.input_spec = keras.layers.InputSpec(min_ndim=1, axes={-1: width})
        settings = {"shape": (width,), "autocast": False}
        self.gamma = self.add_weight(**settings, initializer="ones", name="gamma")
        self.beta = self.add_weight(**settings, initializer="zeros", name="beta")

    def call(self, x):
        x = layer_normalization(x, self.gamma, self.beta, self.epsilon)
        return ops.cast(x, self.compute_dtype)
