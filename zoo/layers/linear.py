"""Dense layers on sequences, and their matrix products in functions that XLA compiles for CPUs.

There, XLA multiplies in bfloat16 or int8 only if the result has a wider dtype, if there are at
least two rows, and if a matrix to be transposed is passed to the product as it is (`transpose_b`).
Otherwise it converts the operands to float32 or int32 first, which takes longer than the product.
A single row of int8 is therefore computed as two; for one of bfloat16, this would be slower.

In float32, XLA multiplies a few rows faster by several narrow matrices than by a wide one, such as
that of the logits: see `column_blocks`.

The layers have the names of Keras's, since files of weights contain the names of classes.
"""

import math
from numbers import Integral

import keras
from keras import ops
from keras.src.backend import AutocastScope  # private: to be checked when Keras is updated

from zoo.layers.compiled import in_xla, only_cpus
from zoo.layers.config import own_initializer

MAX_BLOCK_COLUMNS = 4096
MAX_BLOCKS_SIZE = 2**26  # numbers in the copy of a matrix as blocks, 256 MiB


def linear(dense, x):
    """``dense(x)`` for `x` [B, ..., width], computed on a matrix [rows, width].

    TensorFlow fuses the product, the bias and the activation of a matrix only.
    """
    lengths = ops.shape(x)[1:-1]
    if None in lengths:  # of a `keras.Input`
        raise ValueError(
            "Outside a call, the length of a symbolic input must be known. "
            f"Received: shape {x.shape}. Give it in keras.Input, or call the layer or model itself."
        )
    rows = dense(ops.reshape(x, (-1, x.shape[-1])))
    return ops.reshape(rows, (-1, *lengths, rows.shape[-1]))


def column_blocks(matrix, rows, transpose=False):
    """A copy of a wide matrix as blocks of columns, for many products with few rows each.

    On two CPU cores, products of 4 to 32 rows of width 512 with 32,000 columns by `multiply_blocks`
    take 0.6 to 0.85 of the time. Making the copy takes as long as one product, of small matrices
    as four.

    Args:
        matrix: [E, V], or [V, E] to be transposed.
        rows: number of rows of each product.
        transpose: whether to transpose the matrix.

    Returns:
        [N, E, V/N], padded with zeros; or () unless XLA compiles products of 2 to 32 rows in
        float32 for CPUs.
    """
    columns = matrix.shape[0 if transpose else 1]
    few_rows = isinstance(rows, Integral) and 2 <= rows <= 32 and matrix.dtype == "float32"
    is_wide = transpose or columns > MAX_BLOCK_COLUMNS
    if not few_rows or not is_wide or math.prod(matrix.shape) > MAX_BLOCKS_SIZE:
        return ()
    if not _is_compiled(matrix):
        return ()
    matrix = ops.transpose(matrix) if transpose else ops.convert_to_tensor(matrix)
    count = math.ceil(columns / MAX_BLOCK_COLUMNS)
    size = math.ceil(columns / count)
    matrix = ops.pad(matrix, [(0, 0), (0, count * size - columns)])
    return ops.transpose(ops.reshape(matrix, (-1, count, size)), (1, 0, 2))


def multiply_blocks(x, blocks, columns):
    """The product of `x` [R, E] and a matrix [E, columns], given as `column_blocks`."""
    x = ops.broadcast_to(ops.cast(x, blocks.dtype), (blocks.shape[0], *x.shape))
    products = ops.transpose(ops.matmul(x, blocks), (1, 0, 2))
    return ops.reshape(products, (x.shape[1], -1))[:, :columns]


class _QuantizedLikeKeras:
    """Keras refuses to quantize subclasses of its layers; these two compute the same."""

    def quantize(self, mode=None, type_check=True, config=None):
        is_subclass = type(self) not in (Dense, ReversibleEmbedding)
        super().quantize(mode, type_check=type_check and is_subclass, config=config)


