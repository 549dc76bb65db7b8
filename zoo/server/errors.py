"""What can go wrong, before the server answers and while it does."""

from zoo.errors import UserError


class ServerError(UserError):
    """A model or an option that cannot be served with; the message says which and why."""


class RequestError(Exception):
    """A request that is not answered as its client wished.

    Args:
        status: HTTP status code.
        message: goes to the client as {"error": message}.
        headers: HTTP headers that go with it.
    """

    def __init__(self, status, message, headers=None):
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = headers or {}


def unavailable(message):
    """The 503 of a server that can answer soon, but not now."""
    return RequestError(503, message, {"Retry-After": "1"})
