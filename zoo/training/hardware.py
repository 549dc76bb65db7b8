"""The precision that is faster on the processor of a run."""

import timeit
from typing import get_args

import tensorflow as tf

from zoo.training import distribution
from zoo.training.run_folder import stored_config
from zoo.training.settings import Precision

_PRECISIONS = [name for name in get_args(Precision) if name != "auto"]


def resolve_precision(settings, folder, strategy):
    """The precision of a run, the same on all workers.

    For "auto", it is that of the run in `folder`, unless that is overwritten, or else the faster.
    """
    if settings.precision != "auto":
        return settings.precision
    index = 0
    if distribution.is_chief(strategy):
        stored = None if settings.overwrite else stored_config(folder)
        precision = (stored or {}).get("precision")
        if precision not in _PRECISIONS:
            precision = "mixed_bfloat16" if is_faster_in_bfloat16() else "float32"
        index = _PRECISIONS.index(precision)
        print(f"Precision: {_PRECISIONS[index]}")
    return _PRECISIONS[distribution.from_chief(strategy, index)]


def is_faster_in_bfloat16():
    """Whether this is a CPU that multiplies matrices in bfloat16 in less than 0.8 of the time."""
    if tf.config.get_visible_devices("GPU"):
        return False
    # All else takes about as long in both: a small gain would not pay for the casts.
    return seconds_of_product("float32") > 1.25 * seconds_of_product("bfloat16")


def seconds_of_product(dtype):
    """The time of a matrix product on this CPU."""
    matrix = tf.ones([1024, 1024], dtype)  # of 512, oneDNN computes bfloat16 in one thread only
    return min(timeit.repeat(lambda: tf.matmul(matrix, matrix), number=1, repeat=8))
