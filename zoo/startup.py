"""TensorFlow without the lines it prints when it starts."""

import os
import sys
import tempfile

# What TensorFlow 2.21 says on stderr at every start, whatever its log level.
_NOISE = (
    "before absl::InitializeLog",
    "oneDNN custom operations are on",
    "This TensorFlow binary is optimized",
    "To enable the following instructions",
)
# The same on a machine without an NVIDIA driver; on one that has it, these lines are news.
_NO_GPU_NOISE = (
    "Could not find cuda drivers",
    "failed call to cuInit",
    "Cannot dlopen some GPU libraries",
    "Skipping registering GPU devices",
)


def import_tensorflow_quietly():
    """Imports TensorFlow, holding back its usual start-up lines and nothing else.

    TensorFlow writes to the file descriptor, not to `sys.stderr`, before logging can be set up.
    What it writes is kept aside during the import; lines that are not the usual ones are shown
    after it, also if the import fails.
    """
    if "tensorflow" in sys.modules:
        return
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    sys.stderr.flush()
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as aside:
        os.dup2(aside.fileno(), 2)
        try:
            import tensorflow as tf

            tf.config.list_physical_devices()
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
            aside.seek(0)
            lines = aside.read().decode(errors="replace").splitlines(keepends=True)
            sys.stderr.write("".join(line for line in lines if not _is_noise(line)))


def _is_noise(line):
    has_driver = os.path.exists("/proc/driver/nvidia")
    return any(words in line for words in (_NOISE if has_driver else _NOISE + _NO_GPU_NOISE))
