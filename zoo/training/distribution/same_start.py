"""Checks that all workers start training from the same state with the same data."""

import hashlib

import numpy as np
import tensorflow as tf

from zoo.data.worker_batches import parts_of
from zoo.errors import UserError
from zoo.training.distribution.workers import num_workers, sum_over_workers, worker_index

_BITS = 40  # of a digest: the sum over up to 8,192 replicas is exact in float64


def check_same_start(strategy, step, weights, batch, steps_per_epoch=None):
    """Checks that all workers start training with the same state and data.

    Shapes, labels, weights and integer inputs of the first batch must be equal. Pixels and other
    inputs of floats are not compared, as processors may round them differently.

    Args:
        strategy: `tf.distribute.Strategy`.
        step: number of steps done.
        weights: list of arrays or variables, the trainable weights.
        batch: first batch (inputs, labels, weights), or a tuple of batches.
        steps_per_epoch: as in `fit`.

    Raises:
        UserError: on all workers, if something differs between two of them.
    """
    workers = num_workers(strategy)
    if workers == 1:
        return
    own = digests(step, weights, batch, steps_per_epoch)
    total = sum_over_workers(strategy, tf.constant(list(own.values()), tf.float64))
    differing = [what for what, sum_ in zip(own, total) if sum_ != workers * own[what]]
    if differing:
        raise UserError(
            f"The workers differ in {', '.join(differing)}; this is worker "
            f"{worker_index(strategy)}. Start all workers with the same command, the same --seed, "
            "the same files and the same versions of all packages."
        )


def digests(step, weights, batch, steps_per_epoch=None):
    """Numbers that differ if workers start differently: {what: number below 2 to the power 40}.

    The arguments are those of `check_same_start`.
    """
    inputs, labels, sample_weights = (
        [np.asarray(array) for array in tf.nest.flatten(part)] for part in zip(*parts_of(batch))
    )
    shapes = [array.shape for array in (*inputs, *labels, *sample_weights)]
    tokens = [a for a in inputs if a.dtype.kind in "iu" and a.dtype != np.uint8]  # uint8: pixels
    return {
        "the number of steps done": int(step),
        "the number of steps of an epoch": steps_per_epoch or 0,
        "the model's weights": _digest([np.asarray(weight) for weight in weights]),
        "the shapes of the first batch": _digest([np.array(shape) for shape in shapes]),
        "the inputs of the first batch": _digest(tokens),
        "the labels of the first batch": _digest(labels),
        "the sample weights of the first batch": _digest(sample_weights),
    }


def _digest(arrays):
    found = hashlib.sha256()
    for array in arrays:
        found.update(f"{array.dtype} {array.shape} ".encode())
        found.update(array.tobytes())
    return int.from_bytes(found.digest()[: _BITS // 8], "big")
