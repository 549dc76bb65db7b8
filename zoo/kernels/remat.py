"""Gradient checkpointing: Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost"."""

import keras
from keras import ops

from zoo import compat


def recomputed(layer, *inputs, bias=None, **settings):
    """``layer(*inputs, bias=bias, **settings)``, recomputed for the gradient.

    The layer becomes a function of its variables. They include the states of its seeds, so that the
    recomputation draws the same random numbers. `settings` have no gradient.
    """
    learned, fixed = layer.trainable_variables, layer.non_trainable_variables
    seeds = [variable for variable in fixed if variable.name == "seed_generator_state"]
    with compat.without_autocast():
        weights = [variable.value for variable in learned]
        values = [(variable, ops.stop_gradient(variable.value)) for variable in fixed]
    values += [(seed, ops.copy(seed.value)) for seed in seeds]  # as they are now
    inputs, training = inputs if bias is None else (*inputs, bias), compat.call_training()

    def call(*tensors):
        x, weights = list(tensors[: len(inputs)]), tensors[len(inputs) :]
        given = settings if bias is None else {**settings, "bias": x.pop()}
        with compat.without_autocast():
            scope = keras.StatelessScope([*values, *zip(learned, weights)])
        with scope, compat.call_context(training):
            y = layer(*x, **given)
        return y, *(scope.get_current_value(seed) for seed in seeds)

    y, *states = keras.remat(call)(*inputs, *weights)
    for seed, state in zip(seeds, states):
        seed.assign(state)
    return y
