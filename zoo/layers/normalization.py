"""Layer normalization. Source: Ba et al. 2016, "Layer Normalization", section 3."""

import keras
from keras import ops

from zoo.layers.config import ConfigMixin


@keras.saving.register_keras_serializable("zoo")
class LayerNormalization(ConfigMixin, keras.layers.Layer):
    """Layer normalization of the last axis, with the weights and results of Keras's layer.

    With TensorFlow, it takes fewer passes over memory than Keras's, in training by an explicit
    gradient. Inference engines compute it as one operation in exported models.

    Args:
        epsilon: ε, added to the variance; 1e-3 is the default of Keras's layer.

    Input: [..., width]. Output: the same shape.

    Raises:
        ValueError: if `epsilon` is negative.
    """

    def __init__(self, epsilon=1e-6, **kwargs):
        super().__init__(**kwargs)
        if epsilon < 0:
            raise ValueError(f"epsilon must not be negative. Received: epsilon={epsilon}.")
        self.store(locals())
        self.supports_masking = True
        self.autocast = False  # inputs of higher precision are normalized in it

    def build(self, input_shape):
        width = input_shape[-1]
        self.input_spec = keras.layers.InputSpec(min_ndim=1, axes={-1: width})
        settings = {"shape": (width,), "autocast": False}
        self.gamma = self.add_weight(**settings, initializer="ones", name="gamma")
        self.beta = self.add_weight(**settings, initializer="zeros", name="beta")

    def compute_output_shape(self, input_shape):
        return input_shape

    def call(self, x, training=None):
        has_gradient = training and keras.backend.backend() == "tensorflow"
        normalize = _with_explicit_gradient if has_gradient else _normalize
        return ops.cast(normalize(x, self.gamma, self.beta, self.epsilon), self.compute_dtype)


def _normalize(x, gamma, beta, epsilon):
    """γ·(x - mean)/√(variance + ε) + β in the dtype of `x`, computed in float32 or wider."""
    if keras.backend.backend() == "torch":  # which has an operation for it
        return ops.layer_normalization(x, gamma, beta, len(x.shape) - 1, epsilon)
    dtype = x.dtype
    wide = keras.backend.result_type(dtype, "float32")
    x, gamma, beta = (ops.cast(tensor, wide) for tensor in (x, gamma, beta))
    centered = x - ops.mean(x, axis=-1, keepdims=True)
    # OpenVINO and ONNX Runtime find layer normalization by its power and its division.
    variance = ops.mean(ops.power(centered, 2.0), axis=-1, keepdims=True)
    normal = centered / ops.sqrt(variance + epsilon)
    return ops.cast(normal * gamma + beta, dtype)


def _with_explicit_gradient(x, gamma, beta, epsilon):
    """The same for TensorFlow, whose own gradient needs about twice as many passes over memory."""
    # `custom_gradient` takes tensors, and no variables.
    tensors = x, ops.copy(gamma), ops.copy(beta)
    dtypes = [tensor.dtype for tensor in tensors]
    wide = keras.backend.result_type(x.dtype, "float32")

    def mean(x):
        return ops.mean(x, axis=-1, keepdims=True)

    @ops.custom_gradient
    def normalize(*tensors):
        x, gamma, beta = (ops.cast(tensor, wide) for tensor in tensors)
        centered = x - mean(x)
        scale = ops.rsqrt(mean(ops.square(centered)) + epsilon)
        normal = centered * scale

        def gradient(upstream):
            upstream = ops.cast(upstream, wide)
            scaled, d_gamma = upstream * gamma, upstream * normal
            d_x = scale * (scaled - mean(scaled) - normal * mean(scaled * normal))
            rows = tuple(range(len(x.shape) - 1))
            gradients = d_x, ops.sum(d_gamma, rows), ops.sum(upstream, rows)
            return tuple(ops.cast(g, dtype) for g, dtype in zip(gradients, dtypes))

        return ops.cast(normal * gamma + beta, dtypes[0]), gradient

    return normalize(*tensors)
