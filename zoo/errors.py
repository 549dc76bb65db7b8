"""Errors that users can fix, as opposed to bugs."""

import importlib


class UserError(ValueError):
    """An error that the user can fix: the message says what is wrong, where, and what to do.

    Recipes and the command line print the message without a traceback and exit with status 2.
    """


class TextError(UserError):
    """An input, an option or a model cannot be used to classify, translate or generate text; the
    message says which and why."""


class DataError(UserError):
    """Training data cannot be used; the message says which, why and what to do."""


def needed(name):
    """Imports a module of an optional package; raises `UserError` if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.split(".")[0].replace("_", "-")
        raise UserError(
            f"The package {package} is not installed. Run `pip install {package}`. ({error})"
        ) from None
