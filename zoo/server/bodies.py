"""Reads request bodies, with limits on the size of each and on the memory of all."""

import asyncio
import contextlib
import threading
import zlib

from starlette.requests import ClientDisconnect

from zoo.server.errors import RequestError, unavailable

_DRAIN_SECONDS = 2.0
_PIECE = 2**20  # bytes that are decompressed at once


class Memory:
    """Limits the memory of all request bodies together.

    Args:
        limit: maximum number of bytes.
    """

    def __init__(self, limit):
        self.limit = limit
        self.used = 0
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def share(self):
        """Context manager that yields a function to reserve bytes for one request, in any thread.

        The function raises RequestError, 503, if the limit is exceeded, or after the exit, which
        releases the bytes.
        """
        taken, is_open = 0, True

        def take(count):
            nonlocal taken
            with self._lock:
                if not is_open or self.used + count > self.limit:
                    raise unavailable("The server's memory for requests is full. Try again later.")
                self.used += count
                taken += count

        try:
            yield take
        finally:
            with self._lock:
                is_open = False
                self.used -= taken


class Body:
    """The body of a request.

    Args:
        request: `starlette.requests.Request` whose body has not been read.
        limit: maximum number of bytes, before and after decompression.
    """

    def __init__(self, request, limit):
        self._receive = request.receive
        self._declared = int(request.headers.get("content-length", 0))
        self._encoding = request.headers.get("content-encoding", "identity").lower()
        self._limit = limit
        self._size = 0
        self._is_read = False

    async def read(self, take):
        """Reads the whole body without decompressing it.

        Args:
            take: called with the number of bytes of each chunk; see `Memory.share`.

        Raises:
            RequestError: 413 if the body is too large; or the error of `take`.
        """
        chunks = []
        if self._declared > self._limit:
            raise self._too_large()
        async for chunk in self._chunks():
            if self._size > self._limit:
                raise self._too_large()
            take(len(chunk))
            chunks.append(chunk)
        return b"".join(chunks)

    async def drain(self):
        """Reads and discards the rest of the body, up to a limit.

        If the connection is closed while the client is still writing, it may not see the response.
        """
        most = 4 * self._limit
        if self._declared > most:
            return
        with contextlib.suppress(TimeoutError, ClientDisconnect):
            async with asyncio.timeout(_DRAIN_SECONDS):
                async for _ in self._chunks():
                    if self._size > most:
                        return

    def decompressed(self, data, take):
        """Decompresses the bytes that `read` returned, if they are gzip-encoded.

        Args:
            data: bytes.
            take: called with the number of decompressed bytes, bit by bit; see `Memory.share`.

        Raises:
            RequestError: 413 if the result is too large; 400 if the bytes are not gzip; 415 for
                other encodings; or the error of `take`.
        """
        if self._encoding == "identity":
            return data
        if self._encoding != "gzip":
            raise RequestError(
                415,
                f"Content-Encoding must be gzip or identity. Received: {self._encoding}.",
                {"Accept-Encoding": "gzip, identity"},
            )
        decompressor, pieces, size = zlib.decompressobj(wbits=31), [], 0
        while not decompressor.eof:
            try:
                piece = decompressor.decompress(data, _PIECE)
            except zlib.error as error:
                raise RequestError(400, f"The body is not gzip: {error}.") from None
            if not piece and not decompressor.eof:
                raise RequestError(400, "The gzip data are truncated.")
            size += len(piece)
            if size > self._limit:
                raise self._too_large()
            take(len(piece))
            pieces.append(piece)
            data = decompressor.unconsumed_tail
        return b"".join(pieces)

    async def _chunks(self):
        while not self._is_read:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect()
            chunk = message.get("body", b"")
            self._size += len(chunk)
            self._is_read = not message.get("more_body", False)
            yield chunk

    def _too_large(self):
        return RequestError(413, f"The request is larger than {self._limit} bytes.")
