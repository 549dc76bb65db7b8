"""Converts the JSON of a predict request to arrays.

Source: TensorFlow Serving, "RESTful API" (tensorflow.org/tfx/serving/api_rest), sections "Predict
API", "JSON mapping" and "Encoding binary values".
"""

import base64
import itertools
import json
import string

import numpy as np
import tensorflow as tf

from zoo.server.errors import RequestError, shown

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
        raise RequestError(
            400, "JSON Parse error: lists or objects are nested too deeply."
        ) from None
    except ValueError as error:  # JSONDecodeError, UnicodeDecodeError, a number of 5,000 digits
        raise RequestError(400, f"JSON Parse error: {error}") from None
    if not isinstance(request, dict):
        raise RequestError(400, f"The request must be a JSON object. Received: {shown(request)}.")
    return request


def is_row_form(request):
    """Whether a predict request has "instances" (row form) instead of "inputs" (column form).

    Raises:
        RequestError: 400 if it has neither or both.
    """
    forms = [key for key in ("instances", "inputs") if key in request]
    if not forms:
        raise RequestError(400, "Missing 'inputs' or 'instances' key.")
    if len(forms) == 2:
        raise RequestError(400, "Provide either 'inputs' or 'instances'. Received both.")
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
        raise RequestError(
            400,
            f"'instances' must be a list of at least one element. Received: {shown(instances)}.",
        )
    are_objects = [_is_object(instance) for instance in instances]
    if not any(are_objects) and len(specs) == 1:
        return {next(iter(specs)): instances}
    if not all(are_objects):
        index = are_objects.index(False)
        raise RequestError(
            400,
            f"Each element of 'instances' must be an object with the keys {sorted(specs)}. "
            f"Received at {index}: {shown(instances[index])}.",
        )
    for index, instance in enumerate(instances):
        _check_names(instance, specs, f"Element {index} of 'instances'")
    return {name: [instance[name] for instance in instances] for name in specs}


def _columns(request, specs):
    """Column form: {name: value}."""
    inputs = request["inputs"]
    if _is_object(inputs):
        _check_names(inputs, specs, "'inputs'")
        return inputs
    if len(specs) != 1:
        raise RequestError(
            400,
            f"'inputs' must be an object with the keys {sorted(specs)}. Received: {shown(inputs)}.",
        )
    return {next(iter(specs)): inputs}


def _is_object(value):
    return isinstance(value, dict) and not _is_base64(value)


def _is_base64(value):
    return isinstance(value, dict) and value.keys() == {"b64"} and isinstance(value["b64"], str)


def _check_names(found, specs, where):
    if found.keys() != specs.keys():
        raise RequestError(
            400, f"{where} must have the keys {sorted(specs)}. Received: {shown(list(found))}."
        )


def _array(name, value, spec):
    """Converts a JSON value to a NumPy array of the spec's dtype and shape."""
    values, shape = _flat(name, value)
    if not spec.shape.is_compatible_with(shape):
        raise RequestError(
            400,
            f"Input {name!r} must have the shape {_shape(spec.shape)}. "
            f"Received shape: {list(shape)}.",
        )
    kind = spec.dtype
    if kind == tf.string:
        array = np.empty(len(values), object)
        array[:] = [as_bytes(name, item) for item in values]
    elif kind == tf.bool:
        array = np.array(_checked(name, values, {bool}, kind), bool)
    elif kind.is_integer:
        array = _integers(name, _checked(name, values, {int}, kind), kind)
    elif kind.is_floating:
        array = _floats(name, _checked(name, values, {int, float}, kind), kind)
    else:
        raise RequestError(501, f"Input {name!r} is {kind.name}, which JSON cannot represent.")
    return array.reshape(shape)


def _flat(name, value):
    """Flattens nested lists; returns the values and the shape."""
    values, shape = [value], []
    while values and isinstance(values[0], list):
        if set(map(type, values)) != {list} or len(set(map(len, values))) != 1:
            raise _ragged(name)
        shape.append(len(values[0]))
        if len(shape) > _MAX_AXES:
            raise RequestError(400, f"Input {name!r} has more than {_MAX_AXES} axes.")
        values = list(itertools.chain.from_iterable(values))
    if list in set(map(type, values)):
        raise _ragged(name)
    return values, tuple(shape)


def _ragged(name):
    return RequestError(
        400, f"Input {name!r} is ragged: lists at the same level differ in length or depth."
    )


def _checked(name, values, types, kind):
    if not set(map(type, values)) <= types:
        odd = next(value for value in values if type(value) not in types)
        raise RequestError(400, f"Input {name!r} must be {kind.name}. Received: {shown(odd)}.")
    return values


def _integers(name, values, kind):
    try:
        return np.array(values, kind.as_numpy_dtype)
    except OverflowError:
        raise RequestError(
            400, f"Input {name!r} has numbers outside the range of {kind.name}."
        ) from None


def _floats(name, values, kind):
    try:
        exact = np.array(values, np.float64)
    except OverflowError:
        exact = np.array([np.inf])
        array = np.array([0.0])
    else:
        with np.errstate(over="ignore"):
            array = exact.astype(kind.as_numpy_dtype)
    if (np.isinf(array.astype(np.float64)) != np.isinf(exact)).any():
        raise RequestError(400, f"Input {name!r} has numbers too large for {kind.name}.")
    return array


def as_bytes(name, value):
    """Converts a JSON string or {"b64": ...} to bytes."""
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError:
            raise RequestError(
                400, f"Input {name!r} has a lone surrogate: {shown(value)}."
            ) from None
    if not _is_base64(value):
        raise RequestError(
            400, f'Input {name!r} must be a string or {{"b64": ...}}. Received: {shown(value)}.'
        )
    try:
        digits = value["b64"].encode().translate(None, string.whitespace.encode())
        if not digits.endswith(b"="):
            digits += b"=" * (-len(digits) % 4)  # clients may omit the padding
        return base64.b64decode(digits, validate=True)
    except ValueError as error:  # binascii.Error, UnicodeEncodeError
        raise RequestError(400, f"Unable to base64 decode input {name!r}: {error}.") from None


def _shape(shape):
    return "of any rank" if shape.rank is None else [-1 if n is None else n for n in shape]
