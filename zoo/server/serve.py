"""`serve`: runs the server until it is stopped."""

import asyncio
import contextlib
import functools
import gc
import os
import socket
import sys

import h11
import tensorflow as tf
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from zoo.errors import ServerError
from zoo.server.limits import Limits
from zoo.server.models import load_all, watch
from zoo.server.rest_app import Service

_BACKLOG = 64  # connections that one turn of the event loop may accept, also beyond the limit
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


def serve(
    folders,
    host="127.0.0.1",
    port=8501,
    access_log=False,
    allowed_hosts=(),
    allowed_origins=(),
    poll_seconds=2.0,
    grpc_port=None,
    **limits,
):
    """Serves exported models until the process receives SIGTERM or SIGINT.

    Then new connections are refused and running requests are finished; a second signal stops
    without waiting for them. A model call that still runs after `shutdown_grace` seconds is killed
    with the process.

    Args:
        folders: list of "…/NAME/1"; "…/NAME", which serves its highest version; or "NAME=path".
        host: address to listen on; "0.0.0.0" accepts requests from other machines.
        port: port to listen on; 0 selects a free port and prints it.
        access_log: whether to log every request.
        allowed_hosts: host names of the server in requests, without ports, such as
            "*.example.com". By default "localhost", "127.0.0.1" and "::1" if `host` is one of them,
            and otherwise any name.
        allowed_origins: other web sites whose pages may send requests, such as
            "https://example.com".
        poll_seconds: seconds between checks for other versions of the models "…/NAME"; the highest
            version on disk is served, and the old one finishes its requests. 0 disables the checks.
        grpc_port: port for gRPC requests, TensorFlow Serving's `Predict`; 0 selects a free port and
            prints it. By default, there is no gRPC server.
        **limits: see `zoo.server.limits.Limits`.

    Raises:
        ServerError: if a folder cannot be served, a limit is invalid or the port is in use.
    """
    limits = Limits(**limits)
    tf.get_logger().setLevel("ERROR")  # no warning that its way to load models is an old one
    with bound_socket(host, port) as listener:
        hosts = trusted_hosts(host, allowed_hosts)
        service = Service(load_all(folders), limits, hosts, tuple(allowed_origins))
        # Otherwise, the garbage collector slows down the parsing of JSON with millions of lists.
        gc.freeze()
        gc.set_threshold(50_000, 20, 100)
        server = Server(service, access_log)
        grpc_address = None if grpc_port is None else _joined(host, grpc_port)
        asyncio.run(run(server, service, listener, folders, poll_seconds, grpc_address))
    if any(batcher.calls for batcher in service.batchers.values()):
        # The thread of a model call cannot be stopped, and `sys.exit` would wait for it.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


class BoundedConnection(H11Protocol):
    """A connection of a server that has at most `max_connections` open ones.

    A new one closes the one that has waited longest for the rest of a request; Uvicorn's own limit
    would let idle clients shut others out. A connection is also closed if its client does not send
    the first headers, or read a large answer, within `seconds`.
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


class Server(uvicorn.Server):
    """A Uvicorn server of a `zoo.server.rest_app.Service` that a second signal stops at once."""

    def __init__(self, service, access_log=False):
        limits = service.limits
        config = uvicorn.Config(
            service.app,
            http=functools.partial(
                BoundedConnection, limits.max_connections, limits.request_timeout
            ),
            ws="none",
            lifespan="off",
            backlog=_BACKLOG,
            log_level="info" if access_log else "error",  # no line for each invalid request
            access_log=access_log,
            timeout_graceful_shutdown=limits.shutdown_grace,
        )
        super().__init__(config)

    def handle_exit(self, sig, frame):
        self.force_exit = self.should_exit
        self.should_exit = True


async def run(server, service, listener, folders=(), poll_seconds=0, grpc_address=None):
    """Answers requests, and looks for other versions of the models, until the server is stopped."""
    grpc_server = None
    if grpc_address is not None:
        from zoo.server import grpc_service

        grpc_server, port = await grpc_service.start(service, grpc_address)
        print(f"gRPC at port {port}", flush=True)
    if poll_seconds:  # the reference keeps the task alive, which ends with the event loop
        _watching = asyncio.create_task(watch(service, folders, poll_seconds))
    print(f"Serving at http://{_joined(*listener.getsockname()[:2])}/ (Ctrl+C stops)", flush=True)
    await server.serve(sockets=[listener])
    if grpc_server is not None:
        await grpc_server.stop(service.limits.shutdown_grace)


def trusted_hosts(host, allowed):
    """Returns the host names that requests may have; any, unless `host` is local or some are given.

    In an attack by DNS rebinding, `Host` is a name of the attacker that points to this machine.
    """
    if allowed or host in (*_LOOPBACK, "::1"):
        return [*_LOOPBACK, host, *allowed]
    return ["*"]


def bound_socket(host, port):
    """Returns a listening socket, on which clients wait while the models are loaded."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        raise ServerError(
            f"Cannot listen on {host}, port {port}: {error}. Choose another host or port."
        ) from None


def _joined(host, port):
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
