"""Imports TensorFlow without its start-up messages."""

import os
import pathlib
import sys
import tempfile

# Keras imports them for functions that this package does not use, if they are installed.
_UNNEEDED = ("matplotlib", "sklearn")


def import_tensorflow_quietly():
    """Imports TensorFlow without what it prints at every start, at any log level.

    It writes to the file descriptor, not to `sys.stderr`, before logging can be configured. What it
    wrote is printed if the import fails; and with an NVIDIA driver, as it may tell why no GPU is
    used.

    Keras finds no scikit-learn and no matplotlib, which take long to import: its wrappers for
    scikit-learn and its `plot_image_gallery` raise an error. Both libraries can be imported
    afterwards.
    """
    if "tensorflow" in sys.modules:
        return
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    sys.stderr.flush()
    stderr, shows = os.dup(2), True
    hidden = [name for name in _UNNEEDED if name not in sys.modules]
    with tempfile.TemporaryFile() as captured:
        os.dup2(captured.fileno(), 2)
        sys.modules.update(dict.fromkeys(hidden))
        try:
            import tensorflow as tf

            tf.config.list_physical_devices()
            shows = pathlib.Path("/proc/driver/nvidia").exists()
        finally:
            for name in hidden:
                del sys.modules[name]
            os.dup2(stderr, 2)
            os.close(stderr)
            captured.seek(0)
            if shows:
                sys.stderr.write(captured.read().decode(errors="replace"))
