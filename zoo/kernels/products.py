"""Matrix products in functions that XLA compiles for CPUs.

There, XLA multiplies in bfloat16 or int8 only if the result has a wider dtype, if there are at
least two rows, and if a matrix to be transposed is passed to the product as it is (`transpose_b`).
Otherwise it converts the operands to float32 or int32 first, which takes longer than the product.
A single row of int8 is therefore computed as two; for one of bfloat16, this would be slower.

In float32, XLA multiplies a few rows faster by several narrow matrices than by a wide one, such as
that of the logits: see `prepare_logits`.

Axes: R rows, E model width, V vocabulary, N blocks of columns.
"""

import math
from numbers import Integral

from keras import activations, ops

from zoo import compat

MAX_BLOCK_COLUMNS = 4096
MAX_BLOCKS_SIZE = 2**26  # numbers in the copy of a matrix as blocks, 256 MiB


def bfloat16_dense(layer, x):
    """`zoo.layers.dense.Dense` of a matrix: the bias and the activation are added in float32."""
    if x.dtype != "bfloat16":
        return None
    x = _bfloat16_product(x, ops.cast(layer.kernel, "bfloat16"))
    return ops.cast(_add_bias(layer, x), layer.compute_dtype)


def bfloat16_logits(layer, x):
    """The product of a matrix with the embeddings of a `zoo.layers.dense.ReversibleEmbedding`."""
    dtype = layer.reverse_dtype or layer.compute_dtype
    if dtype != "bfloat16" or not _is_product(layer):
        return None
    x, matrix = ops.cast(x, dtype), ops.cast(layer.embeddings, dtype)
    return ops.cast(_bfloat16_product(x, matrix, transpose_b=True), dtype)


def int8_dense(layer, x, training=None):
    """A quantized `zoo.layers.dense.Dense` of a matrix, without the custom gradient of Keras's.

    That would keep the weights alive.
    """
    if not _is_int8(layer) or training or layer.lora_enabled:
        return None

    def product(x):
        x, scale = layer.inputs_quantizer(x, axis=-1)
        x = ops.cast(ops.matmul(x, compat.stored_matrix(layer)), layer.compute_dtype)
        return x / (layer.kernel_scale * ops.stop_gradient(scale))

    return _add_bias(layer, _of_two_rows(product, x))


def int8_logits(layer, x):
    """The product of a matrix with quantized embeddings."""
    if not _is_int8(layer) or not _is_product(layer):
        return None
    import tensorflow as tf

    def product(x):
        x, scale = layer.inputs_quantizer(x)
        matrix = compat.stored_matrix(layer)
        x = tf.matmul(x, matrix, transpose_b=True, output_type=tf.int32)
        x = ops.cast(x, layer.compute_dtype)
        return x / (ops.stop_gradient(scale) * layer.embeddings_scale)

    return _of_two_rows(product, x)


def prepare_logits(layer, rows):
    """A copy of the matrix of an output layer as blocks of columns, for many products of few rows.

    On two CPU cores, products of 4 to 32 rows of width 512 with 32,000 columns by `multiply_blocks`
    take 0.6 to 0.85 of the time. Making the copy takes as long as one product, of small matrices
    as four.

    Args:
        layer: `zoo.layers.dense.Dense` or `zoo.layers.dense.ReversibleEmbedding`.
        rows: number of rows of each product.

    Returns:
        [N, E, V/N], padded with zeros; or None where it would not be faster.
    """
    if not (isinstance(rows, Integral) and 2 <= rows <= 32 and _is_float32_product(layer)):
        return None
    matrix, is_embedding = compat.stored_matrix(layer), hasattr(layer, "tie_weights")
    columns = matrix.shape[0 if is_embedding else 1]
    is_wide = is_embedding or columns > MAX_BLOCK_COLUMNS
    if not is_wide or math.prod(matrix.shape) > MAX_BLOCKS_SIZE:
        return None
    matrix = ops.transpose(matrix) if is_embedding else ops.convert_to_tensor(matrix)
    count = math.ceil(columns / MAX_BLOCK_COLUMNS)
    size = math.ceil(columns / count)
    matrix = ops.pad(matrix, [(0, 0), (0, count * size - columns)])
    return ops.transpose(ops.reshape(matrix, (-1, count, size)), (1, 0, 2))


def multiply_blocks(x, blocks, columns):
    """The product of `x` [..., E] and a matrix [E, columns], given by `prepare_logits`."""
    lengths = ops.shape(x)[:-1]
    x = ops.cast(ops.reshape(x, (-1, x.shape[-1])), blocks.dtype)
    x = ops.broadcast_to(x, (blocks.shape[0], *ops.shape(x)))
    products = ops.transpose(ops.matmul(x, blocks), (1, 0, 2))
    products = ops.reshape(products, (-1, blocks.shape[0] * blocks.shape[2]))[:, :columns]
    return ops.reshape(products, (*lengths, columns))


def _is_product(layer):
    """Whether the layer computes nothing but a product with its matrix."""
    if hasattr(layer, "tie_weights"):
        return layer.tie_weights and layer.logit_soft_cap is None
    return layer.bias is None and layer.activation is activations.linear


def _is_float32_product(layer):
    dtypes = {getattr(layer, "reverse_dtype", None) or layer.compute_dtype, layer.variable_dtype}
    is_plain = layer.quantization_mode is None and not layer.lora_enabled
    return dtypes == {"float32"} and is_plain and _is_product(layer)


def _is_int8(layer):
    return layer.quantization_mode == "int8" and layer.inputs_quantizer


def _add_bias(layer, x):
    x = x if layer.bias is None else x + ops.cast(layer.bias, x.dtype)
    return x if layer.activation is None else layer.activation(x)


def _of_two_rows(function, x):
    """``function(x)`` for a matrix `x`; a single row is computed as two."""
    return function(ops.repeat(x, 2, axis=0))[:1] if x.shape[0] == 1 else function(x)


def _bfloat16_product(x, y, transpose_b=False):
    """The product of two matrices of bfloat16, in float32. It has no second derivatives."""
    import tensorflow as tf

    # The gradients of the product are float32; those of the casts, which XLA removes, bfloat16.
    x, y = (ops.cast(ops.cast(tensor, "float32"), "bfloat16") for tensor in (x, y))
    return tf.matmul(x, y, transpose_b=transpose_b, output_type=tf.float32)
