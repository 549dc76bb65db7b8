"""Dense layers and embeddings.

They have the names of Keras's, since files of weights contain the names of classes.
"""

import keras
from keras import ops

from zoo import compat, kernels


class _QuantizedLikeKeras:
    """Keras refuses to quantize subclasses of its layers; these two compute the same."""

    def quantize(self, mode=None, type_check=True, config=None):
        is_subclass = type(self) not in (Dense, ReversibleEmbedding)
        super().quantize(mode, type_check=type_check and is_subclass, config=config)


@keras.saving.register_keras_serializable("zoo")
class Dense(_QuantizedLikeKeras, keras.layers.Dense):
    """`keras.layers.Dense`, computed on rows [N, width], so that kernels can take its place."""

    def call(self, inputs, training=None):
        return by_rows(self._product, inputs)

    def quantized_call(self, inputs, training=None):
        return by_rows(self._quantized_product, inputs, training=training)

    @kernels.accelerated_by(kernels.bfloat16_dense)
    def _product(self, rows):
        return super().call(rows)

    @kernels.accelerated_by(kernels.int8_dense)
    def _quantized_product(self, rows, training):
        return super().quantized_call(rows, training=training)


@keras.saving.register_keras_serializable("zoo")
class ReversibleEmbedding(_QuantizedLikeKeras, keras.layers.ReversibleEmbedding):
    """`keras.layers.ReversibleEmbedding`."""

    def call(self, inputs, reverse=False):
        return by_rows(self._logits, inputs) if reverse else super().call(inputs)

    def quantized_call(self, inputs, reverse=False):
        if reverse:
            return by_rows(self._quantized_logits, inputs)
        return super().quantized_call(inputs)

    @kernels.accelerated_by(kernels.tied_logits)
    def _logits(self, rows):
        if self.reverse_dtype and self.variable_dtype != self.compute_dtype:
            # Where the layer is called on its own, Keras would round the matrix to the compute
            # dtype before the cast to `reverse_dtype`; in a call of the model, it does not.
            with compat.without_autocast():
                return super().call(rows, reverse=True)
        return super().call(rows, reverse=True)

    @kernels.accelerated_by(kernels.int8_logits)
    def _quantized_logits(self, rows):
        return super().quantized_call(rows, reverse=True)


def by_rows(function, x, **kwargs):
    """``function(x)`` for `x` [B, ..., width], computed on a matrix [rows, width].

    TensorFlow fuses the product, the bias and the activation of a matrix only.
    """
    lengths = ops.shape(x)[1:-1]
    if not lengths or None in lengths:  # a matrix already, or a `keras.Input`
        return function(x, **kwargs)
    rows = function(ops.reshape(x, (-1, x.shape[-1])), **kwargs)
    return ops.reshape(rows, (-1, *lengths, rows.shape[-1]))
