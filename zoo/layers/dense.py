"""Dense layers and embeddings.

The classes have the names of Keras's, because files of weights contain them. `Dense` is for blocks
and for the logits of a vocabulary. Other layers, such as heads, have little to gain from it and are
`keras.layers.Dense`.
"""

import keras
from keras import ops

from zoo import compat, kernels
from zoo.layers.shapes import shape_for_reshape


class _QuantizedLikeKeras:
    """Allows quantization, which Keras refuses for subclasses of its layers.

    Subclasses of `Dense` and `ReversibleEmbedding` are still refused.
    """

    def quantize(self, mode=None, type_check=True, config=None):
        if type(self) in (Dense, ReversibleEmbedding):
            type_check = False
        super().quantize(mode, type_check=type_check, config=config)


@keras.saving.register_keras_serializable("zoo")
class Dense(_QuantizedLikeKeras, keras.layers.Dense):
    """A `keras.layers.Dense` that reshapes its input to a matrix [N, width]."""

    def call(self, inputs, training=None):
        return apply_to_matrix(self._product, inputs)

    def quantized_call(self, inputs, training=None):
        return apply_to_matrix(self._quantized_product, inputs, training=training)

    @kernels.accelerated_by(kernels.bfloat16_dense)
    def _product(self, rows):
        return super().call(rows)

    @kernels.accelerated_by(kernels.int8_dense)
    def _quantized_product(self, rows, training):
        return super().quantized_call(rows, training=training)


@keras.saving.register_keras_serializable("zoo")
class ReversibleEmbedding(_QuantizedLikeKeras, keras.layers.ReversibleEmbedding):
    """A `keras.layers.ReversibleEmbedding` whose logits are computed on a matrix [N, width]."""

    def call(self, inputs, reverse=False):
        if reverse:
            return apply_to_matrix(self._logits, inputs)
        return super().call(inputs)

    def quantized_call(self, inputs, reverse=False):
        if reverse:
            return apply_to_matrix(self._quantized_logits, inputs)
        return super().quantized_call(inputs)

    @kernels.accelerated_by(kernels.tied_logits)
    def _logits(self, rows):
        if self.reverse_dtype and self.variable_dtype != self.compute_dtype:
            # The logits are products with the unrounded matrix. Where the layer is called on its
            # own, Keras would round it to the compute dtype; in a call of the model, it does not.
            with compat.without_autocast():
                return super().call(rows, reverse=True)
        return super().call(rows, reverse=True)

    @kernels.accelerated_by(kernels.int8_logits)
    def _quantized_logits(self, rows):
        return super().quantized_call(rows, reverse=True)


def apply_to_matrix(function, x, **kwargs):
    """Computes ``function(x)`` for `x` [B, ..., width] on a matrix [N, width].

    TensorFlow fuses the product, the bias and the activation of a matrix only.
    """
    batch, *lengths, _ = shape_for_reshape(x)
    if not lengths or None in lengths:  # a matrix already, or a `keras.Input`
        return function(x, **kwargs)
    rows = function(ops.reshape(x, (-1, x.shape[-1])), **kwargs)
    return ops.reshape(rows, (batch, *lengths, rows.shape[-1]))
