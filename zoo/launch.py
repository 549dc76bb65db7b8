"""Starts the workers of a multi-worker run on this machine, to try one out."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time

from zoo.errors import UserError

GRACE = 20.0  # seconds in which workers may end by themselves when one has died


def launch(command, workers):
    """Runs `command` in as many processes, and waits for all of them.

    Each finds the others by TF_CONFIG. What they print is passed on, line by line, with the number
    of the worker before it; so are SIGINT and SIGTERM. GPUs are shared out evenly. When a worker
    ends with another status than 0 the others get `GRACE` seconds to end, as they do by themselves
    when they notice, and then are ended.

    Args:
        command: list of str.
        workers: number of processes.

    Returns:
        The exit status: 0, or that of the first worker that failed; 128 + n if signal n ended it.

    Raises:
        UserError: if there is no command, or it cannot be started, or there are too few GPUs.
    """
    if not command:
        raise UserError("Say what to run: python -m zoo launch --workers 2 -- python recipes/...")
    if workers < 1:
        raise UserError(f"--workers must be at least 1. Received: {workers}.")
    environments = _environments(workers)
    processes = []
    try:
        for environment in environments:
            processes.append(_start(command, environment))
        pumps = [_pump(process, index) for index, process in enumerate(processes)]
        with _passing_on_signals(processes):
            status = _wait(processes)
    finally:
        _end(processes)
    for pump in pumps:
        pump.join()
    return status


def _environments(workers):
    addresses = [f"localhost:{port}" for port in _free_ports(workers)]
    shares = _shares_of_gpus(workers)
    for index in range(workers):
        task = {"type": "worker", "index": index}
        config = {"cluster": {"worker": addresses}, "task": task}
        yield {
            "TF_CPP_MIN_LOG_LEVEL": "2",  # each worker would give the same warnings
            **os.environ,
            "PYTHONUNBUFFERED": "1",
            "TF_CONFIG": json.dumps(config),
            **shares[index],
        }


def _free_ports(count):
    # All are open at once, so that they differ.
    sockets = [socket.create_server(("localhost", 0)) for _ in range(count)]
    ports = [opened.getsockname()[1] for opened in sockets]
    for opened in sockets:
        opened.close()
    return ports


def _shares_of_gpus(workers):
    """What each worker's environment says of GPUs; a GPU cannot be in two workers."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        folder = pathlib.Path("/proc/driver/nvidia/gpus")
        gpus = [str(n) for n in range(len(list(folder.iterdir())))] if folder.is_dir() else []
    else:
        gpus = [name for name in listed.split(",") if name.strip() not in ("", "-1")]
    if not gpus:
        return [{}] * workers
    share = len(gpus) // workers
    if not share:
        raise UserError(
            f"{workers} workers cannot share {len(gpus)} GPUs. Start fewer, or hide the GPUs by "
            "CUDA_VISIBLE_DEVICES= to try this on the CPU."
        )
    return [
        {"CUDA_VISIBLE_DEVICES": ",".join(gpus[index * share : (index + 1) * share])}
        for index in range(workers)
    ]


def _start(command, environment):
    try:
        return subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches it through us, and once
        )
    except OSError as error:
        raise UserError(f"{command[0]} cannot be started: {error.strerror}.") from None


def _pump(process, index):
    def copy():
        for line in process.stdout:
            text = line.decode(errors="replace").rstrip("\r\n")
            sys.stdout.write(f"[{index}] {text}\n")
            sys.stdout.flush()

    thread = threading.Thread(target=copy, daemon=True)
    thread.start()
    return thread


class _passing_on_signals:
    """While it is entered, SIGINT and SIGTERM go to the processes instead of to this one."""

    def __init__(self, processes):
        self.processes = processes

    def __enter__(self):
        self.before = {
            number: signal.signal(number, lambda number, frame: self._pass_on(number))
            for number in (signal.SIGINT, signal.SIGTERM)
        }

    def __exit__(self, *error):
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _pass_on(self, number):
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(number)


def _wait(processes):
    """The status of the first process that failed, or 0."""
    status, deadline = 0, None
    while running := [process for process in processes if process.poll() is None]:
        failed = [process.returncode for process in processes if process.returncode]
        if failed and deadline is None:
            status, deadline = failed[0], time.monotonic() + GRACE
        if deadline is not None and time.monotonic() > deadline:
            _end(running)
        time.sleep(0.1)
    status = status or next((p.returncode for p in processes if p.returncode), 0)
    return 128 - status if status < 0 else status


def _end(processes, patience=5.0):
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            if process.poll() is None:
                process.send_signal(number)
        deadline = time.monotonic() + patience
        while any(p.poll() is None for p in processes) and time.monotonic() < deadline:
            time.sleep(0.05)
