"""Parts of a training step that XLA compiles for CPUs, also within a step that it does not compile.

TensorFlow multiplies large matrices faster than XLA's code for CPUs, and computes all else in one
pass over memory for each operation. XLA computes a chain of elementwise operations in one pass.
"""

import keras
from keras import ops

JIT_COMPILE = True  # whether XLA compiles these parts; set it before the first training step


def in_xla():
    """Whether TensorFlow makes a graph that XLA compiles."""
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    if tf.executing_eagerly():
        return False
    # TensorFlow has no public function for it.
    from tensorflow.python.ops import control_flow_util

    return control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())


def only_cpus():
    """Whether the backend is TensorFlow, on a machine with CPUs only."""
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return {"CPU"} == {device.device_type for device in tf.config.list_logical_devices()}


def trains_on_cpus(training):
    """Whether TensorFlow makes the graph of a training step for CPUs.

    Explicit gradients are for training only: TensorFlow's registry of gradients keeps a graph with
    a custom gradient alive, and the weights in it. On GPUs they have not been measured.
    """
    if not training or not only_cpus():
        return False
    import tensorflow as tf

    return not tf.executing_eagerly()


def wide(x):
    """`x` in float32, or in its dtype if that is wider."""
    return ops.cast(x, keras.backend.result_type(x.dtype, "float32"))


def compiled(function, gradient=None):
    """`function`, and its explicit gradient if there is one, compiled by XLA.

    Each new shape is compiled once, for about 0.05 s on a CPU: pad batches to few lengths.

    Args:
        function: of tensors.
        gradient: ``gradient(upstream, *tensors)`` returns the gradient of each tensor, in its
            dtype, given that of the result.
    """
    import tensorflow as tf

    settings = {"jit_compile": JIT_COMPILE, "autograph": False}
    forward = tf.function(function, **settings)
    if gradient is None:
        return forward
    backward = tf.function(gradient, **settings)

    @tf.custom_gradient
    def call(*tensors):
        return forward(*tensors), lambda upstream: backward(upstream, *tensors)

    return call
