"""Errors of exports."""

from zoo.errors import UserError


class ExportError(UserError):
    """A model cannot be exported, or the export is wrong; the message says why."""
