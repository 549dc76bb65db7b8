"""Imports TensorFlow without its start-up messages."""

import io
import os
import pathlib
import sys
import tempfile

# Keras imports them for functions that this package does not use, if they are installed.
_UNNEEDED = ("matplotlib", "sklearn")


def escape_what_cannot_be_printed():
    """Lets `print` escape characters that the encoding of a stream does not have."""
    _replace_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def discard_output():
    """Lets `print` print nothing: the reader is gone, as in ``COMMAND | head``."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _replace_closed_streams():
    """Replaces streams that are closed, as by ``>&-``, by empty ones."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):  # descriptors 0, 1, 2
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115


def import_tensorflow_quietly():
    """Imports TensorFlow without the messages that it prints at every start.

    It writes them to the file descriptor of `sys.stderr` before logging can be configured. They
    are printed after all if the import fails, or if there is an NVIDIA driver: they may say why no
    GPU is used.

    While Keras is imported, scikit-learn and matplotlib, which take long to import, cannot be
    found. Its wrappers for scikit-learn and its `plot_image_gallery` then raise an error. Both
    libraries can be imported afterwards.
    """
    if "tensorflow" in sys.modules:
        return
    _replace_closed_streams()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    sys.stderr.flush()
    stderr = os.dup(2)
    shows = True
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
