"""Layer normalization. Source: Ba et al. 2016, "Layer Normalization", section 3."""

import functools

import keras
from keras import ops

from zoo.layers.compiled import compiled, trains_on_cpus, wide
from zoo.layers.config import ConfigMixin


@keras.saving.register_keras_serializable("zoo")
class LayerNormalization(ConfigMixin, keras.layers.Layer):
    """Layer normalization of the last axis, with the weights and results of Keras's layer.

    With TensorFlow on CPUs, it takes less time than Keras's. Inference engines compute it as one
    operation in exported models.

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
        if trains_on_cpus(training):
            weights = (ops.convert_to_tensor(weight) for weight in (self.gamma, self.beta))
            rows = _compiled(self.epsilon)(ops.reshape(x, (-1, self.gamma.shape[0])), *weights)
            x = ops.reshape(rows, ops.shape(x))
        else:
            x = _normalize(x, self.gamma, self.beta, self.epsilon)
        return ops.cast(x, self.compute_dtype)


def _normalize(x, gamma, beta, epsilon):
    """γ·(x - mean)/√(variance + ε) + β in the dtype of `x`, computed in float32 or wider."""
    if keras.backend.backend() == "torch":  # which has an operation for it
        return ops.layer_normalization(x, gamma, beta, len(x.shape) - 1, epsilon)
    dtype = x.dtype
    x, gamma, beta = _widen(x, gamma, beta)
    centered = x - ops.mean(x, axis=-1, keepdims=True)
    # OpenVINO and ONNX Runtime recognize layer normalization by a power and a division.
    variance = ops.mean(ops.power(centered, 2.0), axis=-1, keepdims=True)
    normal = centered / ops.sqrt(variance + epsilon)
    return ops.cast(normal * gamma + beta, dtype)


def _widen(x, *others):
    """The tensors in float32, or in the dtype of `x` if that is wider."""
    x = wide(x)
    return [x, *(ops.cast(tensor, x.dtype) for tensor in others)]


@functools.cache
def _compiled(epsilon):
    """`_normalize` of rows [R, width] as a function of x, γ and β that XLA compiles.

    In its code for CPUs, products with ones are the fastest sums.
    """

    def mean(x):
        width = x.shape[-1]
        return ops.matmul(x, ops.ones((width, 1), x.dtype)) / width

    def sum_of_rows(x):
        return ops.matmul(ops.ones((1, ops.shape(x)[0]), x.dtype), x)[0]

    def normal(x):
        """x with mean 0 and variance 1, and the scale of that."""
        centered = x - mean(x)
        scale = ops.rsqrt(mean(ops.square(centered)) + epsilon)
        return centered * scale, scale

    def function(*tensors):
        x, gamma, beta = _widen(*tensors)
        return ops.cast(normal(x)[0] * gamma + beta, tensors[0].dtype)

    def gradient(upstream, *tensors):
        x, gamma, upstream = _widen(*tensors[:2], upstream)
        x, scale = normal(x)
        scaled = upstream * gamma
        d_x = scale * (scaled - mean(scaled) - x * mean(scaled * x))
        gradients = d_x, sum_of_rows(upstream * x), sum_of_rows(upstream)
        return [ops.cast(g, tensor.dtype) for g, tensor in zip(gradients, tensors)]

    return compiled(function, gradient)
