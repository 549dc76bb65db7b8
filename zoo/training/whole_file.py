"""Files that are there as a whole or not at all, whenever a run is killed."""

import contextlib
import os
import pathlib

from zoo.errors import UserError

PARTIAL = "partial."  # begins the name of a file that is being written


class WriteError(UserError):
    """A file that cannot be written, because the disk is full for instance."""


def write_whole(path, write):
    """Has `write` fill a file beside `path` that then takes its place, and is on the disk by then.

    Args:
        path: of the file; its folder is made if it is missing.
        write: function of an open binary file.

    Raises:
        WriteError: if the disk is full or cannot be written to. What `path` held is still there,
            and nothing is left of what was begun.
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
    """Deletes what a killed run left half written in a folder."""
    for path in pathlib.Path(folder).glob(PARTIAL + "*"):
        path.unlink(missing_ok=True)


def _os_error(error):
    """The error of the system behind an error, if there is one."""
    # An archive that cannot be written cannot be closed either, of which Python complains last.
    while error is not None and not isinstance(error, OSError):
        error = error.__context__
    return error


def _sync_folder(folder):
    """Has the new name of a file reach the disk, where the file system can do that."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
