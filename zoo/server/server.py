"""`serve`: runs the server until it is stopped."""

import contextlib
import gc
import os
import signal
import socket
import sys
import threading
import time

import uvicorn

from zoo.server.app import Service
from zoo.server.connections import BACKLOG, connections_within
from zoo.server.errors import ServerError
from zoo.server.limits import Limits
from zoo.server.loading import load_all
from zoo.server.origins import trusted_hosts


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
        allowed_hosts: names by which clients may call the server, without ports. By default only
            names of this machine if `host` is a loopback address, and any name if it is not.
        allowed_origins: web sites other than the server's own page whose pages may send requests,
            such as "https://example.com".
        poll_seconds: seconds between looks for other versions of the models "…/NAME"; the highest
            on disk is served, and requests that the old one has begun are finished. 0 to keep the
            first ones.
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
        service = Service(
            load_all(folders),
            limits,
            folders,
            poll_seconds,
            hosts,
            tuple(allowed_origins),
            None if grpc_port is None else _joined(host, grpc_port),
            report=_say,
        )
        _collect_garbage_less_often()
        server = Server(service, address=_address(host, listener), access_log=access_log)
        server.run(sockets=[listener])
    if service.failure:
        raise service.failure
    if service.is_calling:
        # The thread of a model call cannot be stopped, and `sys.exit` would wait for it.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1 if server.aborted else 0)
    return 1 if server.aborted else 0


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
        config = uvicorn.Config(
            service.app,
            log_level="info" if access_log else "error",  # no line for each invalid request
            access_log=access_log,
            lifespan="on",
            loop="asyncio",
            http=connections_within(service.limits),
            ws="none",
            backlog=BACKLOG,
        )
        super().__init__(config)
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
        if not service.is_stopping:
            return False
        if service.in_flight and time.monotonic() < self._end:
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
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread can set signal handlers
        return

    def exit_(sig, frame):
        raise SystemExit(0)

    before = {number: signal.signal(number, exit_) for number in (signal.SIGINT, signal.SIGTERM)}
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


def _collect_garbage_less_often():
    """As parsed JSON with millions of lists is searched for garbage while it is built, in vain."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def _address(host, listener):
    return f"http://{_joined(host, listener.getsockname()[1])}/"


def _joined(host, port):
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _say(line):
    print(line, flush=True)
