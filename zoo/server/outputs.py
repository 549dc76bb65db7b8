"""Converts the outputs of a model to the JSON of a response.

Source: TensorFlow Serving, "RESTful API" (tensorflow.org/tfx/serving/api_rest), sections "Predict
API" and "JSON conformance". As there, non-finite numbers are written as NaN, Infinity and
-Infinity, which are not strict JSON but accepted by Python and other parsers.
"""

import base64
import json

import numpy as np

from zoo.server.errors import RequestError, bad_request


def encode(outputs, row_form):
    """Encodes {name: NumPy array} to the bytes of the response.

    Strings of outputs whose names end in "_bytes" are written as {"b64": ...}; in other outputs,
    invalid UTF-8 is replaced by U+FFFD.

    Raises:
        RequestError: 400 if `row_form` is True and the outputs differ in their first dimension.
    """
    values = {name: _plain(name, array) for name, array in outputs.items()}
    if not row_form:
        answer = {"outputs": values if len(values) != 1 else next(iter(values.values()))}
    else:
        sizes = {name: array.shape[:1] for name, array in outputs.items()}
        if () in sizes.values() or len(set(sizes.values())) != 1:
            shapes = {name: list(array.shape) for name, array in outputs.items()}
            raise bad_request(
                f"The outputs differ in their first dimension: {shapes}. "
                "Use column form, with 'inputs'."
            )
        rows = next(iter(values.values()))
        if len(values) > 1:
            rows = [dict(zip(values, row)) for row in zip(*values.values())]
        answer = {"predictions": rows}
    return json.dumps(answer, ensure_ascii=False).encode()


def _plain(name, array):
    """Converts a NumPy array to nested lists."""
    if array.dtype == object:
        plain = np.empty(array.size, object)
        if name.endswith("_bytes"):
            plain[:] = [{"b64": base64.b64encode(item).decode()} for item in array.flat]
        else:
            plain[:] = [item.decode(errors="replace") for item in array.flat]
        return plain.reshape(array.shape).tolist()
    if array.dtype.kind in "biu" or array.dtype == np.float64:
        return array.tolist()
    if array.dtype.kind in "fV":
        # Conversion through text gives 0.2 instead of 0.20000000298023224.
        return array.astype(np.float32).astype("U").astype(np.float64).tolist()
    raise RequestError(501, f"Output {name!r} is {array.dtype}, which JSON cannot represent.")
