"""Connections that wait must not shut out others."""

import contextlib

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

BACKLOG = 64  # connections that are accepted at once, before one too many can be closed
_READ_AT_ONCE = 2**15  # bytes; more would take seconds to parse if they are chunks of one byte
_FILES_OF_ALL_ELSE = 100  # open files of the process that are not connections


class BoundedConnections(H11Protocol):
    """The connections of a server, of which at most `max_connections` are open.

    When there is one more, the one that has waited longest for the rest of a request is closed. One
    whose headers do not arrive within `header_timeout` seconds is closed anyway, and one whose
    client does not read a large answer within `answer_timeout` seconds.

    Subclasses set the three.
    """

    max_connections = 1000
    header_timeout = 10.0
    answer_timeout = 60.0

    def connection_made(self, transport):
        super().connection_made(transport)
        transport.max_size = _READ_AT_ONCE
        self._timer = self._unread = None
        self._waits_since = self.loop.time()
        self._await_headers()
        open_ = [one for one in self.connections if one._is_open]
        if len(open_) > self.max_connections:
            waiting = (one for one in open_ if one.is_waiting)
            min(waiting, key=lambda one: one._waits_since).transport.abort()

    def connection_lost(self, error):
        self._stop_timer()
        if self._unread is not None:
            self._unread.cancel()
        super().connection_lost(error)

    def data_received(self, data):
        super().data_received(data)
        if self._is_idle:
            self._await_headers()
        else:
            self._stop_timer()

    def pause_writing(self):
        super().pause_writing()
        self._unread = self.loop.call_later(self.answer_timeout, self.transport.abort)

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
    def _is_open(self):
        # one that is closed stays open until its client has read the answer
        return not self.transport.is_closing() or self.transport.get_write_buffer_size() > 0

    @property
    def _is_idle(self):
        return self.cycle is None or self.cycle.response_complete

    def _await_headers(self):
        if self._timer is None:
            self._timer = self.loop.call_later(self.header_timeout, self.transport.abort)

    def _stop_timer(self):
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def connections_within(limits):
    """The class of connections for these `zoo.server.limits.Limits` and the system's open files."""
    settings = {
        "max_connections": min(
            limits.max_connections, _open_files() - BACKLOG - _FILES_OF_ALL_ELSE
        ),
        "header_timeout": limits.header_timeout,
        "answer_timeout": limits.request_timeout,
    }
    settings["max_connections"] = max(1, settings["max_connections"])
    return type("Connections", (BoundedConnections,), settings)


def _open_files():
    """The number of files that the process may open, after its limit is raised."""
    try:
        import resource
    except ImportError:  # Windows
        return 512
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return soft if soft != resource.RLIM_INFINITY else 2**20
