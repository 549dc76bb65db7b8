"""Functions that XLA compiles for CPUs, also within a step that it does not compile.

TensorFlow multiplies large matrices faster than XLA's code for CPUs, and computes all else in one
pass over memory for each operation. XLA computes a chain of elementwise operations in one pass.
"""


def compile_for_cpus(function, gradient=None):
    """Compiles a function, and its explicit gradient if there is one, by XLA.

    Each new shape is compiled once, for about 0.05 s on a CPU: pad batches to few lengths.

    Args:
        function: function of tensors.
        gradient: ``gradient(upstream, *tensors)`` returns the gradient of each tensor, in its
            dtype, given that of the result.
    """
    import tensorflow as tf

    forward = tf.function(function, jit_compile=True, autograph=False)
    if gradient is None:
        return forward
    backward = tf.function(gradient, jit_compile=True, autograph=False)

    @tf.custom_gradient
    def call(*tensors):
        return forward(*tensors), lambda upstream: backward(upstream, *tensors)

    return call
