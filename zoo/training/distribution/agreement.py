"""What several workers do at the same step although only one of them knows why."""

import tensorflow as tf

from zoo.training.distribution.workers import num_workers, sum_over_workers

_STEPS_BETWEEN = 20  # questions to the other workers, which take time


class Agreement:
    """Lets workers decide together; one that is alone decides at once.

    Args:
        strategy: `tf.distribute.Strategy`.
    """

    def __init__(self, strategy):
        self.strategy = strategy

    def on(self, number, *wishes):
        """Which of the wishes at least one worker has; all workers must ask at the same `number`.

        Workers ask each other if `number` is a multiple of 20, as 0 is; at others no wish is
        granted.
        """
        if num_workers(self.strategy) == 1:
            return [bool(wish) for wish in wishes]
        if number % _STEPS_BETWEEN:
            return [False] * len(wishes)
        sums = sum_over_workers(self.strategy, tf.constant(wishes, tf.float32))
        return [wishing > 0 for wishing in sums]
