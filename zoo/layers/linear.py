"""Dense layers on sequences, and their products in programs that XLA compiles for CPUs.

There, XLA computes products of bfloat16 or int8 in that type only if the result has another one, if
there are several rows, and if the matrix is transposed within the product. Otherwise it converts
the operands to float32 or int32 first, which takes longer than the product.

The layers have the names of Keras's, since files of weights contain the names of classes.
"""

import keras
from keras import ops


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


@keras.saving.register_keras_serializable("zoo")
class Dense(keras.layers.Dense):
    """`keras.layers.Dense`, faster in bfloat16 and int8 in programs of XLA for CPUs."""

    def call(self, inputs, training=None):
        if len(inputs.shape) != 2 or inputs.dtype != "bfloat16" or not _by_xla_on_cpu():
            return super().call(inputs, training=training)
        x = _bfloat16_product(inputs, ops.cast(self.kernel, "bfloat16"))
        x = x if self.bias is None else x + ops.cast(self.bias, x.dtype)
        x = x if self.activation is None else self.activation(x)
        return ops.cast(x, self.compute_dtype)

    def quantized_call(self, inputs, **kwargs):
        if inputs.shape[0] == 1 and self.quantization_mode == "int8" and _by_xla_on_cpu():
            two_rows = ops.concatenate([inputs, inputs])
            return super().quantized_call(two_rows, **kwargs)[:1]
        return super().quantized_call(inputs, **kwargs)

    def quantize(self, mode=None, type_check=True, config=None):
        # Keras would refuse it for any subclass.
        is_other = type(self) is not Dense
        super().quantize(mode, type_check=type_check and is_other, config=config)


@keras.saving.register_keras_serializable("zoo")
class ReversibleEmbedding(keras.layers.ReversibleEmbedding):
    """`keras.layers.ReversibleEmbedding` with one matrix, like `Dense`."""

    def call(self, inputs, reverse=False):
        dtype = self.reverse_dtype or self.compute_dtype
        if not reverse or dtype != "bfloat16" or not _by_xla_on_cpu():
            return super().call(inputs, reverse=reverse)
        logits = _bfloat16_product(*(ops.cast(x, dtype) for x in (inputs, self.embeddings)), True)
        return ops.cast(logits, dtype)

    def quantized_call(self, inputs, reverse=False):
        if not reverse or self.quantization_mode != "int8" or not _by_xla_on_cpu():
            return super().quantized_call(inputs, reverse=reverse)
        import tensorflow as tf

        count = inputs.shape[0]
        if count == 1:
            inputs = ops.concatenate([inputs, inputs])
        inputs, scale = self.inputs_quantizer(inputs)
        logits = tf.matmul(inputs, self._embeddings, transpose_b=True, output_type=tf.int32)
        logits = ops.cast(logits, self.compute_dtype) / (scale * self.embeddings_scale)
        return logits[:1] if count == 1 else logits

    def quantize(self, mode=None, type_check=True, config=None):
        is_other = type(self) is not ReversibleEmbedding
        super().quantize(mode, type_check=type_check and is_other, config=config)


def _by_xla_on_cpu():
    """Whether this is traced for a program of TensorFlow that XLA compiles for CPUs."""
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf
    from tensorflow.python.ops import control_flow_util

    graph = tf.compat.v1.get_default_graph()
    return control_flow_util.GraphOrParentsInXlaContext(graph) and {"CPU"} == {
        device.device_type for device in tf.config.list_logical_devices()
    }


def _bfloat16_product(x, matrix, transpose_b=False):
    """The product of two matrices of bfloat16, in float32."""
    import tensorflow as tf

    def product(x, y, **transposed):
        return tf.matmul(x, y, output_type=tf.float32, **transposed)

    @tf.custom_gradient
    def with_gradient(x, matrix):
        def gradient(upstream):
            upstream = tf.cast(upstream, x.dtype)
            of_x = product(upstream, matrix, transpose_b=not transpose_b)
            pair = (upstream, x) if transpose_b else (x, upstream)
            of_matrix = product(*pair, transpose_a=True)
            return tf.cast(of_x, x.dtype), tf.cast(of_matrix, x.dtype)

        return product(x, matrix, transpose_b=transpose_b), gradient

    return with_gradient(x, matrix)
