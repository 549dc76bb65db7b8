"""Which strategy to train by: from a flag, the devices and the environment."""

import signal
import threading

import tensorflow as tf
from tensorflow.python.distribute import collective_all_reduce_strategy

from zoo.errors import UserError
from zoo.training.distribution.cluster import enter_cluster

NAMES = ("auto", "one", "mirrored", "multiworker")
_MINUTES = 10  # that a worker waits for the others to start


def choose(name="auto", devices=None):
    """The strategy that a run is trained by.

    "one" is one device; "mirrored" all devices of this machine; "multiworker" all devices of all
    workers, as the environment variable TF_CONFIG or the SLURM step says. "auto" is "multiworker"
    if there are several workers, "mirrored" if there are several devices, else "one".

    Call it before TensorFlow computes anything: the devices are set up here.

    Args:
        name: one of `NAMES`.
        devices: how many devices of this machine to use; without GPUs, into how many devices the
            CPU is divided. All GPUs, or else one CPU, by default.

    Returns:
        `tf.distribute.Strategy`. The one of "one" is TensorFlow's default.

    Raises:
        UserError: if there are not so many devices, if the name and the number contradict, or if
            the environment says nothing of workers or something that makes no sense.
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
        print(f"There is one device, {names[0]}; --devices 2 divides a CPU into two.")
    return tf.distribute.MirroredStrategy(names)


def _set_up_devices(devices, most):
    """The names of the devices of this machine to train on."""
    if most and devices and devices > most:
        raise UserError(f"--strategy one is one device. Received: --devices {devices}.")
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        count = devices or most or len(gpus)
        if count > len(gpus):
            raise UserError(f"There are {len(gpus)} GPUs. Received: --devices {devices}.")
        _configure(lambda: tf.config.set_visible_devices(gpus[:count], "GPU"))
        return [f"GPU:{index}" for index in range(count)]
    if devices:
        _divide_cpu(devices)
        return [f"CPU:{index}" for index in range(devices)]
    # A program that divided its CPU itself means the parts to be used.
    return [f"CPU:{index}" for index in range(most or len(_cpu_parts()))]


def _cpu_parts():
    [cpu] = tf.config.list_physical_devices("CPU")
    return tf.config.get_logical_device_configuration(cpu) or [None]


def _divide_cpu(count):
    if count != len(_cpu_parts()):
        [cpu] = tf.config.list_physical_devices("CPU")
        parts = [tf.config.LogicalDeviceConfiguration()] * count
        _configure(lambda: tf.config.set_logical_device_configuration(cpu, parts))


def _configure(change):
    try:
        change()
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
        f"The worker at {own} waits, at most {_MINUTES} minutes, for all of {', '.join(workers)}",
        flush=True,
    )
    handler = signal.getsignal(signal.SIGTERM)
    # TensorFlow waits for half an hour and more, in which no line of Python is run.
    signal.alarm(60 * _MINUTES)
    try:
        strategy = _CpuWorkers() if has_parts else tf.distribute.MultiWorkerMirroredStrategy()
    except tf.errors.UnknownError as error:
        if "gRPC server" not in error.message:
            raise
        raise UserError(
            f"This worker cannot listen at {own}: another program may use that port. "
            f"TensorFlow says: {error.message}."
        ) from None
    finally:
        signal.alarm(0)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)  # TensorFlow has put its own, which ends nothing
    return strategy


class _CpuWorkers(tf.distribute.MultiWorkerMirroredStrategy):
    """Without GPUs TensorFlow gives each worker one device, into how many ever its CPU is divided.

    Here it gets all of them, so that many workers of many devices can be tried on a CPU.
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
