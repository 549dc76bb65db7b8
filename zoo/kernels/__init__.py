"""The same results in less time, for TensorFlow on CPUs: without it, everything still works.

Layers and losses are written for the reader of the papers. A plain function that takes most of the
time somewhere has a kernel, which is named above it::

    @kernels.accelerated_by(kernels.attention)
    def scaled_dot_product_attention(query, key, value, ...):

A kernel takes the arguments of its plain function. It returns None if it would take more time or be
less exact for these arguments; then the plain function runs. `_RUNS` says when each kernel runs;
this is the only file that asks for the backend, the device and the compiler. All kernels are
TensorFlow on CPUs, where they were measured: docs/speed.md. GPUs, JAX and PyTorch run the plain
functions.

Set ``ZOO_KERNELS=0`` in the environment, or call `zoo.kernels.enable(False)` before functions are
traced, to compare with the plain functions.
"""

import functools
import os

import keras

from zoo import compat
from zoo.kernels.attention import attention
from zoo.kernels.dropout import dropout
from zoo.kernels.elementwise import activation, layer_normalization
from zoo.kernels.losses import smoothed_cross_entropy
from zoo.kernels.products import bfloat16_dense, int8_dense, int8_logits, tied_logits
from zoo.kernels.update import apply_gradients

_enabled = os.environ.get("ZOO_KERNELS", "1") != "0"


def enable(on=True):
    """Switches all kernels on or off, for functions that are traced afterwards.

    Returns:
        Whether they were on before.
    """
    global _enabled
    before = _enabled
    _enabled = on
    return before


def tracing_for_cpus():
    """Whether TensorFlow traces a function, on a machine with CPUs only."""
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    if tf.executing_eagerly():
        return False
    return {device.device_type for device in tf.config.list_logical_devices()} == {"CPU"}


def training_on_cpus():
    """Whether TensorFlow traces a training step for CPUs.

    Explicit gradients are for training only: TensorFlow's registry of gradients keeps a graph with
    a custom gradient alive, and the weights in it.
    """
    return tracing_for_cpus() and bool(compat.call_training())


def compiled_for_cpus():
    """Whether XLA compiles what TensorFlow traces, for CPUs."""
    return tracing_for_cpus() and compat.in_xla_context()


_RUNS = {  # kernel: when it runs
    attention: training_on_cpus,
    dropout: training_on_cpus,
    layer_normalization: training_on_cpus,
    activation: training_on_cpus,
    smoothed_cross_entropy: tracing_for_cpus,
    apply_gradients: tracing_for_cpus,
    bfloat16_dense: compiled_for_cpus,
    tied_logits: compiled_for_cpus,
    int8_dense: compiled_for_cpus,
    int8_logits: compiled_for_cpus,
}


def accelerated_by(kernel):
    """Decorator of a plain function: runs the kernel instead where that takes less time."""

    def decorate(plain):
        @functools.wraps(plain)
        def call(*args, **kwargs):
            result = None
            if _enabled and _RUNS[kernel]():
                result = kernel(*args, **kwargs)
            return plain(*args, **kwargs) if result is None else result

        return call

    return decorate
