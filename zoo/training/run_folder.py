"""The run directory, with everything needed to use a trained model or to resume its training."""

import json
import math
import os
import pathlib
import shlex
import shutil
import sys
import weakref
import zlib

from keras import ops

from zoo.data.text_rows import read_lines
from zoo.errors import UserError
from zoo.files import PARTIAL, check_utf8, stored_config, try_to_lock, write_text
from zoo.hardware import environment
from zoo.text.saved_tokenizers import checksum

FINISHED = "metrics.json"  # the last file that a run writes


class RunFolder:
    """Creates the directory of a new run, or opens the directory of an existing one.

    Args:
        path: path of the directory.
        config: dict of the run's settings that can be stored as JSON.
        overwrite: whether to delete an existing run.
        resume: whether the run may be finished; one that is not is resumed anyway.
        writable: False for a worker that is not the chief: then nothing is checked or written.
        may_change: names of settings that may differ when the run is resumed, until it is finished.

    Call `close` when the run ends: until then, other processes cannot use the directory.

    Raises:
        UserError: if another process uses the directory, if it contains a finished run and
            neither `overwrite` nor `resume` is True, if it contains other files, or if the run to
            resume has different settings.
    """

    def __init__(self, path, config, overwrite=False, resume=False, writable=True, may_change=()):
        self.path = pathlib.Path(path)
        self.close = lambda: None
        if not writable:
            return
        check_folder(self.path, overwrite, resume)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock()
            if overwrite:
                self._delete_content()
            stored = stored_config(self.path)  # of the run to resume
            if stored is not None:
                check_same_settings(self.path, stored, config, may_change)
            command = shlex.join([pathlib.Path(sys.executable).name, *sys.argv])
            about = {"command": command, **environment()}
            self.write_json("config.json", {"config": config, "environment": about})
        except UserError:
            self.close()
            raise
        except OSError as error:
            self.close()
            raise UserError(f"{self.path} cannot be written to: {error.strerror}.") from None

    def _delete_content(self):
        # The config last: without it, a folder that is deleted in part would not be a run's.
        for path in sorted(self.path.iterdir(), key=lambda path: path.name == "config.json"):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()

    def _lock(self):
        """Keeps other processes from using the directory until `close`."""
        try:
            import fcntl  # noqa: F401  `try_to_lock` uses it
        except ImportError:  # on Windows
            return
        folder = os.open(self.path, os.O_RDONLY)
        self.close = weakref.finalize(self, os.close, folder)
        if not try_to_lock(folder):
            raise UserError(
                f"Another process is training in {self.path}. Wait until it ends, or choose "
                "another --out directory."
            )

    def __truediv__(self, name):
        return self.path / name

    @property
    def is_finished(self):
        """Whether the run is finished."""
        return (self.path / FINISHED).is_file()

    def write_json(self, name, values):
        """Writes a dict as a JSON file, atomically; values that are NaN or infinite become null."""
        plain = {}
        for key, value in values.items():
            is_finite = not isinstance(value, float) or math.isfinite(value)
            plain[key] = value if is_finite else None
        write_text(self.path / name, json.dumps(plain, indent=2) + "\n")


def check_same_settings(path, stored, config, may_change=()):
    """Raises `UserError` if settings differ from the stored ones of the run in a directory.

    Args:
        path: `pathlib.Path` of the run directory.
        stored: see `zoo.files.stored_config`.
        config, may_change: see `RunFolder`.
    """
    config = json.loads(json.dumps(config))  # as it is stored: a tuple is a list
    is_finished = (path / FINISHED).is_file()
    if is_finished:
        may_change = ()
    lines = [
        f"  {name}: {stored.get(name)!r}, now {config.get(name)!r}\n"
        for name in {**stored, **config}
        if name not in may_change and stored.get(name) != config.get(name)
    ]
    if not lines:
        return
    message = (
        f"The run in {path} was started with other settings:\n{''.join(lines)}"
        "Use these settings, choose another --out directory, or pass --overwrite to delete the run."
    )
    if is_finished:
        message += (
            " The run is finished. To continue training a classifier or a translator, use "
            f"recipes/vit_finetune.py or recipes/translate.py --weights {path} --out OTHER."
        )
    raise UserError(message)


def check_folder(path, overwrite, resume):
    """Raises `UserError` unless a run with these flags may use a directory."""
    if overwrite and resume:
        raise UserError("Pass either --overwrite or --resume, not both.")
    check_utf8(path)
    if path.exists() and not path.is_dir():
        raise UserError(f"{path} is a file. --out must be a directory.")
    try:
        files = [*path.iterdir()] if path.exists() else []
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None
    if all(file.name.startswith(PARTIAL) for file in files):  # of a run killed at its beginning
        return
    if stored_config(path) is None:
        raise UserError(f"{path} is not empty and contains no run. Choose another --out directory.")
    if (path / FINISHED).is_file() and not (overwrite or resume):
        raise UserError(
            f"{path} contains a finished run. Pass --overwrite to delete it, or choose another "
            "--out directory."
        )


def fingerprint(*values):
    """Returns a checksum of values that JSON can store, and of the architectures of models.

    It must be the same when the run is resumed. Weights do not count: they are in the checkpoints.
    """
    text = json.dumps(values, sort_keys=True, default=_architecture)
    return f"{zlib.crc32(text.encode()):08x}"


def checksum_of_lines(path):
    """Returns a checksum of the lines of a text file, by which a run recognizes it.

    It is their `fingerprint`, computed line by line, as the file may be large.
    """
    checksum = zlib.crc32(b"[")
    separator = ""
    for line in read_lines(path):
        checksum = zlib.crc32(f"{separator}{json.dumps(line)}".encode(), checksum)
        separator = ", "
    return f"{zlib.crc32(b']', checksum):08x}"


def task_fingerprint(task):
    """Returns a checksum of what a `zoo.tasks.task.Task` computes, whatever its precision."""
    tokenizers = [getattr(task, attribute) for attribute in task.tokenizer_names]
    weights = [zlib.crc32(ops.convert_to_numpy(weight).tobytes()) for weight in task.model.weights]
    return fingerprint(task.model, task.description(), checksum(*tokenizers), weights)


def _architecture(model):
    """The config of a model without names, which do not change what it computes.

    Keras numbers the layers of a process, and the name of a dtype policy is its precision.
    """

    def without_name(config):
        return {key: value for key, value in config.items() if key != "name"}

    return json.loads(model.to_json(), object_hook=without_name)
