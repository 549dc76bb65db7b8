"""The devices of this machine, the precision that suits them, and versions of packages."""

import functools
import os
import pathlib
import platform
import subprocess
import timeit
from importlib.metadata import PackageNotFoundError, version

import tensorflow as tf

_PACKAGES = ("keras", "numpy", "tensorflow", "tensorflow-datasets")


def has_gpu():
    """Whether TensorFlow computes on a GPU."""
    return bool(tf.config.list_logical_devices("GPU"))


def faster_precision():
    """Returns the precision in which the devices that TensorFlow uses train faster.

    GPUs of NVIDIA have units for matrices in bfloat16 since compute capability 8.0, in float16
    since 7.0. A CPU is measured.
    """
    gpus = tf.config.get_visible_devices("GPU")
    if not gpus:
        return "mixed_bfloat16" if is_faster_in_bfloat16() else "float32"
    oldest = min(_compute_capability(gpu) for gpu in gpus)
    if oldest >= (8, 0):
        return "mixed_bfloat16"
    return "mixed_float16" if oldest >= (7, 0) else "float32"


def _compute_capability(gpu):
    """The compute capability of a GPU of NVIDIA, such as (8, 0); (0, 0) of another one."""
    return tf.config.experimental.get_device_details(gpu).get("compute_capability", (0, 0))


@functools.cache
def is_faster_in_bfloat16():
    """Whether this CPU multiplies matrices in bfloat16 in less than 0.8 of the time."""
    # Other operations take about as long in both: a small gain would not pay for the casts.
    return seconds_of_product("float32") > 1.25 * seconds_of_product("bfloat16")


def seconds_of_product(dtype):
    """Measures the time of a matrix product on this CPU, in seconds."""
    matrix = tf.ones([1024, 1024], dtype)  # for 512, oneDNN uses one thread in bfloat16
    return min(timeit.repeat(lambda: tf.matmul(matrix, matrix), number=1, repeat=8))


def device_names():
    """Returns the names of the devices that TensorFlow uses: its GPUs, or the CPU."""
    names = []
    for gpu in tf.config.get_visible_devices("GPU"):
        name = tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name)
        major, minor = _compute_capability(gpu)
        names.append(f"{name}, compute capability {major}.{minor}")
    return names or [f"CPU with {num_cores()} core(s)"]


def num_cores():
    """The number of CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def unused_gpu():
    """Returns a line about GPUs of NVIDIA that TensorFlow cannot use, or None."""
    is_hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    if is_hidden or tf.config.list_physical_devices("GPU") or not _has_nvidia_gpu():
        return None
    return (
        "This machine has an NVIDIA GPU that TensorFlow cannot use. Install its CUDA libraries: "
        f"python -m pip install 'tensorflow[and-cuda]=={tf.__version__}'. See docs/gpu.md."
    )


def _has_nvidia_gpu():
    if any(pathlib.Path("/proc/driver/nvidia/gpus").glob("*")):
        return True
    try:  # Windows Subsystem for Linux has only the command
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return listed.stdout.startswith(b"GPU")


def environment():
    """Returns the machine and the versions of packages: a dict for JSON."""
    packages = {}
    for name in _PACKAGES:
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            continue
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "devices": device_names(),
        "cpus": num_cores(),
        "packages": packages,
    }
