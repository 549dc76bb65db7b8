"""Starts the workers of a multi-worker run on this machine, to test such runs."""

import concurrent.futures
import contextlib
import glob
import json
import os
import shutil
import signal
import socket
import subprocess
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
        The exit status: 0, or the status of a worker that failed, or 128 + n if signal n killed it.
        Status 1 only counts if there is no other, as workers exit with it if another one fails.

    Raises:
        UserError: if there is no such program, or there are too few GPUs.
    """
    if workers < 1 or not command or shutil.which(command[0]) is None:
        raise UserError(
            "Pass a number of workers and a program, such as `python -m zoo launch --workers 2 -- "
            f"python recipes/...`. Received: {workers} workers, command {' '.join(command)!r}."
        )
    processes = []
    with contextlib.ExitStack() as stack:
        for number in (signal.SIGINT, signal.SIGTERM):
            before = signal.signal(number, lambda number, frame: _signal(processes, number))
            stack.callback(signal.signal, number, before)
        threads = stack.enter_context(concurrent.futures.ThreadPoolExecutor(workers))
        stack.callback(_terminate, processes)
        for index, environment in enumerate(_environments(workers)):
            process = subprocess.Popen(
                command,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                errors="replace",
                start_new_session=True,  # so Ctrl-C reaches it only once, forwarded by this process
            )
            processes.append(process)
            threads.submit(_copy_output, process, index)
        return _wait(processes)


def _environments(workers):
    """Yields the environment variables of each worker."""
    gpus = _gpus()
    gpus_each = len(gpus) // workers
    if gpus and not gpus_each:
        raise UserError(f"{workers} workers need {workers} GPUs; there are {len(gpus)}.")
    with contextlib.ExitStack() as stack:  # all are open at the same time, so the ports differ
        servers = [socket.create_server(("localhost", 0)) for _ in range(workers)]
        ports = [stack.enter_context(server).getsockname()[1] for server in servers]
    cluster = {"worker": [f"localhost:{port}" for port in ports]}
    for index in range(workers):
        environment = dict(os.environ)
        # Each worker would print the same warnings, and the failure of another many times.
        environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        environment["PYTHONUNBUFFERED"] = "1"
        task = {"type": "worker", "index": index}
        environment["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": task})
        if gpus:  # which workers cannot share
            own_gpus = gpus[index * gpus_each : (index + 1) * gpus_each]
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(own_gpus)
        yield environment


def _gpus():
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is not None:
        return [name for name in listed.split(",") if name.strip() not in ("", "-1")]
    return [str(number) for number, _ in enumerate(glob.glob("/proc/driver/nvidia/gpus/*"))]


def _copy_output(process, index):
    for line in process.stdout:
        # Read on if nobody reads our own output, as after `| head`: the worker would wait forever.
        with contextlib.suppress(OSError):
            # At once, as there are more threads.
            print(f"[{index}] {line.rstrip()}\n", end="", flush=True)


def _wait(processes):
    """Waits for all processes; returns the status of the one that failed, or 0."""
    deadline = float("inf")
    statuses = [None]
    while None in statuses and time.monotonic() < deadline:
        time.sleep(0.1)
        statuses = [process.poll() for process in processes]
        if any(statuses):
            deadline = min(deadline, time.monotonic() + GRACE)
    failures = [status for status in statuses if status]
    if not failures:
        return 0
    # Workers that end because of another exit with status 1, and often before it.
    status = min(failures, key=lambda status: status == 1)
    return 128 - status if status < 0 else status


def _signal(processes, number):
    """Sends a signal to workers and what they have started; returns those that still run."""
    running = []
    for process in processes:
        process.poll()  # a worker that has ended counts as running until its status is read
        # Its session is its own, see `launch`. On macOS, the error is PermissionError.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
            running.append(process)
    return running


def _terminate(processes, patience=5.0):
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + patience
        running = _signal(processes, number)
        while _signal(running, 0) and time.monotonic() < deadline:
            time.sleep(0.05)
