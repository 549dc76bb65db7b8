"""Converts the JSON of a predict request to arrays.

Source: TensorFlow Serving, "RESTful API" (tensorflow.org/tfx/serving/api_rest), sections "Predict
API", "JSON mapping" and "Encoding binary values".
"""

import base64
import json
import reprlib
import string

import numpy as np
import tensorflow as tf

from zoo.errors import describe_string
from zoo.server.errors import RequestError

_SEND = 'Send JSON such as {"instances": [...]}'
_BODIES = {  # by the first bytes
    b"\x1f\x8b": "The body is compressed by gzip, which is not supported",
    b"\xff\xd8\xff": "The body is a JPEG file: send it as Base64",
    b"\x89PNG": "The body is a PNG file: send it as Base64",
    b"--": "The body is a form: send JSON",
}
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
        reason = next((reason for magic, reason in _BODIES.items() if body.startswith(magic)), "")
        reason = reason or f"The body begins with {bytes(body[:16])!r}"
        raise RequestError(f"JSON Parse error: {error}. {reason}. {_SEND}.") from None
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
        detail = f"{error.detail} Send, for example, {_example(specs)}."
        raise RequestError(detail, error.status_code) from None


def _example(specs):
    """An example of a request for a signature, for messages."""
    has_rows = all(spec.shape.rank != 0 for spec in specs.values())
    row = {}
    for name, spec in specs.items():
        is_bytes, kind = name.endswith("_bytes"), spec.dtype
        text = '{"b64": "..."}' if is_bytes else '"text"'
        number = "true" if kind.is_bool else "1" if kind.is_integer else "0.5"
        depth = max(0, (spec.shape.rank or 0) - has_rows)
        row[name] = "[" * depth + (text if kind == tf.string else number) + ", ...]" * depth
    named = ", ".join(f'"{name}": {value}' for name, value in row.items())
    row = f"{{{named}}}" if len(row) != 1 else row.popitem()[1]
    return f'{{"instances": [{row}]}}' if has_rows else f'{{"inputs": {row}}}'


def _named(request, specs):
    """The JSON value of each input: {name: value}."""
    given, has_rows = request.get("inputs"), "instances" in request
    if has_rows:
        given = request["instances"]
        if not isinstance(given, list) or not given:
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
    return {name: [row[name] for row in rows] for name in specs} if has_rows else given


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
        such = f" of values such as {_shown(values[0])}" if values else ""
        shape = f"{[*array.shape]}{such}"
        raise RequestError(f"Input {name!r} must have the shape {wanted}, not {shape}.")
    if spec.dtype == tf.string:
        array.reshape(-1)[:] = [_as_bytes(name, item) for item in values]
        return array
    return _numbers(name, values, spec.dtype).reshape(array.shape)


def _numbers(name, values, kind):
    """Converts numbers or booleans to an array of a `tf.DType`."""
    if not (kind.is_bool or kind.is_integer or kind.is_floating):
        raise RequestError(f"Input {name!r} is {kind.name}, which JSON cannot represent.", 501)
    types = {bool} if kind.is_bool else {int} if kind.is_integer else {int, float}
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
    text = value if isinstance(value, str) else value["b64"] if _is_base64(value) else None
    if not isinstance(text, str):
        received = reprlib.repr(value)
        raise RequestError(f'Input {name!r} must be a string or {{"b64": ...}}, not {received}.')
    if text is value and name.endswith("_bytes"):
        start = text.rpartition(",")[2][:8] if "Base64" in describe_string(text) else ""
        raise RequestError(
            f"Input {name!r} must be the bytes of a file, not {_shown(text)}. Send them as an "
            f'object: {{"b64": "{start}..."}}.'
        )
    try:
        if text is value:
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
    what = describe_string(value) if isinstance(value, str) else ""
    return f"{reprlib.repr(value)}, which {what}" if what else reprlib.repr(value)
