"""Converts the JSON of a predict request to arrays.

Source: TensorFlow Serving, "RESTful API" (tensorflow.org/tfx/serving/api_rest), sections "Predict
API", "JSON mapping" and "Encoding binary values".
"""

import base64
import json
import string

import numpy as np
import tensorflow as tf

from zoo.server.errors import RequestError, bad_request, shown

_MAX_AXES = 32  # of a tensor; NumPy supports 64


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


def is_row_form(request):
    """Whether a predict request has "instances" (row form) instead of "inputs" (column form).

    Raises:
        RequestError: 400 if it has neither or both.
    """
    forms = [key for key in ("instances", "inputs") if key in request]
    if not forms:
        raise bad_request("Missing 'inputs' or 'instances' key.")
    if len(forms) == 2:
        raise bad_request("Provide either 'inputs' or 'instances'. Received both.")
    return forms == ["instances"]


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
    read = _rows if is_row_form(request) else _columns
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
    values, shape = _flat(name, value)
    if not spec.shape.is_compatible_with(shape):
        raise bad_request(
            f"Input {name!r} must have the shape {_shape(spec.shape)}. "
            f"Received shape: {list(shape)}."
        )
    if spec.dtype == tf.string:
        array = np.empty(len(values), object)
        array[:] = [as_bytes(name, item) for item in values]
    else:
        array = _numbers(name, values, spec.dtype)
    return array.reshape(shape)


def _flat(name, value):
    """Flattens nested lists; returns the values and the shape."""
    array = np.array(value, object)  # of lists, if they differ in length or depth
    if array.ndim > _MAX_AXES:
        raise bad_request(f"Input {name!r} has more than {_MAX_AXES} axes.")
    values = array.reshape(-1).tolist()
    if list in set(map(type, values)):
        raise bad_request(
            f"Input {name!r} is ragged: lists at the same level differ in length or depth."
        )
    return values, array.shape


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
        exact = np.array(values, np.float64 if kind.is_floating else dtype)
        with np.errstate(over="ignore"):
            array = exact.astype(dtype)
        fits = np.array_equal(np.isinf(array), np.isinf(exact))
    except OverflowError:
        fits = False
    if not fits:
        raise bad_request(f"Input {name!r} has numbers outside the range of {kind.name}.")
    return array


def as_bytes(name, value):
    """Converts a JSON string or {"b64": ...} to bytes."""
    if isinstance(value, str):
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


def _shape(shape):
    return "of any rank" if shape.rank is None else [-1 if n is None else n for n in shape]
