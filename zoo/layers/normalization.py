"""Normalization of the last axis, and the layers of it by their names.

A new kind of normalization is a function, a layer with the argument `epsilon`, and its name in
`NORMALIZATIONS`: blocks and models take the name as their argument `norm_type`.
"""

import keras
from keras import ops

from zoo import kernels
from zoo.dtypes import at_least_float32
from zoo.errors import check_choice
from zoo.layers.config import SameShapeLayer


@kernels.accelerated_by(kernels.layer_normalization)
def layer_normalization(x, gamma, beta, epsilon):
    """γ·(x - mean)/√(variance + ε) + β over the last axis.

    Source: Ba et al. 2016, "Layer Normalization", section 3. Computed in at least float32.

    Args:
        x: [..., E].
        gamma, beta: [E].
        epsilon: ε, a float.

    Returns:
        [..., E] in the dtype of `x`.
    """
    dtype = x.dtype
    x = at_least_float32(x)
    gamma = ops.cast(gamma, x.dtype)
    beta = ops.cast(beta, x.dtype)
    centered = x - ops.mean(x, axis=-1, keepdims=True)
    # OpenVINO and ONNX Runtime fuse layer normalization if it has a power and a division.
    variance = ops.mean(ops.power(centered, 2.0), axis=-1, keepdims=True)  # [..., 1]
    normal = centered / ops.sqrt(variance + epsilon)
    return ops.cast(normal * gamma + beta, dtype)


def rms_normalization(x, gamma, epsilon):
    """γ·x/√(mean(x²) + ε) over the last axis.

    Source: Zhang and Sennrich 2019, "Root Mean Square Layer Normalization", section 4. Computed in
    at least float32.

    Args:
        x: [..., E].
        gamma: [E].
        epsilon: ε, a float.

    Returns:
        [..., E] in the dtype of `x`.
    """
    dtype = x.dtype
    x = at_least_float32(x)
    mean_square = ops.mean(ops.square(x), axis=-1, keepdims=True)  # [..., 1]
    normal = x * ops.rsqrt(mean_square + epsilon)
    return ops.cast(normal * ops.cast(gamma, x.dtype), dtype)


def unit_normalization(x):
    """x/|x| over the last axis, of length 1: [..., E] to the same shape and dtype.

    Computed in at least float32. Zeros stay zeros.
    """
    return ops.cast(ops.normalize(at_least_float32(x), epsilon=1e-12), x.dtype)


class _Normalization(SameShapeLayer):
    """Base class of the layers."""

    def __init__(self, epsilon=1e-6, **kwargs):
        super().__init__(**kwargs)
        self.epsilon = epsilon
        self.autocast = False  # a float32 input is normalized in float32, whatever the policy

    def build(self, input_shape):
        width = input_shape[-1]
        self.input_spec = keras.layers.InputSpec(min_ndim=1, axes={-1: width})
        self.gamma = self.add_weight((width,), "ones", autocast=False, name="gamma")


@keras.saving.register_keras_serializable("zoo")
class LayerNormalization(_Normalization):
    """Layer normalization of the last axis, with the weights and results of Keras's layer.

    Args:
        epsilon: ε, added to the variance; 1e-3 is the default of Keras's layer.

    Input: [..., width]. Output: the same shape.
    """

    def build(self, input_shape):
        super().build(input_shape)
        self.beta = self.add_weight(self.gamma.shape, "zeros", autocast=False, name="beta")

    def call(self, x):
        x = layer_normalization(x, self.gamma, self.beta, self.epsilon)
        return ops.cast(x, self.compute_dtype)


@keras.saving.register_keras_serializable("zoo")
class RMSNormalization(_Normalization):
    """Root mean square normalization of the last axis, with the results of Keras's layer.

    Args:
        epsilon: ε, added to the mean square.

    Input: [..., width]. Output: the same shape.
    """

    def call(self, x):
        x = rms_normalization(x, self.gamma, self.epsilon)
        return ops.cast(x, self.compute_dtype)


NORMALIZATIONS = {"layer": LayerNormalization, "rms": RMSNormalization}


def normalization_layer(norm_type, epsilon, **kwargs):
    """Creates a normalization layer by its name.

    Args:
        norm_type: "layer", `LayerNormalization`; or "rms", `RMSNormalization`.
        epsilon: added to the variance or mean square.
        **kwargs: `name` and `dtype` of the layer.

    Raises:
        ValueError: if `norm_type` is unknown.
    """
    check_choice("norm_type", norm_type, tuple(NORMALIZATIONS))
    return NORMALIZATIONS[norm_type](epsilon, **kwargs)
