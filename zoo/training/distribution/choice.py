"""Selects the strategy from a flag, the devices and the environment."""

import functools
import signal
import threading

import tensorflow as tf
from tensorflow.python.distribute import collective_all_reduce_strategy

from zoo.errors import UserError
from zoo.training.distribution.cluster import enter_cluster

NAMES = ("auto", "one", "mirrored", "multiworker")
_MINUTES = 10  # how long a worker waits for the others to start


def choose(name="auto", devices=None):
    """Creates the strategy to train with.

    "one" uses one device; "mirrored" all devices of this machine; "multiworker" all devices of all
    workers, which are read from the environment variable TF_CONFIG or from SLURM. "auto" is
    "multiworker" if there are several workers, "mirrored" if there are several devices, else "one".

    Call this before TensorFlow computes anything, as it configures the devices.

    Args:
        name: one of `NAMES`.
        devices: number of devices of this machine to use; without GPUs, number of logical devices
            to split the CPU into. Default: all GPUs, or one CPU.

    Returns:
        `tf.distribute.Strategy`; for "one", TensorFlow's default strategy.

    Raises:
        UserError: if there are too few devices, if `name` and `devices` conflict, or if the
            environment variables for "multiworker" are missing or invalid.
    """
    if name not in NAMES:
        raise UserError(f"--strategy must be one of {', '.join(NAMES)}. Received: {name}.")
    if devices is not None and devices < 1:
        raise UserError(f"--devices must be at least 1. Received: {devices}.")
    workers = enter_cluster(name)
    if name == "auto" and workers > 1:
        name = "multiworker"
    names = _set_up_devices(devices, 1 if name == "one" else None)
    if name == "one" or (name == "auto" and len(names) == 1):
        return tf.distribute.get_strategy()
    if name == "multiworker":
        return _multi_worker()
    if len(names) == 1:
        advice = "" if "GPU" in names[0] else " --devices 2 splits the CPU into two devices."
        print(f"Training on one device, {names[0]}.{advice}")
    return _mirrored(tuple(names))


@functools.cache  # a second strategy would reuse the first one's keys of collective operations
def _mirrored(names):
    return tf.distribute.MirroredStrategy(names)


def _set_up_devices(devices, limit):
    """Configures the devices of this machine and returns their names."""
    if limit and devices and devices > limit:
        raise UserError(f"--strategy one uses one device. Received: --devices {devices}.")
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        count = devices or limit or len(gpus)
        if count > len(gpus):
            raise UserError(f"This machine has {len(gpus)} GPU(s). Received: --devices {devices}.")
        _configure(lambda: tf.config.set_visible_devices(gpus[:count], "GPU"))
        return [f"GPU:{index}" for index in range(count)]
    if devices:
        _split_cpu(devices)
        return [f"CPU:{index}" for index in range(devices)]
    # If the program has split the CPU itself, all parts are used.
    return [f"CPU:{index}" for index in range(limit or len(_cpu_parts()))]


def _cpu_parts():
    [cpu] = tf.config.list_physical_devices("CPU")
    return tf.config.get_logical_device_configuration(cpu) or [None]


def _split_cpu(count):
    if count != len(_cpu_parts()):
        [cpu] = tf.config.list_physical_devices("CPU")
        parts = [tf.config.LogicalDeviceConfiguration()] * count
        _configure(lambda: tf.config.set_logical_device_configuration(cpu, parts))


def _configure(configure):
    try:
        configure()
    except RuntimeError as error:
        raise RuntimeError(
            "The devices must be chosen before TensorFlow computes anything in this process."
        ) from error


def _multi_worker():
    has_parts = len(_cpu_parts()) > 1 and not tf.config.list_physical_devices("GPU")
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    cluster = resolver.cluster_spec()
    own = cluster.task_address(resolver.task_type, resolver.task_id)
    workers = [address for job in sorted(cluster.jobs) for address in cluster.job_tasks(job)]
    print(
        f"The worker at {own} waits up to {_MINUTES} minutes for all workers: {', '.join(workers)}",
        flush=True,
    )
    handler = signal.getsignal(signal.SIGTERM)
    # TensorFlow waits for half an hour or longer, and runs no Python code meanwhile.
    signal.alarm(60 * _MINUTES)
    try:
        strategy = _CpuWorkers() if has_parts else tf.distribute.MultiWorkerMirroredStrategy()
    except tf.errors.UnknownError as error:
        if "gRPC server" not in error.message:
            raise
        raise UserError(
            f"This worker cannot listen at {own}: another program may use that port. "
            f"TensorFlow's error: {error.message}."
        ) from None
    finally:
        signal.alarm(0)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)  # TensorFlow's handler does not end the process
    return strategy


class _CpuWorkers(tf.distribute.MultiWorkerMirroredStrategy):
    """MultiWorkerMirroredStrategy that uses all logical CPU devices of each worker.

    TensorFlow uses only one of them. This makes it possible to test several workers with several
    devices each on a CPU.
    """

    def __init__(self):
        class Extended(collective_all_reduce_strategy.CollectiveAllReduceExtended):
            def _initialize_local_devices(self, cluster_resolver, worker_device):
                count = len(_cpu_parts())
                return tuple(f"{worker_device}/device:CPU:{i}" for i in range(count)), "CPU"

        extended = Extended(
            self,
            cluster_resolver=tf.distribute.cluster_resolver.TFConfigClusterResolver(),
            communication_options=tf.distribute.experimental.CommunicationOptions(),
        )
        tf.distribute.Strategy.__init__(self, extended)
