"""A model's first answer, which takes longer than the others."""

import asyncio

import numpy as np
import tensorflow as tf

from zoo.server.errors import RequestError, ServerError
from zoo.server.models import DEFAULT_SIGNATURE

_TEXT = b"hello"


async def warm_up(batcher):
    """Has a model answer once, if it is of a kind whose inputs are known.

    A translator compiles its search for the shape of one short text here, which takes seconds; for
    further shapes it does so when they first come.

    Args:
        batcher: `zoo.server.batching.Batcher`.

    Raises:
        ServerError: if the model fails.
    """
    model = batcher.model
    make = {"translator": _texts, "classifier": _images}.get(model.kind)
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
