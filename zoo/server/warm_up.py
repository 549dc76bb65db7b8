"""Warms up models: the first call of a model is slower than later ones."""

import asyncio

import numpy as np
import tensorflow as tf

from zoo.server.errors import RequestError, ServerError
from zoo.server.models import DEFAULT_SIGNATURE

_TEXT = b"hello"


async def warm_up(batcher):
    """Calls a model of a known kind once; others are skipped.

    A translator or generator compiles its search for one short text, which takes seconds. Other
    shapes are compiled when they first occur.

    Args:
        batcher: `zoo.server.batching.Batcher`.

    Raises:
        ServerError: if the model fails.
    """
    model = batcher.model
    if model.kind == "model":
        return
    make = _images if model.kind == "classifier" else _texts
    inputs = await asyncio.to_thread(make)
    try:
        await batcher.run(DEFAULT_SIGNATURE, inputs)
    except RequestError as error:
        raise ServerError(
            f"The model in {model.folder} cannot be served: {error.message}"
        ) from None


def _texts():
    return {"texts": np.array([_TEXT], object)}


def _images():
    image = tf.io.encode_png(np.full((32, 32, 3), 128, np.uint8)).numpy()
    return {"image_bytes": np.array([image], object)}
