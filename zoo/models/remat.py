"""Gradient checkpointing: Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost"."""

import keras
from keras import ops

from zoo import compat


def recomputed(layer, *inputs, bias=None, **arguments):
    """``layer(*inputs, bias=bias, **arguments)``, recomputed for the gradient.

    The layer becomes a function of its inputs and of its variables. They include the states of its
    seeds, so that the recomputation draws the same random numbers. `inputs` and `bias` have
    gradients, `arguments` have none.
    """
    learned = layer.trainable_variables
    fixed = layer.non_trainable_variables
    seeds = [variable for variable in fixed if variable.name == "seed_generator_state"]
    with compat.without_autocast():
        weights = [variable.value for variable in learned]
        constants = [(variable, ops.stop_gradient(variable.value)) for variable in fixed]
    constants += [(seed, ops.copy(seed.value)) for seed in seeds]  # the states before the call
    if bias is not None:
        inputs = (*inputs, bias)
    training = compat.call_training()

    def call(*tensors):
        x = list(tensors[: len(inputs)])
        weights = tensors[len(inputs) :]
        given = dict(arguments)
        if bias is not None:
            given["bias"] = x.pop()
        with compat.without_autocast():
            scope = keras.StatelessScope([*constants, *zip(learned, weights)])
        with scope, compat.call_context(training):
            y = layer(*x, **given)
        return y, *(scope.get_current_value(seed) for seed in seeds)

    y, *states = keras.remat(call)(*inputs, *weights)
    for seed, state in zip(seeds, states):
        seed.assign(state)
    return y
