"""`serve`: from folders to a running server, and back."""

import contextlib
import os
import signal
import socket
import sys
import threading
import time

import uvicorn

from zoo.server.app import Service
from zoo.server.errors import ServerError
from zoo.server.limits import Limits
from zoo.server.loading import load_all


def serve(folders, host="127.0.0.1", port=8501, access_log=False, **limits):
    """Serves exported models until the process is told to stop (SIGTERM, SIGINT).

    Then no new requests are taken, and those begun are answered. A second signal does not wait for
    them. If a call of a model is still running after the grace time, the process is ended.

    Args:
        folders: list of "…/NAME/1"; "…/NAME", of whose versions the highest is served; or
            "NAME=path".
        host: address to listen on; "0.0.0.0" takes requests from other machines.
        port: to listen on; 0 takes one that is free, and prints which.
        access_log: whether every request is printed.
        **limits: see `zoo.server.limits.Limits`.

    Returns:
        0; or 1 if a request was cut off.

    Raises:
        ServerError: if a folder cannot be served, a limit is wrong or the port is taken.
    """
    limits = Limits(**limits)
    with _leaving_on_signals(), bound_socket(host, port) as listener:
        service = Service(load_all(folders), limits, report=_say)
        server = Server(service, address=_address(host, listener), access_log=access_log)
        server.run(sockets=[listener])
    if service.failure:
        raise service.failure
    if service.is_calling:
        # Such a thread cannot be stopped, and the interpreter would wait for it.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1 if server.cut_off else 0)
    return 1 if server.cut_off else 0


class Server(uvicorn.Server):
    """Uvicorn, which on a signal first answers the requests it has.

    Args:
        service: `zoo.server.app.Service`.
        address: URL to print when the service is ready.
        access_log: whether every request is printed.

    Attributes:
        cut_off: number of requests that were not answered in the grace time.
    """

    def __init__(self, service, address=None, access_log=False):
        config = uvicorn.Config(
            service.app,
            log_level="info" if access_log else "warning",
            access_log=access_log,
            lifespan="on",
        )
        super().__init__(config)
        self.service = service
        self.address = address
        self.cut_off = 0
        self._end = None

    def stop(self):
        """Takes no more requests, and ends when the last is answered; the second time, at once."""
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
        self.cut_off = service.in_flight
        # for answers on their way to slow clients
        self.config.timeout_graceful_shutdown = max(1.0, self._end - time.monotonic())
        return True


@contextlib.contextmanager
def _leaving_on_signals():
    """Until the server has its own way to stop, a signal ends the process, as it then has no work.

    Also as the first process of a container, for which the system has no such default.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may handle signals
        return

    def leave(sig, frame):
        raise SystemExit(0)

    before = {number: signal.signal(number, leave) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def bound_socket(host, port):
    """A socket that is bound, but does not listen yet: the port is ours while models load."""
    if not 0 <= port < 2**16:  # The system would listen on another.
        raise ServerError(f"A port is a number from 0 to {2**16 - 1}. Received: {port}.")
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


def _address(host, listener):
    port = listener.getsockname()[1]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def _say(line):
    print(line, flush=True)
