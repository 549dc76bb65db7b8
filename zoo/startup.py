"""Imports TensorFlow without its start-up messages."""

import os
import sys
import tempfile

# What TensorFlow 2.21 prints to stderr at every start, at any log level.
_NOISE = (
    "before absl::InitializeLog",
    "oneDNN custom operations are on",
    "This TensorFlow binary is optimized",
    "To enable the following instructions",
)
# Keras imports them for functions that this package does not use, if they are installed.
_UNNEEDED = ("matplotlib", "sklearn")
# What it prints without an NVIDIA driver; with a driver, these lines are real warnings.
_NO_GPU_NOISE = (
    "Could not find cuda drivers",
    "failed call to cuInit",
    "Cannot dlopen some GPU libraries",
    "Skipping registering GPU devices",
)


def import_tensorflow_quietly():
    """Imports TensorFlow and filters its usual start-up messages.

    TensorFlow writes to the file descriptor, not to `sys.stderr`, before logging can be configured.
    The output is captured during the import; other lines are printed afterwards, also if the import
    fails.

    Keras finds no scikit-learn and no matplotlib, which take long to import: its wrappers for
    scikit-learn and its `plot_image_gallery` raise an error. Both libraries can be imported
    afterwards.
    """
    if "tensorflow" in sys.modules:
        return
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    sys.stderr.flush()
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as captured:
        os.dup2(captured.fileno(), 2)
        hidden = [name for name in _UNNEEDED if name not in sys.modules]
        sys.modules.update(dict.fromkeys(hidden))
        try:
            import tensorflow as tf

            tf.config.list_physical_devices()
        finally:
            for name in hidden:
                del sys.modules[name]
            os.dup2(stderr, 2)
            os.close(stderr)
            captured.seek(0)
            lines = captured.read().decode(errors="replace").splitlines(keepends=True)
            sys.stderr.write("".join(line for line in lines if not _is_noise(line)))


def _is_noise(line):
    has_driver = os.path.exists("/proc/driver/nvidia")
    return any(text in line for text in (_NOISE if has_driver else _NOISE + _NO_GPU_NOISE))
