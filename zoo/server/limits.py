"""Limits of the server."""

import dataclasses

from zoo.errors import ServerError


@dataclasses.dataclass(frozen=True)
class Limits:
    """Limits of the server.

    Args:
        max_batch: maximum number of rows per model call; a request of more rows takes several
            calls, in turn with other requests.
        max_rows: maximum number of rows per request; larger requests get 400.
        batch_wait_ms: milliseconds that a request waits for others to join its batch.
        max_queue: maximum number of queued requests per model; further requests get 503.
        calls_at_once: maximum number of concurrent calls per model.
        max_body: maximum number of bytes of a request; larger requests get 413. Requests get 503
            while all requests in memory would have more than 8 times as many.
        max_values: maximum number of values in the JSON of a request, including lists, in an input
            of a gRPC request, or in the requested outputs; requests with more get 413.
        max_connections: maximum number of open connections, which must be below the limit of the
            system. A new one closes the one that has waited longest for the rest of a request.
        request_timeout: maximum number of seconds per request; then it gets 504. A client that
            takes longer to send the headers, or to read its answer, is disconnected.
        shutdown_grace: seconds to finish running requests when the server is stopped.
    """

    max_batch: int = 32
    max_rows: int = 1024
    batch_wait_ms: float = 2.0
    max_queue: int = 256
    calls_at_once: int = 2
    max_body: int = 32 * 2**20
    max_values: int = 4 * 2**20
    max_connections: int = 500
    request_timeout: float = 60.0
    shutdown_grace: float = 30.0

    def __post_init__(self):
        for name, value in dataclasses.asdict(self).items():
            if not value > 0:
                raise ServerError(f"{name} must be greater than 0. Received: {name}={value}.")
