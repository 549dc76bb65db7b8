"""Warms up models: the first call of a model is slower than later ones."""

import asyncio

import numpy as np
import tensorflow as tf

from zoo.server.errors import RequestError, ServerError
from zoo.server.models import DEFAULT_SIGNATURE

_TEXT = b"hello"


async def warm_up(batcher):
    """Calls a classifier or translator once; other kinds of models are skipped.

    A translator compiles its search for one short text, which takes seconds. Other shapes are
    compiled when they first occur.

    Args:
        batcher: `zoo.server.batching.Batcher`.

    Raises:
        ServerError: if the model fails.
    """
    model = batcher.model
    make = {"translator": _texts, "text_classifier": _texts, "classifier": _images}.get(model.kind)
    if make is None:
        return
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
