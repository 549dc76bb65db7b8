"""Atomic file writes: a killed run leaves no half-written file under its final name."""

import contextlib
import os
import pathlib

from zoo.errors import UserError

PARTIAL = "partial."  # prefix of a file that is being written


class WriteError(UserError):
    """A file cannot be written, for instance because the disk is full."""


def write_whole(path, write):
    """Writes a file atomically: to a temporary file, synced to disk, then renamed to `path`.

    Args:
        path: path of the file; its folder is created if needed.
        write: function that writes to an open binary file.

    Raises:
        WriteError: if the disk is full or read-only. The old content of `path` is kept and the
            temporary file is deleted.
    """
    path = pathlib.Path(path)
    partial = path.with_name(PARTIAL + path.name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(partial, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
        _sync_folder(path.parent)
    except BaseException as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        reason = _os_error(error)
        if reason is None:
            raise
        raise WriteError(f"{path} cannot be written: {reason.strerror or reason}.") from error


def remove_partial(folder):
    """Deletes temporary files that a killed run left in a folder."""
    for path in pathlib.Path(folder).glob(PARTIAL + "*"):
        path.unlink(missing_ok=True)


def _os_error(error):
    """The OSError in the chain of an exception, or None."""
    # An archive that cannot be written cannot be closed either: that second error hides the first.
    while error is not None and not isinstance(error, OSError):
        error = error.__context__
    return error


def _sync_folder(folder):
    """Syncs a folder, and with it the new file name, where the file system supports it."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
