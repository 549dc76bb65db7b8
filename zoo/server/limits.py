"""How much a server takes on."""

import dataclasses

from zoo.server.errors import ServerError


@dataclasses.dataclass(frozen=True)
class Limits:
    """How much a server takes on.

    Args:
        max_batch: rows that are run as one call; a single request may have more.
        batch_wait_ms: milliseconds that a request waits for others to be run with.
        max_queue: requests that wait for a model; further ones get 503.
        max_body: bytes of a request, and of what its gzip holds; larger ones get 413.
        max_bodies: bytes of all requests that are read or wait; further ones get 503.
        request_timeout: seconds that a request may take from its first byte on; then it gets 504.
        shutdown_grace: seconds that requests have to be answered in when the server is stopped.
        calls_at_once: of one model.

    Raises:
        ServerError: if a number is too small.
    """

    max_batch: int = 32
    batch_wait_ms: float = 2.0
    max_queue: int = 256
    max_body: int = 32 * 2**20
    max_bodies: int = 256 * 2**20
    request_timeout: float = 60.0
    shutdown_grace: float = 30.0
    calls_at_once: int = 1

    def __post_init__(self):
        may_be_zero = ("batch_wait_ms", "shutdown_grace")
        for name, value in dataclasses.asdict(self).items():
            if not (value >= 0 if name in may_be_zero else value > 0):
                least = "at least 0" if name in may_be_zero else "above 0"
                raise ServerError(f"{name} must be {least}. Received: {name}={value}.")
        if self.max_bodies < self.max_body:
            raise ServerError(
                f"max_bodies must be at least max_body={self.max_body}. "
                f"Received: max_bodies={self.max_bodies}."
            )
