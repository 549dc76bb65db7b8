"""Matrix products in functions that XLA compiles for CPUs: matrices [N, width] of N rows.

XLA multiplies in bfloat16 or int8 only if

- the result has a wider dtype,
- there are at least two rows, and
- a matrix to be transposed is passed to the product as it is (`transpose_b`).

Otherwise it converts the operands to float32 or int32 first, which takes longer than the product.
"""

import contextlib
import contextvars

import keras
from keras import ops

from zoo import compat

_FEW_ROWS = 32
_LARGE_VOCABULARY = 2**14
_GRAPH_AROUND = contextvars.ContextVar("the graph around a loop of constant weights", default=None)


@contextlib.contextmanager
def constant_weights():
    """A context in which a loop is traced that changes no weights, as a search does.

    `tied_logits` then transposes a matrix only once, in the graph around the loop.
    """
    graph = None
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        if not tf.executing_eagerly():
            graph = tf.compat.v1.get_default_graph()
    token = _GRAPH_AROUND.set(graph)
    try:
        yield
    finally:
        _GRAPH_AROUND.reset(token)


def bfloat16_dense(layer, x):
    """`zoo.layers.dense.Dense` of a matrix: the bias and the activation are added in float32."""
    if x.dtype != "bfloat16":
        return None
    x = _bfloat16_product(x, ops.cast(layer.kernel, "bfloat16"))
    return ops.cast(_add_bias(layer, x), layer.compute_dtype)


def tied_logits(layer, x):
    """The product of a matrix with the embeddings of a `zoo.layers.dense.ReversibleEmbedding`.

    For 2 to 32 rows of float32, the product is up to four times as fast with a matrix that is
    already transposed. A search transposes it once, in the graph around its loop, which has
    `constant_weights`. For a single row, it would not help: XLA copies a transposed matrix if a
    bias is added to the product.
    """
    if not _is_product(layer):
        return None
    import tensorflow as tf

    dtype = layer.reverse_dtype or layer.compute_dtype
    x = ops.cast(x, dtype)
    if dtype == "bfloat16":
        return ops.cast(_bfloat16_product(x, _matrix(layer, dtype), transpose_b=True), dtype)
    around = _GRAPH_AROUND.get()
    graph = tf.compat.v1.get_default_graph()
    is_in_loop = around is not None and getattr(graph, "outer_graph", None) is around
    are_few_rows = x.shape[0] is not None and 2 <= x.shape[0] <= _FEW_ROWS
    # In a stateless scope of Keras, weights may be tensors of the loop.
    if not is_in_loop or not are_few_rows or compat.in_stateless_scope() or compat.call_training():
        return tf.matmul(x, _matrix(layer, dtype), transpose_b=True)
    with around.as_default():
        transposed = tf.transpose(_matrix(layer, dtype))
    return tf.matmul(x, transposed)


def int8_dense(layer, x, training=None):
    """A quantized `zoo.layers.dense.Dense` of a matrix.

    The layer of Keras has a custom gradient, which would keep the weights alive.
    """
    if not _is_int8(layer) or training or layer.lora_enabled:
        return None

    def product(x):
        x, scale = layer.inputs_quantizer(x, axis=-1)
        x = ops.cast(ops.matmul(x, compat.stored_matrix(layer)), layer.compute_dtype)
        return x / (layer.kernel_scale * ops.stop_gradient(scale))

    return _add_bias(layer, _of_two_rows(product, x))


def int8_logits(layer, x):
    """The product of a matrix with quantized embeddings.

    Few rows take less time on the right of a large matrix.
    """
    if not _is_int8(layer) or not _is_product(layer):
        return None
    import tensorflow as tf

    def product(x):
        x, scale = layer.inputs_quantizer(x)
        matrix = compat.stored_matrix(layer)
        are_few_rows = x.shape[0] is not None and x.shape[0] <= _FEW_ROWS
        if matrix.shape[0] > _LARGE_VOCABULARY and are_few_rows:
            x = tf.matmul(matrix, x, transpose_b=True, output_type=tf.int32)  # [V, N]
            x = tf.transpose(x)
        else:
            x = tf.matmul(x, matrix, transpose_b=True, output_type=tf.int32)  # [N, V]
        x = ops.cast(x, layer.compute_dtype)
        return x / (ops.stop_gradient(scale) * layer.embeddings_scale)

    return _of_two_rows(product, x)


def _matrix(layer, dtype):
    """The embeddings in full precision, which a call of the layer in mixed precision would cast."""
    with compat.without_autocast():
        return ops.cast(layer.embeddings, dtype)


def _is_product(layer):
    """Whether the logits are nothing but a product with the embeddings."""
    return layer.tie_weights and layer.logit_soft_cap is None


def _is_int8(layer):
    return layer.quantization_mode == "int8" and layer.inputs_quantizer


def _add_bias(layer, x):
    if layer.bias is not None:
        x = x + ops.cast(layer.bias, x.dtype)
    if layer.activation is not None:
        x = layer.activation(x)
    return x


def _of_two_rows(function, x):
    """``function(x)`` for a matrix of int8; a single row is computed as two, see above.

    A single row of bfloat16 is not: this would be slower.
    """
    if x.shape[0] == 1:
        return function(ops.repeat(x, 2, axis=0))[:1]
    return function(x)


def _bfloat16_product(x, y, transpose_b=False):
    """The product of two matrices of bfloat16, in float32. It has no second derivatives."""
    import tensorflow as tf

    # TensorFlow computes the gradients of this product in float32. Going through float32 and back
    # makes them bfloat16, like x and y: the gradient of a cast is a cast to the dtype of its input.
    # XLA removes the casts from the forward pass.
    x = ops.cast(ops.cast(x, "float32"), "bfloat16")
    y = ops.cast(ops.cast(y, "float32"), "bfloat16")
    return tf.matmul(x, y, transpose_b=transpose_b, output_type=tf.float32)
