"""What can go wrong when a model leaves the zoo."""

import importlib

from zoo.errors import UserError


class ExportError(UserError):
    """An export that is not to be trusted or not to be made; the message says why."""


def needed(name):
    """A module that one format alone needs; raises `ExportError` if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.split(".")[0].replace("_", "-")
        raise ExportError(
            f"This format needs the package {package}: `pip install {package}`. ({error})"
        ) from None
