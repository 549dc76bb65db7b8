"""Checks of the options of searches, and the random numbers of sampling."""

import math
import operator

import numpy as np

from zoo.errors import TaskError


def checked(name, value, number, low=-math.inf, high=math.inf):
    """An option as `number`, int or float; raises `TaskError` if it is not one, or out of range.

    A bool is rejected, and so are a float for int, NaN and infinity.
    """
    try:
        converted = operator.index(value) if number is int else float(+value)
    except (TypeError, OverflowError):
        converted = math.nan
    is_valid = low <= converted <= high and abs(converted) < math.inf
    if isinstance(value, bool) or not is_valid:
        expected = "an integer" if number is int else "a finite number"
        least = "" if low == -math.inf else f" of at least {low}"
        limits = least if high == math.inf else f" from {low} to {high}"
        raise TaskError(f"{name} must be {expected}{limits}. Received: {name}={value!r}.")
    return converted


def checked_search(n, beam_size, length_penalty, least_beam_size=1):
    """(n, beam_size, length_penalty) of beam search, the last one as a scalar for a graph.

    By default the beam size is `n`, but at least `least_beam_size`.
    """
    n = checked("n", n, int, 1)
    beam_size = max(n, least_beam_size) if beam_size is None else beam_size
    alpha = np.float32(checked("length_penalty", length_penalty, float))
    return n, checked("beam_size", beam_size, int, n), alpha


def checked_sampling(n, seed, temperature, top_k, top_p):
    """(n, seed, top_k, temperature, top_p) of sampling, the last two as scalars for a graph."""
    n, seed = checked("n", n, int, 1), checked("seed", seed, int, 0)
    temperature = checked("temperature", temperature, float, 1e-3)
    top_k = None if top_k is None else checked("top_k", top_k, int, 1)
    top_p = 1.0 if top_p is None else checked("top_p", top_p, float, 1e-6, 1.0)
    return n, seed, top_k, np.float32(temperature), np.float32(top_p)


def uniforms(seed, indices, num_rows, num_draws, length):
    """Random numbers [num_rows, num_draws, length] of texts, which depend on their index alone.

    Args:
        seed: int.
        indices: of the texts in the first rows; those of other rows are 0.
    """
    numbers = np.zeros((num_rows, num_draws, length), np.float32)
    for row, index in zip(numbers, indices):
        row[:] = np.random.default_rng([seed, index]).random((length, num_draws), np.float32).T
    return numbers
