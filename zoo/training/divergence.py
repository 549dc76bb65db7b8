"""Detects NaN and infinite values during training."""

import numpy as np

from zoo.errors import UserError


class DivergedError(UserError):
    """A loss or weight is NaN or infinite; the message names the step."""


def check_loss(loss, step):
    """Checks the loss that `fit` logs for a step: once not finite, it stays so for an epoch.

    Raises:
        DivergedError: if it is not finite.
    """
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
