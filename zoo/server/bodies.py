"""Reads request bodies, with limits on the size of each and on the memory of all."""

import asyncio
import contextlib
import threading
import zlib

from starlette.requests import ClientDisconnect

from zoo.server.errors import RequestError, unavailable

_DRAIN_SECONDS = 2.0


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


async def read(request, limit, take):
    """Reads the body of a request without decompressing it.

    Args:
        request: `starlette.requests.Request` whose body has not been read.
        limit: maximum number of bytes.
        take: called with the number of bytes of each chunk; see `Memory.share`.

    Raises:
        RequestError: 413 if the body is too large; or the error of `take`.
    """
    if _declared(request) > limit:
        raise _too_large(limit)
    data = bytearray()
    async for chunk in request.stream():
        take(len(chunk))
        data += chunk
        if len(data) > limit:
            raise _too_large(limit)
    return data


async def drain(request, limit):
    """Reads and discards the rest of the body, up to 4 times the limit.

    If the connection is closed while the client is still writing, it may not see the response.
    """
    size, most = 0, 4 * limit
    if _declared(request) > most:
        return
    # RuntimeError: all of it has been read
    with contextlib.suppress(TimeoutError, ClientDisconnect, RuntimeError):
        async with asyncio.timeout(_DRAIN_SECONDS):
            async for chunk in request.stream():
                size += len(chunk)
                if size > most:
                    return


def decompress(data, encoding, limit, take):
    """Decompresses a body.

    Args:
        data: bytes.
        encoding: `Content-Encoding`: "gzip", or "identity", which returns `data`.
        limit: maximum number of decompressed bytes.
        take: called with the number of decompressed bytes; see `Memory.share`.

    Raises:
        RequestError: 413 if the result is too large; 400 if the bytes are not gzip; 415 for
            other encodings; or the error of `take`.
    """
    if encoding == "identity":
        return data
    if encoding != "gzip":
        raise RequestError(
            415,
            f"Content-Encoding must be gzip or identity. Received: {encoding}.",
            {"Accept-Encoding": "gzip, identity"},
        )
    decompressor = zlib.decompressobj(wbits=31)
    try:
        result = decompressor.decompress(data, limit + 1)
    except zlib.error as error:
        raise RequestError(400, f"The body is not gzip: {error}.") from None
    if len(result) > limit:
        raise _too_large(limit)
    if not decompressor.eof:
        raise RequestError(400, "The gzip data are truncated.")
    if decompressor.unused_data:
        raise RequestError(400, "The body has more data after the end of the gzip data.")
    take(len(result))
    return result


def _declared(request):
    return int(request.headers.get("content-length", 0))


def _too_large(limit):
    return RequestError(413, f"The request is larger than {limit} bytes.")
