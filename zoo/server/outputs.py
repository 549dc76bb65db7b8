"""Converts the outputs of a model to the JSON of a response.

Source: TensorFlow Serving, "RESTful API" (tensorflow.org/tfx/serving/api_rest), sections "Predict
API" and "JSON conformance". As there, non-finite numbers are written as NaN, Infinity and
-Infinity, which are not strict JSON but accepted by Python and other parsers.
"""

import base64
import json

import numpy as np

from zoo.server.errors import RequestError

_PART = 10_000  # numbers that are converted at a time


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
        sizes = {array.shape[:1] for array in outputs.values()}
        if () in sizes or len(sizes) != 1:
            shapes = {name: list(array.shape) for name, array in outputs.items()}
            raise RequestError(f"There are no rows in {shapes}. Use column form, 'inputs'.")
        rows = next(iter(values.values()))
        if len(values) > 1:
            rows = [dict(zip(values, row)) for row in zip(*values.values())]
        answer = {"predictions": rows}
    return _dumps(answer).encode()


def _dumps(value):
    """`json.dumps` in rows, as a single call blocks all other threads."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_dumps(key)}: {_dumps(item)}' for key, item in value.items())}}}"
    if isinstance(value, list) and value and isinstance(value[0], (dict, list)):
        return f"[{', '.join(map(_dumps, value))}]"
    return json.dumps(value, ensure_ascii=False)


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
        # Conversion through text gives 0.2 instead of 0.20000000298023224. It is slow and blocks
        # all other threads, so it is done in parts.
        parts = np.array_split(array.astype(np.float32).reshape(-1), array.size // _PART + 1)
        exact = np.concatenate([part.astype("U").astype(np.float64) for part in parts])
        return exact.reshape(array.shape).tolist()
    raise RequestError(f"Output {name!r} is {array.dtype}, which JSON cannot represent.", 501)
