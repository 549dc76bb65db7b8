"""Blocks of models compiled by XLA: each kind of block once, instead of each block."""

import keras
import tensorflow as tf

from zoo import compat
from zoo.models.base import call_block


class CompiledBlocks:
    """Compiles the blocks of models; see `zoo.models.base.blocks_called_by`.

    All blocks with the same config share a function of weights and inputs. It is traced once, and
    XLA compiles it once for each shape of the inputs, forward and backward.
    """

    def __init__(self):
        self._functions = {}

    def __call__(self, block, method, *inputs, **arguments):
        """Calls a method of a block with tensors, nested tensors, and constants."""
        variables = block.variables
        kind = (method, _kind(block))
        if kind not in self._functions:
            self._functions[kind] = _compiled(block, method)
        with compat.without_autocast():
            values = [tf.convert_to_tensor(variable.value) for variable in variables]
        y, new_values = self._functions[kind](values, inputs, arguments)
        for variable, value in zip(variables, new_values, strict=True):
            if value is not None:
                variable.assign(value)
        return y


def _kind(block):
    """What decides the output of a block, but for the values of its variables."""
    config = block.get_config()
    del config["name"]
    # Numbers of its layers, such as rates of dropout, may have been set later.
    numbers = [
        (type(layer), {name: value for name, value in vars(layer).items() if _is_number(value)})
        for layer in compat.all_layers(block)
    ]
    variables = [(one.shape, one.dtype, one.trainable) for one in block.variables]
    return repr((config, numbers, variables))


def _is_number(value):
    return isinstance(value, (bool, int, float))


def _compiled(block, method):
    """Returns a method of a block as a function without side effects.

    It is a function of the values of the block's variables, inputs and arguments. It returns the
    output, and for each variable its new value, or None if it does not change.
    """
    variables = block.variables

    @tf.function(jit_compile=True, autograph=False, reduce_retracing=True)
    def compiled(values, inputs, arguments):
        given = [
            # the gradient of a frozen weight would be computed in vain
            value if variable.trainable else tf.stop_gradient(value)
            for variable, value in zip(variables, values, strict=True)
        ]
        with compat.without_autocast():
            scope = keras.StatelessScope([*zip(variables, given)])
        with scope, compat.call_context(training=True):
            y = call_block(block, method, *inputs, **arguments)
        new = [scope.get_current_value(variable) for variable in variables]
        return y, [None if one is same else one for one, same in zip(new, given)]

    return compiled
