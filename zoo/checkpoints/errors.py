"""Errors of published weights."""

from zoo.errors import UserError


class CheckpointError(UserError):
    """Published weights cannot be used; the message names the file and says why."""
