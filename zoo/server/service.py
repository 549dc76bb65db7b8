"""What REST and gRPC share: the served models, and the limits of a request."""

import asyncio
import contextlib

from zoo.server.batching import Batcher
from zoo.server.errors import RequestError, unavailable


class Service:
    """The served models.

    Args:
        models: list of `zoo.server.loading.Model` with different names.
        limits: `zoo.server.limits.Limits`.

    Attributes:
        batchers: {name: `zoo.server.batching.Batcher`}.
        memory: number of bytes that requests have reserved.
    """

    def __init__(self, models, limits):
        self.limits = limits
        self.batchers = {}
        self.memory = 0
        for model in models:
            self.serve(model)

    def serve(self, model):
        """Serves a model from now on; one of the same name finishes the requests that it has."""
        self.batchers[model.name] = Batcher(model, self.limits)

    @property
    def is_calling(self):
        """Whether a model call is running; one whose request was given up, too."""
        return any(batcher.calls for batcher in self.batchers.values())

    def batcher(self, name, version=None):
        """The `zoo.server.batching.Batcher` of a model.

        Raises:
            RequestError: 404 if there is no such model or version.
        """
        batcher = self.batchers.get(name)
        if batcher and version in (None, str(batcher.model.version)):
            return batcher
        asked = name[:80] if version is None else f"{name[:80]}, version {version[:20]}"
        serves = ", ".join(f"{n}, version {b.model.version}" for n, b in self.batchers.items())
        raise RequestError(404, f"Servable not found for request: {asked}. Available: {serves}.")

    @contextlib.asynccontextmanager
    async def accepted(self):
        """Limits the time and memory of a request.

        Yields a function to reserve bytes, which are released at the end; it raises RequestError,
        503, if there is no room.

        Raises:
            RequestError: 504 if the request takes too long.
        """
        taken, seconds = 0, self.limits.request_timeout

        def take(count):
            nonlocal taken
            if self.memory + count > self.limits.max_bodies:
                raise unavailable("The server's memory for requests is full. Try again later.")
            self.memory += count
            taken += count

        try:
            async with asyncio.timeout(seconds):
                yield take
        except TimeoutError:
            raise RequestError(504, f"The request took more than {seconds:g} s.") from None
        finally:
            self.memory -= taken
