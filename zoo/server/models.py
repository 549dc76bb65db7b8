"""Served SavedModels: signatures, metadata and calls."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from zoo.server.errors import RequestError, bad_request, shown

DEFAULT_SIGNATURE = "serving_default"
# The HTTP status of TensorFlow Serving for each error of a model; for others it is 500.
_STATUS = {
    tf.errors.INVALID_ARGUMENT: 400,
    tf.errors.FAILED_PRECONDITION: 400,
    tf.errors.OUT_OF_RANGE: 400,
    tf.errors.NOT_FOUND: 404,
    tf.errors.RESOURCE_EXHAUSTED: 429,
    tf.errors.UNIMPLEMENTED: 501,
    tf.errors.UNAVAILABLE: 503,
    tf.errors.DEADLINE_EXCEEDED: 504,
}


class Signature(NamedTuple):
    """A signature of a SavedModel.

    Fields:
        inputs, outputs: {name: `tf.TensorSpec`}.
        function: takes tensors by the names of the inputs, returns {output name: tensor}.
    """

    inputs: dict
    outputs: dict
    function: Callable

    @property
    def is_batched(self):
        """Whether requests can be batched and their outputs split again.

        This requires a dynamic first dimension of every input and output, and no other dynamic
        dimension of an output: it could depend on the other rows, as the width of attention maps
        depends on the longest row.
        """
        inputs = [spec.shape for spec in self.inputs.values()]
        outputs = [spec.shape for spec in self.outputs.values()]
        have_rows = all(shape.rank and shape[0] is None for shape in inputs + outputs)
        return inputs != [] and have_rows and all(s[1:].is_fully_defined() for s in outputs)


class Model(NamedTuple):
    """A served model.

    Fields:
        name, version: str and int, as in the URL.
        signatures: {name: `Signature`}.
        signature_def: {name: dict}, the SavedModel's `SignatureDef` protos as JSON.
        loaded: the SavedModel object; a reference is needed to keep its variables alive.
    """

    name: str
    version: int
    signatures: dict
    signature_def: dict
    loaded: object

    def signature(self, name):
        """The `Signature` of this name.

        Raises:
            RequestError: 400 if there is none.
        """
        if name not in self.signatures:
            raise bad_request(
                f"Serving signature name: {shown(name)} not found in signature def. "
                f"Available: {sorted(self.signatures)}."
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
            raise RequestError(status, f"The model raised an error: {_reason(error)}") from None
        return {
            name: np.asarray(tensor.numpy(), object if tensor.dtype == tf.string else None)
            for name, tensor in outputs.items()
        }

    def metadata(self):
        """`GetModelMetadataResponse` as JSON."""
        spec = {"name": self.name, "signature_name": "", "version": str(self.version)}
        signatures = {"signature_def": self.signature_def}
        return {"model_spec": spec, "metadata": {"signature_def": signatures}}


def _reason(error):
    """The message of an error; TensorFlow's without the lines about its own graph."""
    if not isinstance(error, tf.errors.OpError):
        return f"{type(error).__name__}: {error}"
    noise = ("Graph execution error", "Detected at node", "<stack traces", "[[{{node")
    lines = [line for line in map(str.strip, error.message.splitlines()) if line]
    return " ".join(line for line in lines if not line.startswith(noise)) or error.message
