"""Classify and regress requests, for signatures that take serialized `tf.train.Example`s.

Source: TensorFlow Serving, "RESTful API" (tensorflow.org/tfx/serving/api_rest), section "Classify
and Regress API".
"""

import json

import numpy as np
import tensorflow as tf

from zoo.server.errors import RequestError, bad_request, shown
from zoo.server.inputs import as_bytes

METHODS = ("classify", "regress")


def check_signature(model, name, method):
    """Checks that a signature is meant for a method.

    Raises:
        RequestError: 400 if it is not.
    """
    model.signature(name)
    found, expected = model.signature_def[name]["method_name"], f"tensorflow/serving/{method}"
    if found != expected:
        raise bad_request(
            f"The method of signature {shown(name)} is {found}. :{method} needs {expected}."
        )


def decode(request, max_bytes):
    """Decodes "examples" and their common "context": {"inputs": bytes [B]}.

    Raises:
        RequestError: 400 if they are not lists of features; 413 if they are larger than
            `max_bytes`, as each gets the context.
    """
    examples, context = request.get("examples"), request.get("context", {})
    if not isinstance(examples, list) or not examples:
        raise bad_request("'examples' must be a list of at least one object.")
    serialized, size = np.empty(len(examples), object), 0
    for index, example in enumerate(examples):
        for found in (context, example):
            if not isinstance(found, dict):
                raise bad_request(f"Examples must be objects. Received: {shown(found)}.")
        features = {name: _feature(name, value) for name, value in {**context, **example}.items()}
        try:
            proto = tf.train.Example(features=tf.train.Features(feature=features))
        except UnicodeEncodeError:
            names = shown(list(features))
            raise bad_request(f"The name of a feature has a lone surrogate: {names}.") from None
        serialized[index] = proto.SerializeToString()
        size += len(serialized[index])
        if size > max_bytes:
            raise RequestError(413, f"The examples are larger than {max_bytes} bytes.")
    return {"inputs": serialized}


def encode(outputs, method):
    """Encodes the outputs of a signature: pairs of label and score, or numbers, of each example."""
    if method == "regress":
        results = [float(value) for value in outputs["outputs"].reshape(-1)]
    else:
        shape = next(iter(outputs.values())).shape
        classes = outputs.get("classes", np.full(shape, b"", object))
        scores = outputs.get("scores", np.zeros(shape))
        results = [
            [[label.decode(errors="replace"), float(score)] for label, score in zip(*row)]
            for row in zip(classes, scores)
        ]
    return json.dumps({"results": results}, ensure_ascii=False).encode()


def _feature(name, value):
    values = value if isinstance(value, list) else [value]
    kinds = set(map(type, values))
    try:
        if kinds <= {int}:
            return tf.train.Feature(int64_list=tf.train.Int64List(value=values))
        if kinds <= {int, float}:
            return tf.train.Feature(float_list=tf.train.FloatList(value=values))
        content = [as_bytes(name, item) for item in values]
    except (OverflowError, ValueError):
        raise bad_request(f"Feature {shown(name)} has numbers that are too large.") from None
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=content))
