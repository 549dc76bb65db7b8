"""Limits of HTTP connections, so that those that send nothing do not shut out others."""

import contextlib

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

BACKLOG = 64  # connections that one turn of the event loop may accept
_EXCESS = 3 * BACKLOG  # connections of three turns may be open before the first are closed again
_READ_AT_ONCE = 2**15  # bytes; more would take seconds to parse if they are chunks of one byte
_MACOS_FILES = 10_240  # the most that macOS allows, whose hard limit may be infinite
_OTHER_FILES = 100  # open files of the process that are not connections


class BoundedConnection(H11Protocol):
    """A connection of a server, of which at most `max_connections` are open.

    When there is one more, the one that has waited longest for the rest of a request is closed. One
    whose headers do not arrive within `header_timeout` seconds is closed anyway, and one whose
    client does not read a large answer within `answer_timeout` seconds.
    """

    def __init__(self, max_connections, header_timeout, answer_timeout, **settings):
        super().__init__(**settings)
        self._max_connections = max_connections
        self._header_timeout = header_timeout
        self._answer_timeout = answer_timeout
        self._timer = self._unread = None

    def connection_made(self, transport):
        super().connection_made(transport)
        transport.max_size = _READ_AT_ONCE
        self._waits_since = self.loop.time()
        self._set_timer()
        if len(self.connections) > self._max_connections:
            waiting = (one for one in self.connections if one.is_waiting)
            oldest = min(waiting, key=lambda one: one._waits_since)
            self.connections.discard(oldest)  # at once; aborting it does so later
            oldest.transport.abort()

    def connection_lost(self, error):
        for timer in (self._timer, self._unread):
            if timer is not None:
                timer.cancel()
        super().connection_lost(error)

    def data_received(self, data):
        super().data_received(data)
        self._set_timer(self._is_idle)

    def pause_writing(self):
        super().pause_writing()
        self._unread = self.loop.call_later(self._answer_timeout, self.transport.abort)

    def resume_writing(self):
        super().resume_writing()
        self._unread.cancel()

    def send_400_response(self, msg):
        if self.cycle is not None:
            self.cycle.disconnected = True  # so that a request whose body is wrong gets one answer
        with contextlib.suppress(h11.LocalProtocolError):  # it has got one already
            super().send_400_response(msg)
        self.transport.close()

    def on_response_complete(self):
        self._waits_since = self.loop.time()
        super().on_response_complete()

    @property
    def is_waiting(self):
        """Whether the server waits for a request, its headers or the rest of its body."""
        return self._is_idle or self.cycle.more_body

    @property
    def _is_idle(self):
        return self.cycle is None or self.cycle.response_complete

    def _set_timer(self, is_on=True):
        if is_on and self._timer is None:
            self._timer = self.loop.call_later(self._header_timeout, self.transport.abort)
        elif not is_on and self._timer is not None:
            self._timer.cancel()
            self._timer = None


def allowed_connections(wanted):
    """The number of connections that the process may open, at most `wanted`.

    Raises the system's limit of open files as far as it can.
    """
    try:
        import resource
    except ImportError:  # Windows
        return min(wanted, 512 - _EXCESS - _OTHER_FILES)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    for limit in (hard, _MACOS_FILES):
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
            break
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files == resource.RLIM_INFINITY:
        return wanted
    return max(1, min(wanted, files - _EXCESS - _OTHER_FILES))
