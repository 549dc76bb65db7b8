"""Faster implementations of some functions, for TensorFlow on CPUs. They are optional.

A function with a faster kernel has a decorator::

    @kernels.accelerated_by(kernels.attention)
    def scaled_dot_product_attention(query, key, value, ...):

A kernel takes the arguments of its plain function and gives the same results within rounding, which
tests/kernels checks; dropout draws other numbers of the same distribution. `_RUNS` is the first
condition for each kernel: the backend, the device and whether the model is trained or compiled by
XLA. A kernel also returns None for arguments that it does not support, or for which it would be
slower; then the plain function runs, as it always does on GPUs, JAX and PyTorch. docs/speed.md has
measurements.

To compare with the plain functions, set ``ZOO_KERNELS=0`` in the environment.
"""

import functools
import os

import keras

from zoo import compat
from zoo.kernels.attention import attention
from zoo.kernels.dropout import dropout
from zoo.kernels.elementwise import activation, layer_normalization
from zoo.kernels.losses import smoothed_cross_entropy
from zoo.kernels.products import (
    bfloat16_dense,
    constant_weights,
    int8_dense,
    int8_logits,
    tied_logits,
)
from zoo.kernels.recurrence import linear_recurrence
from zoo.kernels.update import apply_gradients

enabled = os.environ.get("ZOO_KERNELS", "1") != "0"  # read when a function is traced


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
    linear_recurrence: tracing_for_cpus,
    smoothed_cross_entropy: tracing_for_cpus,
    apply_gradients: tracing_for_cpus,
    bfloat16_dense: compiled_for_cpus,
    tied_logits: compiled_for_cpus,
    int8_dense: compiled_for_cpus,
    int8_logits: compiled_for_cpus,
}


def accelerated_by(kernel):
    """Decorator of a plain function: runs the kernel instead, where it can."""

    def decorate(plain):
        @functools.wraps(plain)
        def call(*args, **kwargs):
            result = None
            if enabled and _RUNS[kernel]():
                result = kernel(*args, **kwargs)
            return plain(*args, **kwargs) if result is None else result

        return call

    return decorate
