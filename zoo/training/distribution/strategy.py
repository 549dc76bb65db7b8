"""Selects the strategy by a flag, the devices and the environment."""

import functools
import json
import os
import signal
import threading

import tensorflow as tf

from zoo import compat
from zoo.errors import UserError

_MINUTES = 10  # how long a worker waits for the others to start
_HELP = (
    "Start the workers with `python -m zoo launch --workers 2 -- python recipes/...` or srun, or "
    "set TF_CONFIG; see docs/distribution.md."
)


def choose(name="auto", devices=None):
    """Creates the strategy to train with.

    "one" uses one device; "mirrored" all devices of this machine; "multiworker" all devices of all
    workers, which are read from the environment variable TF_CONFIG or from SLURM. "auto" is
    "multiworker" if there are several workers, "mirrored" if there are several devices, else "one".

    Call this before TensorFlow computes anything, as it configures the devices.

    Args:
        name: "auto", "one", "mirrored" or "multiworker".
        devices: number of devices of this machine to use; without GPUs, number of logical devices
            to split the CPU into. Default: all GPUs, or one CPU.

    Returns:
        `tf.distribute.Strategy`; for "one", TensorFlow's default strategy.

    Raises:
        UserError: if there are too few devices, if `name` and `devices` conflict, or if the
            environment variables for "multiworker" are missing or invalid.
    """
    if name == "one" and (devices or 1) > 1:
        raise UserError(f"--strategy one uses one device. Received: --devices {devices}.")
    if name in ("auto", "multiworker"):
        workers = enter_cluster()
        if name == "multiworker" and not workers:
            raise UserError(
                f"--strategy multiworker needs TF_CONFIG or SLURM to name the workers. {_HELP}"
            )
        if workers > 1:
            name = "multiworker"
    names = _set_up_devices(1 if name == "one" else devices)
    if name == "one" or (name == "auto" and len(names) == 1):
        return tf.distribute.get_strategy()
    if name == "multiworker":
        return _multi_worker()
    return _mirrored(tuple(names))


@functools.cache  # a second strategy would reuse the keys of the first one's collective operations
def _mirrored(names):
    return tf.distribute.MirroredStrategy(names)


# --- devices of this machine ---------------------------------------------------------------------


def _set_up_devices(count):
    """Configures the devices of this machine, by default all, and returns their names."""
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        if count is None:
            count = len(gpus)
        if count > len(gpus):
            raise UserError(f"This machine has {len(gpus)} GPU(s). Received: --devices {count}.")
        tf.config.set_visible_devices(gpus[:count], "GPU")
        return [f"GPU:{index}" for index in range(count)]
    # If the program has split the CPU itself, one of the parts is a device.
    if count is None:
        count = _num_cpus()
    if count > 1 and count != _num_cpus():
        [cpu] = tf.config.list_physical_devices("CPU")
        parts = [tf.config.LogicalDeviceConfiguration() for _ in range(count)]
        tf.config.set_logical_device_configuration(cpu, parts)
    return [f"CPU:{index}" for index in range(count)]


def _num_cpus():
    [cpu] = tf.config.list_physical_devices("CPU")
    return len(tf.config.get_logical_device_configuration(cpu) or [None])


# --- several workers -----------------------------------------------------------------------------


def enter_cluster():
    """Returns the number of workers in the environment, 0 if there are none.

    Sets TF_CONFIG, which TensorFlow reads, from the variables of SLURM.
    """
    text = os.environ.get("TF_CONFIG", "").strip()
    if text not in ("", "{}"):
        return _num_workers(text)
    if int(os.environ.get("SLURM_NTASKS", 1)) > 1 and "SLURM_PROCID" in os.environ:
        config = json.dumps(_slurm_config())
        count = _num_workers(config)
        os.environ["TF_CONFIG"] = config
        return count
    return 0


def _num_workers(text):
    """Validates TF_CONFIG and returns its number of workers."""
    try:
        config = json.loads(text)
        cluster = config["cluster"]
        task = config["task"]
        if {*cluster} - {"chief", "worker"} or len(cluster.get("chief", ())) > 1:
            reason = "jobs are not workers and at most one chief"
        elif int(task["index"]) not in range(len(cluster[task["type"]])):
            reason = "the task is not in the cluster"
        else:
            return sum(map(len, cluster.values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = repr(error)
    raise UserError(
        'TF_CONFIG must be JSON such as {"cluster": {"worker": ["host1:12345", "host2:12345"]}, '
        f'"task": {{"type": "worker", "index": 0}}}}. Error: {reason}. Received: {text}'
    )


def _slurm_config():
    """Builds TF_CONFIG from a SLURM step with SLURM's default (block) distribution of tasks.

    TensorFlow's `SlurmClusterResolver` sorts nodes by name, so that n10 comes before n2 and ranks
    are wrong, and does not work without GPUs.
    """
    names = ("SLURM_PROCID", "SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE")
    missing = [name for name in names if name not in os.environ]
    if missing:
        raise UserError(
            f"This is a SLURM job of {os.environ['SLURM_NTASKS']} tasks, but {', '.join(missing)} "
            "is not set. Start the recipe with srun, or pass --strategy one or --strategy mirrored."
        )
    rank = os.environ["SLURM_PROCID"]
    nodes = os.environ["SLURM_STEP_NODELIST"]
    tasks = os.environ["SLURM_STEP_TASKS_PER_NODE"]
    # Jobs that share a node must not share a port.
    port = 12_000 + int(os.environ.get("SLURM_JOB_ID", 0)) % 10_000
    try:
        hosts = compat.expand_slurm_nodes(nodes, tasks)
    except ValueError as error:
        raise UserError(
            f"SLURM's nodes {nodes} and tasks per node {tasks} do not match: {error}."
        ) from None
    workers = [f"{host}:{port + local}" for host, count in hosts for local in range(count)]
    return {"cluster": {"worker": workers}, "task": {"type": "worker", "index": int(rank)}}


def _multi_worker():
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    cluster = resolver.cluster_spec()
    own = cluster.task_address(resolver.task_type, resolver.task_id)
    workers = [address for job in sorted(cluster.jobs) for address in cluster.job_tasks(job)]
    print(
        f"The worker at {own} waits up to {_MINUTES} minutes for all workers: {', '.join(workers)}",
        flush=True,
    )
    handler = signal.getsignal(signal.SIGTERM)
    # TensorFlow would wait for half an hour or longer, without running Python code.
    signal.alarm(60 * _MINUTES)
    try:
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
    finally:
        signal.alarm(0)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)  # TensorFlow's handler does not end the process
    return strategy
