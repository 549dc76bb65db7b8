"""Functions of a model on tensors, each traced and compiled once for its shapes."""

import functools
import operator
import threading

import numpy as np
import tensorflow as tf

from zoo.decoding import Hypotheses
from zoo.errors import TaskError

JIT_COMPILE = True  # by XLA; False for all functions, exported ones as well
MAX_FUNCTIONS = 32  # that are kept, the last used ones
_lock = threading.Lock()


class CompiledFunctions:
    """Runs functions of a model, each traced once for the shapes of its tensors and its settings.

    New values of the model's variables take effect at once. If the variables are not the same as
    before, as after `enable_lora` or `quantize`, the functions are traced again.
    """

    def __init__(self, model):
        self._model = model
        self._variables = []  # of the model when the functions were traced
        self._function = functools.lru_cache(MAX_FUNCTIONS)(_compiled)

    def call(self, graph, tensors, jit_compile, settings, specs=None):
        """Computes ``graph(*tensors, **settings)``.

        Args:
            graph: function of tensors.
            tensors: its arguments, which may be nested.
            jit_compile: whether XLA compiles it.
            settings: its other arguments, a dict; they are constants of the graph.
            specs: tuple of a `tf.TensorSpec` for each tensor, if one graph is for several shapes.
        """
        tensors = tf.nest.map_structure(tf.convert_to_tensor, tensors)
        shapes = tuple(tuple(tensor.shape) for tensor in tf.nest.flatten(tensors))
        with _lock:
            now, before = self._model.weights, self._variables
            if len(now) != len(before) or any(map(operator.is_not, now, before)):
                self._function.cache_clear()
                self._variables = now
            jit_compile = jit_compile and JIT_COMPILE
            function = self._function(graph, specs or shapes, jit_compile, **settings)
        return function(*tensors)


def without_nan(outputs):
    """An array or `zoo.decoding.Hypotheses`; raises `TaskError` if it contains NaN."""
    if np.isnan(outputs.log_probs if isinstance(outputs, Hypotheses) else outputs).any():
        raise TaskError(
            "There is no result: the model computed NaN. Its weights are not finite, perhaps "
            "because its training diverged."
        )
    return outputs


def _compiled(graph, shapes, jit_compile, **settings):
    """A function of tensors of these shapes; of any that fit if they are `tf.TensorSpec`."""
    specs = shapes if all(isinstance(shape, tf.TensorSpec) for shape in shapes) else None
    graph = functools.partial(graph, **settings)
    return tf.function(graph, input_signature=specs, autograph=False, jit_compile=jit_compile)
