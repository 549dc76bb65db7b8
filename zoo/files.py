"""Paths; atomic writes, so that a killed run leaves no half-written file; and locks."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import tempfile

from zoo.errors import CheckpointError, UserError

_MAX_RATIO = 10  # of the content of a file and its size
_MAX_SMALL = 2**28  # that any file may have
_MAX_TEXT = 2**26  # bytes of metadata or a vocabulary
PARTIAL = "partial."  # prefix of a file or folder that is being written


class WriteError(UserError):
    """A file cannot be written, for instance because the disk is full."""


def as_path(path):
    """Converts a path to a `pathlib.Path`; a `~` at its beginning is the home folder."""
    return pathlib.Path(os.path.expanduser(path))


def as_new_path(path):
    """Like `as_path`, for what is written; raises `UserError` for a URL, such as "s3://bucket"."""
    # One slash, as `pathlib.Path` makes of two; two characters, as C:/ is a drive of Windows.
    if re.match(r"[a-z0-9+.-]{2,}:/", os.fspath(path), re.IGNORECASE):
        raise UserError(f"{path} is a URL. Pass the path of a local folder.")
    return as_path(path)


def printable(path):
    """Returns a path as a str, with bytes that are not UTF-8 as in "caf\\xe9.jpg"."""
    return os.fsencode(path).decode(errors="backslashreplace")


def check_utf8(path):
    """Raises `UserError` if TensorFlow cannot take a path because it is not UTF-8."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise UserError(
            f"The path {printable(path)} is not UTF-8, which TensorFlow needs. Rename it."
        ) from None


@contextlib.contextmanager
def without_pattern(folder):
    """Context with a path of a folder, a `pathlib.Path`, from which TensorFlow can read variables.

    TensorFlow takes the path for a pattern, in which `*`, `?`, `[` and a backslash are special. If
    it has one of these, or is not UTF-8, the context has a link in a temporary folder.
    """
    if not re.search(r"[*?\[\\\udc80-\udcff]", folder.as_posix()):
        yield folder
        return
    with tempfile.TemporaryDirectory() as temporary:
        link = pathlib.Path(temporary) / "link"
        link.symlink_to(folder.resolve(), target_is_directory=True)
        yield link


@contextlib.contextmanager
def atomic(path):
    """Context with a temporary path, which is then synced to disk and renamed to `path`.

    Args:
        path: path of the file or of the new folder; its parent folder is created if needed.

    Raises:
        WriteError: if the disk is full or read-only, or another file cannot be used in the context.
            The old content of `path` is kept, and what was written is deleted.
    """
    path = as_path(path)
    partial = path.with_name(PARTIAL + path.name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove(partial)  # left by a run that was killed
        yield partial
        for part in (partial, *partial.rglob("*")):
            _sync(part)
        os.replace(partial, path)
        with contextlib.suppress(OSError):  # not every file system can sync folders
            _sync(path.parent)
    except OSError as error:
        reason = error.strerror or error
        failed = as_path(error.filename or partial)
        is_own = failed.is_relative_to(partial) or path.is_relative_to(failed)
        if not is_own:
            raise WriteError(f"{failed}: {reason}.") from error
        raise WriteError(f"{path} cannot be written: {reason}.") from error
    finally:
        _remove(partial)


def max_content(path):
    """Returns how many bytes or values a file, a `pathlib.Path`, may have when it is unpacked."""
    return _MAX_RATIO * path.stat().st_size + _MAX_SMALL


def check_unpacked(path, size):
    """Raises `CheckpointError` if a file has far more content than its own size.

    Weights are hardly compressible, while a file of 4 MB could be unpacked to gigabytes.

    Args:
        path: `pathlib.Path` of the file.
        size: number of bytes that it is unpacked to, or of the values in it.
    """
    most = max_content(path)
    if size > most:
        raise CheckpointError(
            f"{path} would be unpacked to {size:,} bytes or values, more than the {most:,} that a "
            "file of its size may have. If you trust it, save it without compression."
        )


def check_archive(path, archive):
    """Raises `CheckpointError` if a `zipfile.ZipFile` fails `check_unpacked`."""
    check_unpacked(path, sum(entry.file_size for entry in archive.infolist()))


def read_text(path, errors="strict"):
    """Reads a UTF-8 file, a `pathlib.Path`; raises `CheckpointError` if it has more than 64 MiB."""
    size = path.stat().st_size
    if size > _MAX_TEXT:
        raise CheckpointError(
            f"{path} has {size:,} bytes, more than the {_MAX_TEXT:,} it may have."
        )
    return path.read_text(encoding="utf-8-sig", errors=errors)


def read_json(path, default=None):
    """Reads a JSON object as a dict; without such a file, returns `default` unless it is None."""
    if default is not None and not path.is_file():
        return default
    try:
        content = json.loads(read_text(path))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CheckpointError(f"{path} is not JSON: {error}.") from None
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} does not contain a JSON object.")
    return content


def write_text(path, text):
    """Writes a UTF-8 file atomically; see `atomic`."""
    with atomic(path) as partial:
        partial.write_bytes(text.encode())


@contextlib.contextmanager
def locked(path):
    """Context that only one process at a time is in; others with the same `pathlib.Path` wait.

    They print what they wait for.

    Raises:
        WriteError: if the folder of the path cannot be written to.
    """
    try:
        import fcntl
    except ImportError:  # on Windows
        yield
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = open(path.with_name(f"{path.name}.lock"), "w")  # noqa: SIM115
    except OSError as error:
        raise WriteError(f"{path.parent} cannot be written to: {error.strerror}.") from None
    with file:
        if not try_to_lock(file):
            print(f"Waiting for another process, which is writing {path}.", flush=True)
            with contextlib.suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


def try_to_lock(file):
    """Locks an open file; returns False if another process has locked it. Not for Windows.

    Some network file systems have no locks: then nothing is locked, and the result is True.
    """
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # of different systems
        return False
    except OSError:
        pass
    return True


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


def stored_config(folder):
    """Reads the settings in ``config.json``; None if a run has not written it."""
    try:
        content = read_json(folder / "config.json")
        if "environment" not in content:  # the file of a published model, for instance
            return None
        return dict(content["config"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
