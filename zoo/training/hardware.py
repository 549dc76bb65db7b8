"""Selects the precision that is faster on this processor."""

import timeit

import tensorflow as tf

from zoo.files import stored_config
from zoo.training import distribution


def resolve_precision(settings, folder, strategy):
    """Returns the precision of a run, the same on all workers.

    "auto" is the precision of the run in `folder` if it is resumed, or else the faster precision.
    """
    if settings.precision != "auto":
        return settings.precision
    in_bfloat16 = False
    if distribution.is_chief(strategy):
        stored = None if settings.overwrite else stored_config(folder)
        if stored is None:
            in_bfloat16 = is_faster_in_bfloat16()
        else:
            in_bfloat16 = stored.get("precision") == "mixed_bfloat16"
    in_bfloat16 = distribution.from_chief(strategy, int(in_bfloat16))
    precision = "mixed_bfloat16" if in_bfloat16 else "float32"
    if distribution.is_chief(strategy):
        print(f"Precision: {precision}")
    return precision


def is_faster_in_bfloat16():
    """Whether this is a CPU that multiplies matrices in bfloat16 in less than 0.8 of the time."""
    if tf.config.get_visible_devices("GPU"):
        return False
    # Other operations take about as long in both: a small gain would not pay for the casts.
    return seconds_of_product("float32") > 1.25 * seconds_of_product("bfloat16")


def seconds_of_product(dtype):
    """Measures the time of a matrix product on this CPU, in seconds."""
    matrix = tf.ones([1024, 1024], dtype)  # for 512, oneDNN uses one thread in bfloat16
    return min(timeit.repeat(lambda: tf.matmul(matrix, matrix), number=1, repeat=8))
