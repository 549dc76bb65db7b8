"""Converts the JSON of a predict request to arrays.

Source: TensorFlow Serving, "RESTful API" (tensorflow.org/tfx/serving/api_rest), sections "Predict
API", "JSON mapping" and "Encoding binary values".
"""

import base64
import json
import re
import string

import numpy as np
import tensorflow as tf

from zoo.server.errors import RequestError, bad_request, shown

_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4}){4,}(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")


def parse(body, max_values):
    """Parses the body of a request to a dict.

    Raises:
        RequestError: 400 if it is not a JSON object; 413 if it has more values than `max_values`.
    """
    # Before parsing, which holds up all other threads. Each value but the first follows one of
    # these, and so does each list in a list.
    if sum(map(body.count, (b",", b"[", b"{"))) > max_values:
        raise RequestError(413, f"The request has more than {max_values:,} values.")
    try:
        request = json.loads(body)
    except RecursionError:
        raise bad_request("JSON Parse error: lists or objects are nested too deeply.") from None
    except ValueError as error:  # JSONDecodeError, UnicodeDecodeError, a number of 5,000 digits
        raise bad_request(f"JSON Parse error: {error}") from None
    if not isinstance(request, dict):
        raise bad_request(f"The request must be a JSON object. Received: {shown(request)}.")
    return request


def decode(request, specs):
    """Decodes the inputs of a predict request.

    Args:
        request: dict with "instances" (row form) or "inputs" (column form).
        specs: {name: `tf.TensorSpec`} of the signature.

    Returns:
        {name: NumPy array}; strings are bytes in object arrays.

    Raises:
        RequestError: 400 if the inputs do not match the signature; 501 if the signature has a dtype
            that JSON cannot represent.
    """
    if ("instances" in request) == ("inputs" in request):
        raise bad_request("The request must have either 'instances' or 'inputs'.")
    read = _rows if "instances" in request else _columns
    return {name: _array(name, value, specs[name]) for name, value in read(request, specs).items()}


def _rows(request, specs):
    """Row form: {name: list of values}."""
    instances = request["instances"]
    if not isinstance(instances, list) or not instances:
        raise bad_request(
            f"'instances' must be a list of at least one element. Received: {shown(instances)}."
        )
    if len(specs) == 1 and not any(map(_is_object, instances)):
        return {next(iter(specs)): instances}
    for index, instance in enumerate(instances):
        _check_names(instance, specs, f"Element {index} of 'instances'")
    return {name: [instance[name] for instance in instances] for name in specs}


def _columns(request, specs):
    """Column form: {name: value}."""
    inputs = request["inputs"]
    if len(specs) == 1 and not _is_object(inputs):
        return {next(iter(specs)): inputs}
    _check_names(inputs, specs, "'inputs'")
    return inputs


def _is_object(value):
    return isinstance(value, dict) and not _is_base64(value)


def _is_base64(value):
    return isinstance(value, dict) and value.keys() == {"b64"} and isinstance(value["b64"], str)


def _check_names(value, specs, where):
    if not _is_object(value) or value.keys() != specs.keys():
        received = shown(list(value) if _is_object(value) else value)
        raise bad_request(
            f"{where} must be an object with the keys {sorted(specs)}. Received: {received}."
        )


def _array(name, value, spec):
    """Converts a JSON value to a NumPy array of the spec's dtype and shape."""
    array = np.array(value, object)  # of lists, if they differ in length or depth
    values = array.reshape(-1).tolist()
    if list in set(map(type, values)):
        raise bad_request(
            f"Input {name!r} is ragged: lists at the same level differ in length or depth."
        )
    if not spec.shape.is_compatible_with(array.shape):
        wanted = [-1 if size is None else size for size in spec.shape]
        raise bad_request(
            f"Input {name!r} must have the shape {wanted}. Received shape: {list(array.shape)}."
        )
    if spec.dtype == tf.string:
        array.reshape(-1)[:] = [_as_bytes(name, item) for item in values]
        return array
    return _numbers(name, values, spec.dtype).reshape(array.shape)


def _numbers(name, values, kind):
    """Converts numbers or booleans to an array of a `tf.DType`."""
    if not (kind.is_bool or kind.is_integer or kind.is_floating):
        raise RequestError(501, f"Input {name!r} is {kind.name}, which JSON cannot represent.")
    types = {bool} if kind.is_bool else {int} if kind.is_integer else {int, float}
    if not set(map(type, values)) <= types:
        odd = next(value for value in values if type(value) not in types)
        raise bad_request(f"Input {name!r} must be {kind.name}. Received: {shown(odd)}.")
    dtype = kind.as_numpy_dtype
    try:
        with np.errstate(over="raise"):
            return np.array(values, np.float64 if kind.is_floating else dtype).astype(dtype)
    except ArithmeticError:
        raise bad_request(f"Input {name!r} has numbers outside the range of {kind.name}.") from None


def _as_bytes(name, value):
    """Converts a JSON string or {"b64": ...} to bytes."""
    if isinstance(value, str):
        if name.endswith("_bytes") and _BASE64.fullmatch(value):
            raise bad_request(
                f"Input {name!r} looks like Base64. Send it as an object: "
                f'{{"b64": "{value[:8]}..."}}.'
            )
        try:
            return value.encode()
        except UnicodeEncodeError:
            raise bad_request(f"Input {name!r} has a lone surrogate: {shown(value)}.") from None
    if not _is_base64(value):
        raise bad_request(
            f'Input {name!r} must be a string or {{"b64": ...}}. Received: {shown(value)}.'
        )
    try:
        digits = value["b64"].encode().translate(None, string.whitespace.encode())
        if not digits.endswith(b"="):
            digits += b"=" * (-len(digits) % 4)  # clients may omit the padding
        return base64.b64decode(digits, validate=True)
    except ValueError as error:  # binascii.Error, UnicodeEncodeError
        raise bad_request(f"Unable to base64 decode input {name!r}: {error}.") from None
