"""Converts the JSON of predict requests to arrays, and outputs to the JSON of answers.

Source: TensorFlow Serving, "RESTful API" (tensorflow.org/tfx/serving/api_rest), sections "Predict
API", "JSON mapping", "Encoding binary values" and "JSON conformance". As there, non-finite numbers
are written as NaN, Infinity and -Infinity, which are not strict JSON but accepted by Python and
other parsers.
"""

import base64
import io
import json
import reprlib
import string

import numpy as np
import tensorflow as tf

from zoo.errors import describe_string
from zoo.server.errors import RequestError

_SEND = 'Send JSON such as {"instances": [...]}, and files as {"b64": "..."}'
_PART = 10_000  # numbers that are converted at a time
_URL_SAFE = bytes.maketrans(b"-_", b"+/")  # from URL-safe to standard Base64


def parse(body, max_values):
    """Parses the body of a request to a dict.

    Raises:
        RequestError: 400 if it is not a JSON object; 413 if it has more values than `max_values`.
    """
    # Counted before parsing, which blocks all other threads: each value but the first follows one
    # of these characters, and so does each list in a list.
    if sum(map(body.count, (b",", b"[", b"{"))) > max_values:
        raise RequestError(f"The request has more than {max_values:,} values.", 413)
    try:
        request = json.loads(body)
    except (RecursionError, ValueError) as error:
        begins = f"The body begins with {bytes(body[:16])!r}"
        raise RequestError(f"JSON Parse error: {error}. {begins}. {_SEND}.") from None
    if not isinstance(request, dict):
        received = reprlib.repr(request)
        raise RequestError(f"The request must be a JSON object. Received: {received}. {_SEND}.")
    return request


def decode(request, specs):
    """Decodes a request with "instances" (row form) or "inputs" (column form).

    Args:
        request: dict.
        specs: {name: `tf.TensorSpec`} of the signature.

    Returns:
        {name: NumPy array}; strings are bytes in object arrays.

    Raises:
        RequestError: 400 if the inputs do not match the signature; 501 if the signature has a dtype
            that JSON cannot represent.
    """
    try:
        if ("instances" in request) == ("inputs" in request):
            keys = reprlib.repr([*request])
            reason = f"The request must have either 'instances' or 'inputs'. Received: {keys}."
            raise RequestError(reason)
        return {name: _array(name, x, specs[name]) for name, x in _named(request, specs).items()}
    except RequestError as error:
        wanted = ", ".join(f"{n}: {spec.dtype.name} {spec.shape}" for n, spec in specs.items())
        detail = f"{error.detail} The inputs of the signature are {wanted}. {_SEND}."
        raise RequestError(detail, error.status_code) from None


def _named(request, specs):
    """The JSON value of each input: {name: value}."""
    has_rows = "instances" in request
    given = request["instances"] if has_rows else request["inputs"]
    if has_rows and not (isinstance(given, list) and given):
        received = _shown(given)
        raise RequestError(f"'instances' must be a non-empty list. Received: {received}.")
    rows = given if has_rows else [given]
    if len(specs) == 1 and not any(map(_is_object, rows)):
        return {next(iter(specs)): given}
    for index, row in enumerate(rows):
        if not _is_object(row) or row.keys() != specs.keys():
            where = f"Element {index} of 'instances'" if has_rows else "'inputs'"
            received = _shown(list(row) if _is_object(row) else row)
            raise RequestError(f"{where} must have the keys {sorted(specs)}. Received: {received}.")
    if not has_rows:
        return given
    return {name: [row[name] for row in rows] for name in specs}


def _is_object(value):
    return isinstance(value, dict) and not _is_base64(value)


def _is_base64(value):
    return isinstance(value, dict) and value.keys() == {"b64"}


def _array(name, value, spec):
    """Converts a JSON value to a NumPy array of the spec's dtype and shape."""
    array = np.array(value, object)  # contains lists if they differ in length or depth
    values = array.reshape(-1).tolist()
    if list in set(map(type, values)):
        raise RequestError(f"Input {name!r} is ragged: its lists differ in length or depth.")
    if not spec.shape.is_compatible_with(array.shape):
        wanted = [-1 if size is None else size for size in spec.shape]
        received = f"{[*array.shape]}"
        if values:
            received += f" of values such as {_shown(values[0])}"
        raise RequestError(f"Input {name!r} must have the shape {wanted}, not {received}.")
    if spec.dtype == tf.string:
        array.reshape(-1)[:] = [_as_bytes(name, item) for item in values]
        return array
    return _numbers(name, values, spec.dtype).reshape(array.shape)


def _numbers(name, values, kind):
    """Converts numbers or booleans to an array of a `tf.DType`."""
    if kind.is_bool:
        types = {bool}
    elif kind.is_integer:
        types = {int}
    elif kind.is_floating:
        types = {int, float}
    else:
        raise RequestError(f"Input {name!r} is {kind.name}, which JSON cannot represent.", 501)
    if not set(map(type, values)) <= types:
        odd = next(value for value in values if type(value) not in types)
        raise RequestError(f"Input {name!r} must be {kind.name}. Received: {_shown(odd)}.")
    dtype = kind.as_numpy_dtype
    try:
        with np.errstate(over="raise"):
            return np.array(values, np.float64 if kind.is_floating else dtype).astype(dtype)
    except ArithmeticError:
        raise RequestError(f"Input {name!r} is outside the range of {kind.name}.") from None


def _as_bytes(name, value):
    """Converts a JSON string or {"b64": ...} to bytes."""
    is_plain = not _is_base64(value)
    text = value if is_plain else value["b64"]
    if not isinstance(text, str):
        received = reprlib.repr(value)
        raise RequestError(f'Input {name!r} must be a string or {{"b64": ...}}, not {received}.')
    if is_plain and name.endswith("_bytes"):
        start = text.rpartition(",")[2][:8] if "Base64" in describe_string(text) else ""
        raise RequestError(
            f"Input {name!r} must be the bytes of a file, not {_shown(text)}. Send them as an "
            f'object: {{"b64": "{start}..."}}.'
        )
    try:
        if is_plain:
            return text.encode()
        digits = text.encode().translate(_URL_SAFE, string.whitespace.encode())
        if not digits.endswith(b"="):
            digits += b"=" * (-len(digits) % 4)  # clients may omit the padding
        return base64.b64decode(digits, validate=True)
    except ValueError as error:  # a lone surrogate, or not Base64
        reason = f"Input {name!r} cannot be read: {error}. Received: {_shown(text)}."
        raise RequestError(reason) from None


def _shown(value):
    """A value for a message, shortened, with an explanation if it is a URL or Base64."""
    shown = reprlib.repr(value)
    what = describe_string(value) if isinstance(value, str) else ""
    return f"{shown}, which {what}" if what else shown


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
    text = io.StringIO()
    json.dump(answer, text, ensure_ascii=False)  # `json.dumps` would block all other threads
    return text.getvalue().encode()


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
