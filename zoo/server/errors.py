"""Errors of the server and of requests."""

import json

from zoo.errors import UserError


class ServerError(UserError):
    """Invalid model or option; the message says which and why."""


class RequestError(Exception):
    """A request that gets an error response.

    Args:
        status: HTTP status code.
        message: sent to the client as {"error": message}.
        headers: additional HTTP headers.
    """

    def __init__(self, status, message, headers=None):
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = headers or {}


def bad_request(message):
    """Returns a 400 error."""
    return RequestError(400, message)


def unavailable(message):
    """Returns a 503 error that asks the client to try again."""
    return RequestError(503, message, {"Retry-After": "1"})


def shown(value):
    """A JSON value for a message, truncated."""
    if isinstance(value, str):
        value = value[:80]
    text = json.dumps(value, ensure_ascii=True, default=str)
    return text if len(text) <= 80 else text[:77] + "..."
