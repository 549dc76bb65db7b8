"""Private names of Keras and TensorFlow, each with the reason why no public name does.

This is the only file that uses any, as `tests/test_imports.py` checks. All of them were checked
with Keras 3.15.1 and TensorFlow 2.21; check them again before an update of either.
"""

import contextlib

from keras.src.backend import AutocastScope, get_keras_mask
from keras.src.backend.common import global_state
from keras.src.layers.layer import CallContext

__all__ = ["call_context", "call_training", "get_keras_mask", "in_xla_context", "without_autocast"]

# `get_keras_mask(tensor)` is the mask that a layer attached to its output, or None: Keras passes it
# to the argument `mask` of a layer, but tells nobody the mask of one of several inputs.


def without_autocast():
    """Context manager: layers read their variables in the dtype in which they are stored.

    `keras.layers.Layer(autocast=False)` does so for the whole layer and for each of its calls.
    """
    return AutocastScope(None)


def call_training():
    """The `training` argument of the outermost layer call that runs; None outside a call.

    Keras passes it to arguments named `training` of nested layers, but not to their other methods.
    """
    context = global_state.get_global_attribute("current_call_ctx")
    return None if context is None else context.get_value("training")


@contextlib.contextmanager
def call_context(training):
    """Layers called within get `training`, unless they are part of a call already.

    `Layer.__call__` opens such a context, but `Layer.stateless_call`, with which `fit` runs models
    on JAX, does not.
    """
    if global_state.get_global_attribute("current_call_ctx") is not None:
        yield
        return
    context = CallContext(entry_layer=None)
    context.set_value("training", training)
    global_state.set_global_attribute("current_call_ctx", context)
    try:
        yield
    finally:
        global_state.set_global_attribute("current_call_ctx", None)


def in_xla_context():
    """Whether the TensorFlow graph that is being made will be compiled by XLA.

    TensorFlow has no public function that tells a function compiled by XLA from another.
    """
    import tensorflow as tf
    from tensorflow.python.ops import control_flow_util

    return control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())
