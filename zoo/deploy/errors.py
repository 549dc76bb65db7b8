"""Errors of exports."""

import importlib

from zoo.errors import UserError


class ExportError(UserError):
    """A model cannot be exported, or the export is wrong; the message says why."""


def needed(name):
    """Imports a module that only one format needs; raises `ExportError` if it is missing."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.split(".")[0].replace("_", "-")
        raise ExportError(
            f"The package {package} is not installed. Run `pip install {package}`. ({error})"
        ) from None
