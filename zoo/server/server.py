"""`serve`: runs the server until it is stopped."""

import contextlib
import functools
import gc
import os
import signal
import socket
import sys
import threading
import time

import uvicorn

from zoo.server.app import Service
from zoo.server.connections import BACKLOG, BoundedConnection, allowed_connections
from zoo.server.errors import ServerError
from zoo.server.limits import Limits
from zoo.server.loading import load_all
from zoo.server.origins import trusted_hosts

_say = functools.partial(print, flush=True)


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

    New requests are then refused and running requests are finished; a second signal stops without
    waiting for them. A model call that still runs after `shutdown_grace` seconds is killed with the
    process.

    Args:
        folders: list of "…/NAME/1"; "…/NAME", which serves its highest version; or "NAME=path".
        host: address to listen on; "0.0.0.0" accepts requests from other machines.
        port: port to listen on; 0 selects a free port and prints it.
        access_log: whether to log every request.
        allowed_hosts: host names of the server in requests, without ports. By default "localhost",
            "127.0.0.1" and "::1" if `host` is one of them, and any name if it is not.
        allowed_origins: web sites other than the server's own page whose pages may send requests,
            such as "https://example.com".
        poll_seconds: seconds between checks for other versions of the models "…/NAME"; the highest
            on disk is served, and requests that the old one has begun are finished. 0 for no
            checks.
        grpc_port: port for gRPC requests, TensorFlow Serving's `Predict`; none by default, 0
            selects a free port and prints it.
        **limits: see `zoo.server.limits.Limits`.

    Returns:
        0, or 1 if a request was aborted.

    Raises:
        ServerError: if a folder cannot be served, a limit is invalid or the port is in use.
    """
    if not poll_seconds >= 0:
        raise ServerError(f"poll_seconds must be at least 0. Received: {poll_seconds}.")
    limits = Limits(**limits)
    with _exit_on_signals(), bound_socket(host, port) as listener:
        hosts = trusted_hosts(host, allowed_hosts)
        grpc_address = None if grpc_port is None else _joined(host, grpc_port)
        origins, models = tuple(allowed_origins), load_all(folders)
        service = Service(
            models, limits, folders, poll_seconds, hosts, origins, grpc_address, report=_say
        )
        # Otherwise, parsed JSON of millions of lists is searched for garbage while it is built.
        gc.freeze()
        gc.set_threshold(50_000, 20, 100)
        address = f"http://{_joined(host, listener.getsockname()[1])}/"
        server = Server(service, address, access_log)
        server.run(sockets=[listener])
    if service.failure:
        raise service.failure
    status = 1 if server.aborted else 0
    if service.is_calling:
        # The thread of a model call cannot be stopped, and `sys.exit` would wait for it.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    return status


class Server(uvicorn.Server):
    """A Uvicorn server that finishes running requests when it is stopped.

    Args:
        service: `zoo.server.app.Service`.
        address: URL to print when the service is ready.
        access_log: whether to log every request.

    Attributes:
        aborted: number of requests that were not finished within the grace period.
    """

    def __init__(self, service, address=None, access_log=False):
        count = allowed_connections(service.limits.max_connections)
        seconds = (service.limits.header_timeout, service.limits.request_timeout)
        connection = functools.partial(BoundedConnection, count, *seconds)
        level = "info" if access_log else "error"  # no line for each invalid request
        options = {"log_level": level, "access_log": access_log, "lifespan": "on", "ws": "none"}
        options |= {"http": connection, "loop": "asyncio", "backlog": BACKLOG}
        super().__init__(uvicorn.Config(service.app, **options))
        self.service = service
        self.address = address
        self.aborted = 0
        self._end = None

    def stop(self):
        """Refuses new requests and stops when the running ones are done, or at a second call."""
        grace = 0 if self.service.is_stopping else self.service.limits.shutdown_grace
        self.service.is_stopping = True
        self._end = time.monotonic() + grace

    def handle_exit(self, sig, frame):
        self.stop()

    async def on_tick(self, counter):
        await super().on_tick(counter)
        service = self.service
        if self.address and service.is_ready:
            _say(f"Serving at {self.address} (Ctrl+C stops)")
            self.address = None
        if service.failure:
            return True
        if not service.is_stopping or (service.in_flight and time.monotonic() < self._end):
            return False
        self.aborted = service.in_flight
        # for responses that are being sent to slow clients
        self.config.timeout_graceful_shutdown = max(1.0, self._end - time.monotonic())
        return True


@contextlib.contextmanager
def _exit_on_signals():
    """Makes SIGINT and SIGTERM exit the process while models are loaded.

    As process 1 of a container, it would otherwise ignore them.
    """
    is_main = threading.current_thread() is threading.main_thread()  # others cannot set handlers
    numbers = (signal.SIGINT, signal.SIGTERM) if is_main else ()
    before = {number: signal.signal(number, lambda *_: sys.exit(0)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def bound_socket(host, port):
    """Binds a socket without listening yet, which reserves the port while models load."""
    if not 0 <= port < 2**16:  # the system would use another port
        raise ServerError(f"port must be from 0 to {2**16 - 1}. Received: {port}.")
    try:
        family, *_, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
    except OSError as error:
        raise ServerError(
            f"Cannot listen on {host}, port {port}: {error}. Choose another host or port."
        ) from None
    return listener


def _joined(host, port):
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
