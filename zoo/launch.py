"""Starts the workers of a multi-worker run on this machine, to test such runs."""

import json
import math
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time

from zoo.errors import UserError

GRACE = 20.0  # seconds the other workers get to exit after one has failed


def launch(command, workers):
    """Runs `command`, a list of str, in `workers` processes and waits for all of them.

    TF_CONFIG tells each worker the addresses of all workers. Their output is printed line by line,
    prefixed with the worker's index. SIGINT and SIGTERM are forwarded to the workers. GPUs are
    divided evenly. If a worker exits with a nonzero status, the others get `GRACE` seconds to exit
    and are then terminated. Processes that a worker leaves behind are terminated at the end.

    Returns:
        The exit status: 0, or that of a worker that failed, or 128 + n if signal n killed it.
        Status 1 only counts if there is no other, as workers exit with it if another one fails.

    Raises:
        UserError: if the command is empty or cannot be started, or there are too few GPUs.
    """
    if not command:
        raise UserError(
            "No command to run. Example: python -m zoo launch --workers 2 -- python recipes/..."
        )
    if workers < 1:
        raise UserError(f"--workers must be at least 1. Received: {workers}.")
    processes, threads = [], []

    def forward(number, frame):
        for process in processes:
            _signal(process, number)

    environments = _environments(workers)
    before = {number: signal.signal(number, forward) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        for index, environment in enumerate(environments):
            processes.append(_start(command, environment))
            threads.append(threading.Thread(target=_copy_output, args=(processes[-1], index)))
            threads[-1].start()
        return _wait(processes)
    finally:
        _terminate(processes)
        for thread in threads:
            thread.join()
        for number, handler in before.items():
            signal.signal(number, handler)


def _environments(workers):
    """The environment variables of each worker."""
    # All sockets are open at the same time, so the ports differ.
    sockets = [socket.create_server(("localhost", 0)) for _ in range(workers)]
    addresses = [f"localhost:{opened.getsockname()[1]}" for opened in sockets]
    for opened in sockets:
        opened.close()
    gpus = _gpus()
    share = len(gpus) // workers
    if gpus and not share:
        raise UserError(
            f"{workers} workers need {workers} GPUs; there are {len(gpus)}. Start fewer workers, "
            "or set CUDA_VISIBLE_DEVICES= to use the CPU."
        )
    # Each worker would print the same warnings, and the failure of another many times.
    shared = {"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ, "PYTHONUNBUFFERED": "1"}
    environments = []
    for index in range(workers):
        config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        own = {"TF_CONFIG": json.dumps(config)}
        if gpus:  # which workers cannot share
            own["CUDA_VISIBLE_DEVICES"] = ",".join(gpus[index * share :][:share])
        environments.append({**shared, **own})
    return environments


def _gpus():
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is not None:
        return [name for name in listed.split(",") if name.strip() not in ("", "-1")]
    folder = pathlib.Path("/proc/driver/nvidia/gpus")
    return [str(n) for n in range(len(list(folder.iterdir())))] if folder.is_dir() else []


def _start(command, environment):
    try:
        return subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so Ctrl-C reaches it only once, forwarded by this process
        )
    except OSError as error:
        raise UserError(f"{command[0]} cannot be started: {error.strerror}.") from None


def _copy_output(process, index):
    for line in process.stdout:
        text = line.decode(errors="replace").rstrip("\r\n")
        sys.stdout.write(f"[{index}] {text}\n")  # at once, unlike `print`
        sys.stdout.flush()


def _wait(processes):
    """Waits for all processes; returns the status of the one that failed, or 0."""
    status, deadline, running = 0, math.inf, processes
    while running and time.monotonic() < deadline:
        time.sleep(0.1)
        running = [process for process in processes if process.poll() is None]
        failed = [process.returncode for process in processes if process.returncode]
        # Workers that end because of another exit with status 1, and often before it.
        status = next((number for number in failed if number != 1), 1 if failed else 0)
        if failed:
            deadline = min(deadline, time.monotonic() + GRACE)
    return 128 - status if status < 0 else status


def _signal(process, number):
    """Sends a signal to a worker and what it has started; returns whether any of them runs."""
    process.poll()  # a worker that has ended counts as running until its status is read
    try:
        os.killpg(process.pid, number)  # its session is its own, see `_start`
    except (ProcessLookupError, PermissionError):  # the latter on macOS
        return False
    return True


def _terminate(processes, patience=5.0):
    for number in (signal.SIGTERM, signal.SIGKILL):
        running = [process for process in processes if _signal(process, number)]
        deadline = time.monotonic() + patience
        while any(_signal(process, 0) for process in running) and time.monotonic() < deadline:
            time.sleep(0.05)
