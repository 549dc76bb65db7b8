"""Decisions that all workers take at the same step, such as to stop."""

import tensorflow as tf

from zoo.training.distribution.failures import exit_if_a_worker_is_lost
from zoo.training.distribution.workers import is_chief, num_workers, sum_over_workers

_STEPS_BETWEEN = 20  # at least, as communication takes time


class Agreement:
    """Combines the flags of all workers; a single worker decides at every step.

    Args:
        strategy: `tf.distribute.Strategy`.
    """

    def __init__(self, strategy):
        self.strategy = strategy
        self._block = 0  # of this many steps

    def any_worker(self, step, *flags):
        """For each flag, whether it is True on at least one worker.

        All workers must call this with the same `step`. With several workers, they communicate at
        step 0 and at the first call in each block of 20 steps; else the result is False.
        """
        if num_workers(self.strategy) == 1:
            return [bool(flag) for flag in flags]
        before, self._block = self._block, step // _STEPS_BETWEEN
        if step and self._block == before:
            return [False] * len(flags)
        sums = sum_over_workers(self.strategy, tf.constant(flags, tf.float32))
        return [total > 0 for total in sums]


def from_chief(strategy, number):
    """Broadcasts an integer from the chief; a collective operation that all workers must call.

    Args:
        strategy: `tf.distribute.Strategy`.
        number: integer; ignored on other workers than the chief.
    """
    if num_workers(strategy) == 1:
        return number
    with exit_if_a_worker_is_lost(strategy):
        own = tf.constant(number if is_chief(strategy) else 0, tf.int64)
        return int(sum_over_workers(strategy, own))
