"""Limits of HTTP connections, so that idle clients do not block others.

Uvicorn's `limit_concurrency` would refuse new clients instead.
"""

import contextlib

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

BACKLOG = 64  # connections that one turn of the event loop may accept, also beyond the limit


class BoundedConnection(H11Protocol):
    """A connection of a server that has at most `max_connections` open ones.

    One more closes the one that has waited longest for the rest of a request. A connection is also
    closed if its client does not send the first headers, or read a large answer, within `seconds`.
    """

    def __init__(self, max_connections, seconds, **settings):
        super().__init__(**settings)
        self._max_connections = max_connections
        self._seconds = seconds

    def connection_made(self, transport):
        super().connection_made(transport)
        self._waits_since = self.loop.time()
        self._headers = self.loop.call_later(self._seconds, transport.abort)
        if len(self.connections) > self._max_connections:
            waiting = (one for one in self.connections if one.is_waiting)
            oldest = min(waiting, key=lambda one: one._waits_since)
            self.connections.discard(oldest)  # now: `abort` does so later
            oldest.transport.abort()

    def data_received(self, data):
        super().data_received(data)
        if self.cycle is not None:
            self._headers.cancel()

    def pause_writing(self):
        super().pause_writing()
        self._unread = self.loop.call_later(self._seconds, self.transport.abort)

    def resume_writing(self):
        super().resume_writing()
        self._unread.cancel()

    def send_400_response(self, msg):
        if self.cycle is not None:
            self.cycle.disconnected = True  # a request with an invalid body gets only one answer
        with contextlib.suppress(h11.LocalProtocolError):  # an answer was already sent
            super().send_400_response(msg)
        self.transport.close()

    def on_response_complete(self):
        self._waits_since = self.loop.time()
        super().on_response_complete()

    @property
    def is_waiting(self):
        """Whether the server waits for a request, its headers or the rest of its body."""
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body
