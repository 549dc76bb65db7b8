"""Bodies of requests: counted while they come in, refused when they are too large."""

import asyncio
import contextlib
import zlib

from starlette.requests import ClientDisconnect

from zoo.server.errors import RequestError, unavailable

_DRAIN_SECONDS = 2.0


class Memory:
    """The bytes of all requests that the server holds.

    Args:
        limit: how many it may hold.
    """

    def __init__(self, limit):
        self.limit = limit
        self.used = 0

    @contextlib.contextmanager
    def share(self):
        """What one request holds: a function that takes so many bytes more, until the end.

        The function raises RequestError, 503, if there are none left.
        """
        taken = 0

        def take(count):
            nonlocal taken
            if self.used + count > self.limit:
                raise unavailable("The server holds as many requests as it can. Try again soon.")
            self.used += count
            taken += count

        try:
            yield take
        finally:
            self.used -= taken


class Body:
    """The body of a request.

    Args:
        request: `starlette.requests.Request`, of which nothing has been read.
        limit: bytes it may have, packed and unpacked.
    """

    def __init__(self, request, limit):
        self._receive = request.receive
        self._declared = int(request.headers.get("content-length", 0))
        self._encoding = request.headers.get("content-encoding", "identity")
        self._limit = limit
        self._size = 0
        self._is_read = False

    async def read(self, take):
        """All of it, as it came.

        Args:
            take: called with the number of bytes of each piece; see `Memory.share`.

        Raises:
            RequestError: 413, if it is too large; or what `take` raises.
        """
        pieces = []
        if self._declared > self._limit:
            raise self._too_large()
        async for piece in self._pieces():
            if self._size > self._limit:
                raise self._too_large()
            take(len(piece))
            pieces.append(piece)
        return b"".join(pieces)

    async def drain(self):
        """Reads and drops what is left, within reason.

        A client that is still writing when the connection is closed may not see the answer.
        """
        most = 4 * self._limit
        if self._declared > most:
            return
        with contextlib.suppress(TimeoutError, ClientDisconnect):
            async with asyncio.timeout(_DRAIN_SECONDS):
                async for _ in self._pieces():
                    if self._size > most:
                        return

    def unpacked(self, data):
        """Bytes that `read` returned, without their gzip, if they have one.

        Raises:
            RequestError: 413, if they are too large; 400, if they are not gzip; 415, if they are
                packed otherwise.
        """
        if self._encoding == "identity":
            return data
        if self._encoding != "gzip":
            raise RequestError(
                415,
                f"Content-Encoding may be gzip or identity. Received: {self._encoding}.",
                {"Accept-Encoding": "gzip, identity"},
            )
        unpacker = zlib.decompressobj(wbits=31)
        try:
            unpacked = unpacker.decompress(data, self._limit + 1)
        except zlib.error as error:
            raise RequestError(400, f"The body is not gzip: {error}.") from None
        if len(unpacked) > self._limit:
            raise self._too_large()
        if not unpacker.eof:
            raise RequestError(400, "The body's gzip is cut off.")
        return unpacked

    async def _pieces(self):
        while not self._is_read:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect()
            piece = message.get("body", b"")
            self._size += len(piece)
            self._is_read = not message.get("more_body", False)
            yield piece

    def _too_large(self):
        return RequestError(413, f"The request is larger than {self._limit} bytes.")
