"""The update of the weights by an optimizer, in one pass over memory."""

import math

import keras

from zoo.kernels.xla import compile_for_cpus

LARGE = 10_000_000  # weights; for fewer, compiling takes longer than it saves


def apply_gradients(optimizer, gradients, variables):
    """`zoo.training.step.apply_gradients` of large models on one device, compiled by XLA."""
    import tensorflow as tf

    if tf.distribute.has_strategy() or not _is_elementwise(optimizer):
        return None
    if sum(math.prod(variable.shape) for variable in variables) < LARGE:
        return None

    def apply(*gradients):
        optimizer.apply(gradients, variables)

    compile_for_cpus(apply)(*gradients)
    return True  # anything but None: the plain function must not run as well


def _is_elementwise(optimizer):
    """Whether an optimizer of Keras or ours has no matrix products, in which XLA is slower."""
    kind = type(getattr(optimizer, "inner_optimizer", optimizer))
    is_known = kind.__module__.startswith(("keras.", "zoo."))
    return is_known and not issubclass(kind, keras.optimizers.Muon)
