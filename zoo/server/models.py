"""The SavedModels that are served: described and called."""

import pathlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from zoo.server.errors import RequestError

DEFAULT_SIGNATURE = "serving_default"
# What TensorFlow Serving answers to an error of a model; to others it answers 500.
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
    """One way to call a model.

    Fields:
        inputs, outputs: {name: `tf.TensorSpec`}.
        function: takes tensors by the names of the inputs, returns {output name: tensor}.
    """

    inputs: dict
    outputs: dict
    function: Callable

    @property
    def is_batched(self):
        """Whether rows of several requests may be run as one call, and parted again.

        So it is if every input and output has a free first axis, and no output another: the width
        of, say, attention to padded tokens depends on the longest of the rows.
        """
        inputs = [spec.shape for spec in self.inputs.values()]
        outputs = [spec.shape for spec in self.outputs.values()]
        return (
            bool(inputs)
            and all(shape.rank and shape[0] is None for shape in inputs + outputs)
            and all(shape[1:].is_fully_defined() for shape in outputs)
        )


class Model(NamedTuple):
    """A model that is served.

    Fields:
        name, version: as the URL has them: str and int.
        kind: "classifier" or "translator", if it has their signatures; or "model".
        folder: where it was loaded from.
        signatures: {name: `Signature`}.
        signature_def: {name: dict}, the SavedModel's `SignatureDef` protos in JSON's form.
        seconds: that loading took.
        loaded: the SavedModel itself, whose variables live as long as something refers to it.
    """

    name: str
    version: int
    kind: str
    folder: pathlib.Path
    signatures: dict
    signature_def: dict
    seconds: float
    loaded: object

    def call(self, signature_name, inputs):
        """Runs a signature.

        Args:
            signature_name: str.
            inputs: {name: NumPy array}.

        Returns:
            {name: NumPy array}; strings are bytes in arrays of objects.

        Raises:
            RequestError: what the model says against it.
        """
        signature = self.signatures[signature_name]
        tensors = {n: tf.constant(v, signature.inputs[n].dtype) for n, v in inputs.items()}
        try:
            outputs = signature.function(**tensors)
        except tf.errors.OpError as error:
            status = _STATUS.get(error.error_code, 500)
            raise RequestError(status, f"The model failed: {_reason(error)}") from None
        return {name: _numpy(tensor) for name, tensor in outputs.items()}

    def metadata(self):
        """`GetModelMetadataResponse` in JSON's form."""
        return {
            "model_spec": {"name": self.name, "signature_name": "", "version": str(self.version)},
            "metadata": {"signature_def": {"signature_def": self.signature_def}},
        }

    def summary(self):
        """What the page wants to know, as JSON can hold it."""
        return {
            "name": self.name,
            "version": str(self.version),
            "kind": self.kind,
            "signatures": {
                name: {"inputs": sorted(signature.inputs), "outputs": sorted(signature.outputs)}
                for name, signature in sorted(self.signatures.items())
            },
        }


def _numpy(tensor):
    value = tensor.numpy()
    return np.array(value, object) if tensor.dtype == tf.string else np.asarray(value)


def _reason(error):
    """TensorFlow's message without the lines about its own graph."""
    lines = [
        line
        for line in error.message.splitlines()
        if line.strip()
        and not line.startswith(("Graph execution error", "Detected at node", "<stack traces"))
        and not line.lstrip().startswith("[[{{node")
    ]
    return " ".join(lines) or error.message
