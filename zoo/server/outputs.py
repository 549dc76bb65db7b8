"""From tensors to the JSON of an answer.

Source: TensorFlow Serving, "RESTful API" (tensorflow.org/tfx/serving/api_rest), sections "Predict
API" and "JSON conformance". As there, numbers that are not finite are written as the tokens NaN,
Infinity and -Infinity, which strict JSON does not have, and Python's and others' readers have.
"""

import base64
import json

import numpy as np

from zoo.server.errors import RequestError


def encode(outputs, row_form):
    """{name: NumPy array} -> bytes of the answer.

    Strings of an output whose name ends in "_bytes" are written as {"b64": ...}; in others, what
    is not UTF-8 is replaced by U+FFFD.

    Raises:
        RequestError: 400, if `row_form` is asked for and the outputs do not have rows alike.
    """
    values = {name: _plain(name, array) for name, array in outputs.items()}
    if not row_form:
        answer = {"outputs": values if len(values) != 1 else next(iter(values.values()))}
    else:
        sizes = {name: array.shape[:1] for name, array in outputs.items()}
        if () in sizes.values() or len(set(sizes.values())) != 1:
            shapes = {name: list(array.shape) for name, array in outputs.items()}
            raise RequestError(
                400,
                f"The outputs have no rows alike: their shapes are {shapes}. "
                "Ask in column form, with 'inputs'.",
            )
        rows = next(iter(values.values()))
        if len(values) > 1:
            rows = [dict(zip(values, row)) for row in zip(*values.values())]
        answer = {"predictions": rows}
    return json.dumps(answer, ensure_ascii=False).encode()


def _plain(name, array):
    """NumPy array -> nested lists of what JSON has."""
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
        # By way of text, 0.2 is written as 0.2, and not as 0.20000000298023224.
        return array.astype(np.float32).astype("U").astype(np.float64).tolist()
    raise RequestError(501, f"Output {name!r} is {array.dtype}, which JSON has no form for.")
