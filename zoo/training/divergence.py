"""Notices when training has come to numbers that are none."""

import numpy as np

from zoo.errors import UserError
from zoo.training.model_state import WEIGHTS, only

_AT_ONCE = 20  # losses looked at together: to look at one, the program waits for the device


class DivergedError(UserError):
    """A loss or weights that are NaN or infinite; the message names the step."""


class LossWatch:
    """Finds the first step whose loss is NaN or infinite, at most `_AT_ONCE` steps later."""

    def __init__(self):
        self._losses = []

    def add(self, step, logs):
        """Notes what `fit` logs of a step.

        Raises:
            DivergedError: as `check` does.
        """
        if logs and "loss" in logs:
            self._losses.append((step, logs["loss"]))
        if len(self._losses) >= _AT_ONCE:
            self.check()

    def check(self):
        """Looks at all that was noted.

        Raises:
            DivergedError: if a loss is not finite.
        """
        losses, self._losses = self._losses, []
        for step, loss in losses:
            # The mean since the epoch began, which stays what it is once it is not finite.
            if not np.isfinite(loss).all():
                raise DivergedError(f"The loss of step {step:,} is {np.ravel(loss)[0]}")


def check_weights(state, step):
    """Looks at the weights of a `model_state`.

    Raises:
        DivergedError: if one is not finite.
    """
    for name, array in only(state, WEIGHTS).items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise DivergedError(f"After step {step:,}, {name} is not finite")
