"""Errors of the server and of requests."""

from starlette.exceptions import HTTPException

from zoo.errors import UserError

# The HTTP status of TensorFlow Serving for the codes of TensorFlow and gRPC; for others it is 500.
STATUS = {"OUT_OF_RANGE": 400, "FAILED_PRECONDITION": 400, "INVALID_ARGUMENT": 400}
STATUS |= {"NOT_FOUND": 404, "RESOURCE_EXHAUSTED": 429, "UNIMPLEMENTED": 501}
STATUS |= {"UNAVAILABLE": 503, "DEADLINE_EXCEEDED": 504}


class ServerError(UserError):
    """Invalid model or option; the message says which and why."""


class RequestError(HTTPException):
    """A request that gets an error response, whose `detail` is sent as {"error": detail}."""

    def __init__(self, detail, status_code=400):
        super().__init__(status_code, detail)


def release(error):
    """Frees what the frames of a caught error hold, such as the parsed request.

    One of these frames holds a future, which holds the error: otherwise, they would stay in memory
    until the garbage collector runs, which large requests do not make it do.
    """
    error.__traceback__ = error.__context__ = None
