"""Requests that a server makes before it is ready, kept in the export.

Source: TensorFlow Serving, "SavedModel Warmup" (tensorflow.org/tfx/serving), and its
`PredictionLog`, whose fields are written here by number: the export needs TensorFlow alone.
"""

import pathlib

import tensorflow as tf

FILE = pathlib.Path("assets.extra", "tf_serving_warmup_requests")
_DEFAULT_SIGNATURE = "serving_default"


def write_warm_up_requests(folder, requests):
    """Writes requests for the default signature into a SavedModel.

    Args:
        folder: path of the SavedModel.
        requests: list of {name of an input: array}.
    """
    path = pathlib.Path(folder) / FILE
    path.parent.mkdir()
    with tf.io.TFRecordWriter(str(path)) as writer:
        for inputs in requests:
            writer.write(_prediction_log(inputs))


def _prediction_log(inputs):
    spec = _field(3, _DEFAULT_SIGNATURE.encode())  # ModelSpec.signature_name
    request = _field(1, spec)  # PredictRequest.model_spec
    for name, value in inputs.items():
        tensor = tf.make_tensor_proto(value).SerializeToString()
        request += _field(2, _field(1, name.encode()) + _field(2, tensor))  # .inputs
    return _field(6, _field(1, request))  # PredictionLog.predict_log.request


def _field(number, content):
    """A field of bytes in the encoding of protocol buffers: its tag, its length, its content."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(number):
    low, high = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + _varint(high) if high else bytes([low])
