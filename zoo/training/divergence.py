"""Detects NaN and infinite values during training."""

import numpy as np

from zoo.errors import UserError

_STEPS_BETWEEN_CHECKS = 20  # reading a loss makes the program wait for the device


class DivergedError(UserError):
    """A loss or weight is NaN or infinite; the message names the step."""


class LossWatch:
    """Finds the first step with a NaN or infinite loss, at most `_STEPS_BETWEEN_CHECKS` later."""

    def __init__(self):
        self._losses = []

    def add(self, step, logs):
        """Records the loss that `fit` logs for a step, and calls `check` every few steps.

        Raises:
            DivergedError: see `check`.
        """
        if logs and "loss" in logs:
            self._losses.append((step, logs["loss"]))
        if len(self._losses) >= _STEPS_BETWEEN_CHECKS:
            self.check()

    def check(self):
        """Checks all losses recorded since the last check.

        Raises:
            DivergedError: if a loss is not finite.
        """
        losses, self._losses = self._losses, []
        for step, loss in losses:
            # The logged loss is the mean since the epoch began: once not finite, it stays so.
            if not np.isfinite(loss).all():
                raise DivergedError(f"The loss of step {step:,} is {np.ravel(loss)[0]}")


def check_weights(weights, step):
    """Checks that all weights, {name: variable}, are finite.

    Raises:
        DivergedError: if a weight is not finite.
    """
    for name, variable in weights.items():
        if "float" in variable.dtype and not np.isfinite(variable.numpy()).all():
            raise DivergedError(f"After step {step:,}, {name} is not finite")
