"""Served SavedModels: signatures, metadata and calls."""

import reprlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from zoo.server.errors import STATUS, RequestError

DEFAULT_SIGNATURE = "serving_default"
_STATUS = {getattr(tf.errors, name): status for name, status in STATUS.items()}


class Signature(NamedTuple):
    """A signature of a SavedModel."""

    inputs: dict  # {name: `tf.TensorSpec`}
    outputs: dict  # the same
    function: Callable  # takes tensors by the names of the inputs, returns {output name: tensor}

    @property
    def is_batched(self):
        """Whether requests can be batched and their outputs split again.

        All inputs and outputs must have a dynamic first dimension. Outputs must have no other: it
        could depend on the other rows, as the width of attention maps depends on the longest row.
        """
        inputs = [spec.shape for spec in self.inputs.values()]
        outputs = [spec.shape for spec in self.outputs.values()]
        have_rows = all(shape.rank and shape[0] is None for shape in inputs + outputs)
        return inputs != [] and have_rows and all(s[1:].is_fully_defined() for s in outputs)


class Model(NamedTuple):
    """A served model."""

    name: str  # as in the URL, like the version
    version: int
    signatures: dict  # {name: `Signature`}
    signature_def: dict  # {name: dict}, the SavedModel's `SignatureDef` protos as JSON
    loaded: object  # the SavedModel; the reference keeps its variables alive

    def signature(self, name):
        """Returns the `Signature` of this name.

        Raises:
            RequestError: 400 if there is none.
        """
        if not isinstance(name, str) or name not in self.signatures:
            raise RequestError(
                f"Serving signature name: {reprlib.repr(name)} not found in signature def. "
                f"Available: {sorted(self.signatures)}.",
            )
        return self.signatures[name]

    def call(self, signature_name, inputs):
        """Calls a signature with {name: NumPy array}.

        Returns:
            {name: NumPy array}; strings are bytes in object arrays.

        Raises:
            RequestError: if the model raises an error.
        """
        signature = self.signatures[signature_name]
        try:
            tensors = {n: tf.constant(v, signature.inputs[n].dtype) for n, v in inputs.items()}
            outputs = signature.function(**tensors)
        except Exception as error:
            status = _STATUS.get(getattr(error, "error_code", None), 500)
            raise RequestError(f"The model raised an error: {_reason(error)}", status) from None
        return {
            name: np.asarray(tensor.numpy(), object if tensor.dtype == tf.string else None)
            for name, tensor in outputs.items()
        }


def _reason(error):
    """The message of an error, without TensorFlow's lines about the graph."""
    if not isinstance(error, tf.errors.OpError):
        return f"{type(error).__name__}: {error}"
    noise = ("Graph execution error", "Detected at node", "<stack traces", "[[{{node")
    lines = [line for line in map(str.strip, error.message.splitlines()) if line]
    return " ".join(line for line in lines if not line.startswith(noise)) or error.message
