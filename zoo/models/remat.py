"""Gradient checkpointing: Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost"."""

import keras
from keras import ops

from zoo import compat


def recomputed(call_layer, layer, method, *inputs, bias=None, **arguments):
    """Calls a layer, and recomputes it for the gradient in place of keeping its activations.

    `keras.remat` needs a function without side effects. Variables are therefore read from a
    `keras.StatelessScope`, which maps each one to a value:

    - trainable variables to inputs of the function, which have gradients;
    - other variables to their current values;
    - the states of random numbers to copies from before the call, so that the recomputation draws
      the same numbers. Their new values are outputs of the function.

    Args:
        call_layer: function like `zoo.models.base.call_block`.
        layer: built `keras.layers.Layer`.
        method: name of the method to call.
        *inputs: tensors.
        bias: tensor or None, an argument of the layer.
        **arguments: other arguments. Gradients flow to `inputs`, `bias` and variables only.

    Returns:
        The output of the layer.
    """
    trainable = layer.trainable_variables
    seeds = []
    others = []
    for variable in layer.non_trainable_variables:
        is_seed = variable.name == "seed_generator_state"
        (seeds if is_seed else others).append(variable)
    with compat.without_autocast():
        weights = [variable.value for variable in trainable]
        constants = [(variable, ops.stop_gradient(variable.value)) for variable in others]
        constants += [(seed, ops.copy(seed.value)) for seed in seeds]
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
            scope = keras.StatelessScope([*constants, *zip(trainable, weights)])
        with scope, compat.call_context(training):
            y = call_layer(layer, method, *x, **given)
        return y, *(scope.get_current_value(seed) for seed in seeds)

    y, *states = keras.remat(call)(*inputs, *weights)
    for seed, state in zip(seeds, states):
        seed.assign(state)
    return y
