"""Checks of the options of searches, and the random numbers of sampling."""

import math
import operator

import numpy as np

from zoo.errors import TextError


def checked(name, value, number, low=-math.inf, high=math.inf):
    """An option as `number`, int or float; raises `TextError` if it is not one, or out of range.

    A bool is rejected, and so are a float for int, NaN and infinity.
    """
    try:
        converted = operator.index(value) if number is int else float(+value)
    except (TypeError, OverflowError):
        converted = math.nan
    is_finite = low <= converted <= high and abs(converted) < math.inf
    if isinstance(value, bool) or not is_finite:
        expected = "an integer" if number is int else "a finite number"
        least = "" if low == -math.inf else f" of at least {low}"
        limits = least if high == math.inf else f" from {low} to {high}"
        raise TextError(f"{name} must be {expected}{limits}. Received: {name}={value!r}.")
    return converted


def checked_sampling(temperature, top_k, top_p):
    """(top_k, temperature, top_p) of sampling, the last two as scalars for a graph."""
    temperature = checked("temperature", temperature, float, 1e-3)
    top_k = None if top_k is None else checked("top_k", top_k, int, 1)
    top_p = 1.0 if top_p is None else checked("top_p", top_p, float, 1e-6, 1.0)
    return top_k, np.float32(temperature), np.float32(top_p)


def uniforms(seed, indices, num_rows, num_draws, length):
    """Random numbers [num_rows, num_draws, length] of texts, which depend on their index alone.

    Args:
        seed: int.
        indices: of the texts in the first rows; those of other rows are 0.
    """
    found = np.zeros((num_rows, num_draws, length), np.float32)
    for row, index in zip(found, indices):
        row[:] = np.random.default_rng([seed, index]).random((length, num_draws), np.float32).T
    return found
