"""Errors of requests."""

from starlette.exceptions import HTTPException

# TensorFlow Serving's HTTP status for the codes of TensorFlow and gRPC; 500 for others.
STATUS = {
    "OUT_OF_RANGE": 400,
    "FAILED_PRECONDITION": 400,
    "INVALID_ARGUMENT": 400,
    "NOT_FOUND": 404,
    "RESOURCE_EXHAUSTED": 429,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}


class RequestError(HTTPException):
    """A request cannot be answered; `detail` is sent as {"error": detail}."""

    def __init__(self, detail, status_code=400):
        super().__init__(status_code, detail)


def release(error):
    """Frees the objects in the frames of a caught error, such as the parsed request.

    One of the frames refers to a future, which refers to the error: without this function, the
    objects stay in memory until the garbage collector runs, which large requests do not cause.
    """
    error.__traceback__ = None
    error.__context__ = None
