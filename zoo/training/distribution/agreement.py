"""Sums over workers, common decisions, and a check that all workers start alike."""

import functools
import hashlib

import numpy as np
import tensorflow as tf

from zoo.data.worker_batches import parts_of
from zoo.errors import UserError
from zoo.training.distribution.failures import exit_if_a_worker_is_lost
from zoo.training.distribution.workers import is_chief, num_workers, worker_index

_STEPS_BETWEEN = 20  # minimum number of steps between decisions, as communication takes time
_BITS = 40  # of a digest: the sum over up to 8,192 replicas is exact in float64


def sum_over_workers(strategy, numbers):
    """Sums a tensor over all workers, all of which must call this."""
    # Every replica contributes the value of its worker.
    replicas = strategy.num_replicas_in_sync // num_workers(strategy)
    return _summing(strategy)(numbers).numpy() / replicas


@functools.cache
def _summing(strategy):
    @tf.function  # called eagerly, TensorFlow logs a performance warning
    def over_replicas(numbers):
        # Without identity, the replicas of a worker would share one tensor, which counts once.
        each = strategy.run(lambda: tf.identity(numbers))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, each, axis=None)

    return over_replicas


class Agreement:
    """Combines flags of all workers; a single worker decides at every step."""

    def __init__(self, strategy):
        self.strategy = strategy
        self._block = 0  # of this many steps

    def any_worker(self, step, *flags):
        """For each flag, whether it is True on at least one worker.

        All workers must call this with the same `step`. Several workers communicate at step 0 and
        at the first call in each block of 20 steps; at other steps the result is False.
        """
        if num_workers(self.strategy) == 1:
            return [bool(flag) for flag in flags]
        before, self._block = self._block, step // _STEPS_BETWEEN
        if step and self._block == before:
            return [False] * len(flags)
        sums = sum_over_workers(self.strategy, tf.constant(flags, tf.float32))
        return [total > 0 for total in sums]


def from_chief(strategy, number):
    """Broadcasts an integer of the chief to all workers, all of which must call this."""
    if num_workers(strategy) == 1:
        return number
    with exit_if_a_worker_is_lost(strategy):
        own = tf.constant(number if is_chief(strategy) else 0, tf.int64)
        return int(sum_over_workers(strategy, own))


def check_same_start(strategy, step, steps_per_epoch, weights, batch):
    """Raises `UserError` on all workers unless they start training with the same state and data.

    Shapes, labels, weights and integer inputs of the first batch, or tuple of batches, must be
    equal. Pixels and other inputs of floats are not compared, as processors may round them
    differently.
    """
    own = digests(step, steps_per_epoch, weights, batch)
    total = sum_over_workers(strategy, tf.constant(list(own.values()), tf.float64))
    workers = num_workers(strategy)
    differing = [name for name, sum_ in zip(own, total) if sum_ != workers * own[name]]
    if differing:
        raise UserError(
            f"The workers differ in {', '.join(differing)}; this is worker "
            f"{worker_index(strategy.cluster_resolver)}. Start all workers with the same command, "
            "the same --seed, the same files and the same versions of all packages."
        )


def digests(step, steps_per_epoch, weights, batch):
    """Returns {description: number below 2**40} of everything that must be the same."""
    inputs, labels, sample_weights = (
        [np.asarray(array) for array in tf.nest.flatten(part)] for part in zip(*parts_of(batch))
    )
    shapes = [np.array(array.shape) for array in (*inputs, *labels, *sample_weights)]
    tokens = [a for a in inputs if a.dtype.kind in "iu" and a.dtype != np.uint8]  # uint8: pixels
    return {
        "the number of steps done": int(step),
        "the number of steps of an epoch": steps_per_epoch,
        "the model's weights": _digest([np.asarray(weight) for weight in weights]),
        "the first batch": _digest([*shapes, *tokens, *labels, *sample_weights]),
    }


def _digest(arrays):
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype} {array.shape} ".encode())
        digest.update(array.tobytes())
    return int.from_bytes(digest.digest()[: _BITS // 8], "big")
