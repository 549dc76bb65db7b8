"""Warms up models: the first call of a model, or of new shapes, is slower than later ones."""

import pathlib

import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from zoo.server.batching import rows_of
from zoo.server.errors import RequestError, ServerError
from zoo.server.models import DEFAULT_SIGNATURE

FILE = pathlib.Path("assets.extra", "tf_serving_warmup_requests")


async def warm_up(batcher):
    """Makes the requests that the model's export contains for this, as TensorFlow Serving does.

    Requests of other kinds than `Predict`, or with too many rows, are left out.

    Source: TensorFlow Serving, "SavedModel Warmup" (tensorflow.org/tfx/serving).

    Args:
        batcher: `zoo.server.batching.Batcher`.

    Raises:
        ServerError: if the requests cannot be read, or the model fails.
    """
    folder = batcher.model.folder
    if folder is None or not (folder / FILE).is_file():
        return
    try:
        for record in tf.data.TFRecordDataset(str(folder / FILE)).as_numpy_iterator():
            log = prediction_log_pb2.PredictionLog.FromString(record)
            if not log.HasField("predict_log"):  # of `Classify`, for example
                continue
            request = log.predict_log.request
            name = request.model_spec.signature_name or DEFAULT_SIGNATURE
            inputs = {key: tf.make_ndarray(value) for key, value in request.inputs.items()}
            if rows_of(inputs) <= batcher.limits.max_rows:
                await batcher.run(name, inputs)
    except RequestError as error:
        raise ServerError(f"The model in {folder} cannot be served: {error.detail}") from None
    except Exception as error:
        raise ServerError(
            f"The warm-up requests in {folder / FILE} cannot be used "
            f"({type(error).__name__}: {error}). Export the model again, or delete the file."
        ) from None
