"""Sums over workers, common decisions, and a check that all workers start alike."""

import functools
import json
import zlib

import tensorflow as tf

from zoo.errors import UserError
from zoo.training.distribution.failures import exit_if_a_worker_is_lost
from zoo.training.distribution.workers import is_chief, num_workers, worker_index

_STEPS_BETWEEN = 20  # from one decision to the next, as communication takes time


def sum_over_workers(strategy, numbers):
    """Sums a tensor over all workers, all of which must call this."""
    # Every replica contributes the value of its worker.
    replicas = strategy.num_replicas_in_sync // num_workers(strategy)
    return _summing(strategy, tuple(numbers.shape), numbers.dtype)(numbers).numpy() / replicas


@functools.cache
def _summing(strategy, shape, dtype):
    """A function of numbers of a shape and dtype: TensorFlow warns of one that is traced anew."""

    @tf.function  # called eagerly, TensorFlow logs a performance warning
    def over_replicas(numbers):
        # Without identity, the replicas of a worker would share one tensor, which counts once.
        each = strategy.run(lambda: tf.identity(numbers))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, each, axis=None)

    return over_replicas


def any_worker(strategy, step, *flags):
    """For each flag, whether it is True on at least one worker; a list of bool.

    All workers must call this with the same `step`. Several workers communicate at step 0 and at
    each 20th step; at other steps the result is False.
    """
    if num_workers(strategy) == 1:
        return [bool(flag) for flag in flags]
    if step % _STEPS_BETWEEN:
        return [False for _ in flags]
    return [total > 0 for total in sum_over_workers(strategy, tf.constant(flags, tf.float32))]


def from_chief(strategy, number):
    """Broadcasts an integer of the chief to all workers, all of which must call this."""
    if num_workers(strategy) == 1:
        return number
    with exit_if_a_worker_is_lost(strategy):
        own = tf.constant(number if is_chief(strategy) else 0, tf.int64)
        return int(sum_over_workers(strategy, own))


def check_same(strategy, values):
    """Raises `UserError` on all workers unless they have the same values.

    Args:
        strategy: `tf.distribute.Strategy`; all its workers must call this.
        values: {name: value that JSON can store}.
    """
    workers = num_workers(strategy)
    if workers == 1:
        return
    own = [_checksum(value) for value in values.values()]
    with exit_if_a_worker_is_lost(strategy):
        sums = sum_over_workers(strategy, tf.constant(own, tf.float64))
    differing = [name for name, one, total in zip(values, own, sums) if total != workers * one]
    if differing:
        raise UserError(
            f"The workers differ in {', '.join(differing)}; this is worker "
            f"{worker_index(strategy.cluster_resolver)}. Start all workers with the same command "
            "and the same files."
        )


def _checksum(value):
    """A checksum of six digits of each float, as processors may round the others differently."""
    rounded = json.loads(json.dumps(value), parse_float=lambda text: f"{float(text):.6g}")
    return zlib.crc32(json.dumps(rounded, sort_keys=True).encode())
