"""Errors that users can fix, as opposed to bugs."""


class UserError(ValueError):
    """An error that the user can fix: the message says what is wrong, where, and what to do.

    Recipes and the command line print the message without a traceback and exit with status 2.
    """


class TextError(UserError):
    """A text, an option or a model cannot be used to translate, classify or generate text; the
    message says which and why."""


class DataError(UserError):
    """Training data cannot be used; the message says which, why and what to do."""
