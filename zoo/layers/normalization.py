"""Layer normalization. Source: Ba et al. 2016, "Layer Normalization", section 3."""

import keras
from keras import ops

from zoo.layers.config import ConfigMixin


@keras.saving.register_keras_serializable("zoo")
class LayerNormalization(ConfigMixin, keras.layers.Layer):
    """Layer normalization of the last axis, with the weights and results of Keras's layer.

    In training, TensorFlow is given the gradient as a formula: the one that it derives takes about
    twice as many passes over memory.

    Args:
        epsilon: ε, added to the variance.

    Input: [..., width]. Output: the same shape.
    """

    def __init__(self, epsilon=1e-6, **kwargs):
        super().__init__(**kwargs)
        self.store(locals())
        self.supports_masking = True
        self.autocast = False  # inputs of higher precision are normalized in it

    def build(self, input_shape):
        shape = input_shape[-1:]
        self.gamma = self.add_weight(shape, "ones", name="gamma", autocast=False)
        self.beta = self.add_weight(shape, "zeros", name="beta", autocast=False)

    def compute_output_shape(self, input_shape):
        return input_shape

    def call(self, x, training=None):
        if training and keras.backend.backend() == "tensorflow":
            x = _normalize(x, self.gamma, self.beta, self.epsilon)
        else:
            last = len(x.shape) - 1
            x = ops.layer_normalization(x, self.gamma, self.beta, last, self.epsilon)
        return ops.cast(x, self.compute_dtype)


def _normalize(x, gamma, beta, epsilon):
    """γ·(x - mean)/√(variance + ε) + β in the dtype of `x`, computed in float32 or wider."""
    wide = keras.backend.result_type(x.dtype, "float32")

    @ops.custom_gradient
    def normalize(x, gamma, beta):
        x, gamma, beta = (ops.cast(tensor, wide) for tensor in (x, gamma, beta))
        centered = x - ops.mean(x, axis=-1, keepdims=True)
        scale = ops.rsqrt(ops.mean(ops.square(centered), axis=-1, keepdims=True) + epsilon)
        normal = centered * scale

        def gradient(upstream):
            upstream = ops.cast(upstream, wide)
            product = upstream * normal
            rows = tuple(range(len(x.shape) - 1))
            mean = ops.mean(upstream * gamma, axis=-1, keepdims=True)
            along = ops.mean(product * gamma, axis=-1, keepdims=True)
            to_x = scale * (upstream * gamma - mean - normal * along)
            gradients = to_x, ops.sum(product, rows), ops.sum(upstream, rows)
            return tuple(map(ops.cast, gradients, dtypes))

        return ops.cast(normal * gamma + beta, dtypes[0]), gradient

    tensors = x, ops.copy(gamma), ops.copy(beta)  # no variables, which TensorFlow would collect
    dtypes = [tensor.dtype for tensor in tensors]
    return normalize(*tensors)
