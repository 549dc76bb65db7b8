"""Mistakes of the person at the keyboard, as against mistakes of the program."""


class UserError(ValueError):
    """What a user can put right: the message says what is wrong, where, and what to do.

    Recipes and the command line show the message alone and end with exit status 2.
    """


class DataError(UserError):
    """Data that cannot be trained on; the message says which, why and what to do."""