@keras.saving.register_keras_serializable("zoo")
class Dense(_QuantizedLikeKeras, keras.layers.Dense):
    """`keras.layers.Dense`, faster in bfloat16 and int8 in functions that XLA compiles for CPUs."""

    def __init__(
        self,
        units,
        activation=None,
        use_bias=True,
        kernel_initializer="glorot_uniform",
        *args,
        **kwargs,
    ):
        kernel_initializer = own_initializer(kernel_initializer)
        super().__init__(units, activation, use_bias, kernel_initializer, *args, **kwargs)

    def call(self, inputs, training=None):
        if inputs.dtype != "bfloat16" or not _is_compiled(inputs):
            return super().call(inputs, training=training)
        x = _bfloat16_product(inputs, ops.cast(self.kernel, "bfloat16"))
        x = x if self.bias is None else x + ops.cast(self.bias, x.dtype)
        x = x if self.activation is None else self.activation(x)
        return ops.cast(x, self.compute_dtype)

    def quantized_call(self, inputs, training=None):
        is_int8 = self.quantization_mode == "int8" and self.inputs_quantizer
        is_inference = not training and not self.lora_enabled
        if not is_int8 or not is_inference or not _is_compiled(inputs):
            return super().quantized_call(inputs, training=training)

        def product(x):
            # without the custom gradient of Keras's, which would keep the weights alive
            x, scale = self.inputs_quantizer(x, axis=-1)
            x = ops.cast(ops.matmul(x, self._kernel), self.compute_dtype)
            return x / (self.kernel_scale * ops.stop_gradient(scale))

        x = _of_two_rows(product, inputs)
        x = x if self.bias is None else x + ops.cast(self.bias, x.dtype)
        return x if self.activation is None else self.activation(x)

    def column_blocks(self, rows):
        """The `column_blocks` of the kernel, for products that are all that the layer computes."""
        is_plain = self.bias is None and self.activation is keras.activations.linear
        is_changed = self.lora_enabled or self.quantization_mode is not None
        return () if not is_plain or is_changed else column_blocks(self._kernel, rows)


@keras.saving.register_keras_serializable("zoo")
class ReversibleEmbedding(_QuantizedLikeKeras, keras.layers.ReversibleEmbedding):
    """`keras.layers.ReversibleEmbedding` with a faster tied output projection, like `Dense`."""

    def call(self, inputs, reverse=False):
        dtype = self.reverse_dtype or self.compute_dtype
        if reverse and dtype == "bfloat16" and self._is_plain and _is_compiled(inputs):
            inputs, matrix = ops.cast(inputs, dtype), ops.cast(self.embeddings, dtype)
            return ops.cast(_bfloat16_product(inputs, matrix, transpose_b=True), dtype)
        if reverse and self.reverse_dtype and self.variable_dtype != self.compute_dtype:
            # Where the layer is called on its own, Keras would round the matrix to the compute
            # dtype before the cast to `reverse_dtype`; in a call of the model, it does not.
            with AutocastScope(None):
                return super().call(inputs, reverse=True)
        return super().call(inputs, reverse=reverse)

    def quantized_call(self, inputs, reverse=False):
        is_int8 = self.quantization_mode == "int8" and self.inputs_quantizer
        if not reverse or not is_int8 or not (self._is_plain and _is_compiled(inputs)):
            return super().quantized_call(inputs, reverse=reverse)
        import tensorflow as tf

        def product(x):
            x, scale = self.inputs_quantizer(x)
            x = tf.matmul(x, self._embeddings, transpose_b=True, output_type=tf.int32)
            x = ops.cast(x, self.compute_dtype)
            return x / (ops.stop_gradient(scale) * self.embeddings_scale)

        return _of_two_rows(product, inputs)

    def column_blocks(self, rows):
        """The `column_blocks` of the output projection, if it is nothing but a product."""
        is_float32 = (self.reverse_dtype or self.compute_dtype) == "float32"
        is_changed = self.lora_enabled or self.quantization_mode is not None
        if not self._is_plain or not is_float32 or is_changed:
            return ()
        return column_blocks(self._embeddings, rows, transpose=True)

    @property
    def _is_plain(self):
        """Whether the logits are nothing but a product with the embeddings."""
        return self.tie_weights and self.logit_soft_cap is None


def _is_compiled(x):
    """Whether `x` is a matrix in a function that XLA compiles, on a machine with CPUs only."""
    return len(x.shape) == 2 and in_xla() and only_cpus()


def _of_two_rows(function, x):
    """``function(x)`` for a matrix `x`; a single row is computed as two."""
    return function(ops.repeat(x, 2, axis=0))[:1] if x.shape[0] == 1 else function(x)


def _bfloat16_product(x, y, transpose_b=False):
    """The product of two matrices of bfloat16, in float32. It has no second derivatives."""
    import tensorflow as tf

    # The gradients of the product are float32; those of the casts, which XLA removes, bfloat16.
    x, y = (ops.cast(ops.cast(tensor, "float32"), "bfloat16") for tensor in (x, y))
    return tf.matmul(x, y, transpose_b=transpose_b, output_type=tf.float32)
