"""Errors of the server and of requests."""

import itertools
import json

from starlette.exceptions import HTTPException

from zoo.errors import UserError


class ServerError(UserError):
    """Invalid model or option; the message says which and why."""


class RequestError(HTTPException):
    """A request that gets an error response, whose `detail` is sent as {"error": detail}."""


def bad_request(message):
    """Returns a 400 error."""
    return RequestError(400, message)


def unavailable(message):
    """Returns a 503 error that asks the client to try again."""
    return RequestError(503, message, {"Retry-After": "1"})


def release(error):
    """Frees what the frames of a caught error hold, such as the parsed request.

    One of these frames holds a future, which holds the error: otherwise, they would stay in memory
    until the garbage collector runs, which large requests do not make it do.
    """
    error.__traceback__ = error.__context__ = None


def shown(value):
    """A JSON value for a message, truncated."""
    if isinstance(value, str):
        value = value[:80]
    # in pieces, as the rest of a value may be large or nested deeply
    pieces = json.JSONEncoder(check_circular=False).iterencode(value)  # True would keep the value
    text = "".join(itertools.islice(pieces, 81))
    return text if len(text) <= 80 else text[:77] + "..."
