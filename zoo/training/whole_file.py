"""Atomic writes: a killed run leaves no half-written file or folder under its final name."""

import contextlib
import os
import pathlib
import shutil

from zoo.errors import UserError

PARTIAL = "partial."  # prefix of a file or folder that is being written


class WriteError(UserError):
    """A file cannot be written, for instance because the disk is full."""


@contextlib.contextmanager
def whole(path):
    """Writes a file or folder atomically: yields a temporary path, synced to disk and then renamed.

    Args:
        path: path of the file or of the new folder; its parent folder is created if needed.

    Raises:
        WriteError: if the disk is full or read-only. The old content of `path` is kept and what was
            written is deleted.
    """
    path = pathlib.Path(path)
    partial = path.with_name(PARTIAL + path.name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove(partial)  # of a run that was killed
        yield partial
        for written in (partial, *partial.rglob("*")):
            _sync(written)
        os.replace(partial, path)
        with contextlib.suppress(OSError):  # not every file system can sync folders
            _sync(path.parent)
    except OSError as error:
        raise WriteError(f"{path} cannot be written: {error.strerror or error}.") from error
    finally:
        _remove(partial)


def write_whole(path, write):
    """Writes a file atomically; see `whole`.

    Args:
        path: path of the file.
        write: function that writes to an open binary file.
    """
    with whole(path) as partial, open(partial, "wb") as file:
        write(file)


def remove_partial(folder):
    """Deletes temporary files and folders that a killed run left in a folder."""
    for path in pathlib.Path(folder).glob(PARTIAL + "*"):
        _remove(path)


def _remove(path):
    shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):
        path.unlink()


def _sync(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
