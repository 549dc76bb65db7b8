"""The requests that a server makes before it is ready."""

import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from zoo.deploy.warm_up_requests import FILE, write_warm_up_requests


def test_warm_up_requests_are_those_of_tensorflow_serving(tmp_path):
    """Its own messages read them; inputs of any length, as lengths are written in seven bits."""
    images = {"image_bytes": np.array([b"x" * 200, b"y" * 20_000], object)}
    numbers = {"a": np.arange(300, dtype="float32"), "b": np.array([7], "int64")}
    write_warm_up_requests(tmp_path, [images, numbers])
    records = list(tf.data.TFRecordDataset(str(tmp_path / FILE)).as_numpy_iterator())
    assert len(records) == 2
    for record, expected in zip(records, (images, numbers)):
        log = prediction_log_pb2.PredictionLog.FromString(record)
        assert log.WhichOneof("log_type") == "predict_log"
        request = log.predict_log.request
        assert request.model_spec.signature_name == "serving_default"
        assert request.inputs.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_array_equal(tf.make_ndarray(request.inputs[name]), value)
