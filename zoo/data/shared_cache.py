"""A cache of folders that take long to make, shared by all runs."""

import hashlib
import json
import os
import pathlib
import shutil
import zlib

from zoo.files import atomic, locked

_CONTENT = "content.json"  # the settings and what each file should be; written last
_CHECKED = 2**20  # bytes at the beginning of each file
_DIGITS = 10  # of a name: an integer that a float64 holds, as `distribution.from_chief` needs


def cached_folder(root, settings, write):
    """Finds the folder that was made for some settings; makes it if it is missing or damaged.

    The folder is written under another name and then renamed, so one that is incomplete is never
    used. A process that finds another one making the folder waits for it.

    Args:
        root: `pathlib.Path` of the parent folder; created if needed.
        settings: all that the content depends on, as JSON can hold it.
        write: function that writes the files into a new folder.

    Returns:
        (`pathlib.Path` of the folder, whether it was there); its name is a hexadecimal number.

    Raises:
        WriteError: if the folder cannot be written.
    """
    settings = json.loads(json.dumps(settings))
    text = json.dumps(settings, sort_keys=True)
    path = pathlib.Path(root) / hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
    if _is_complete(path, settings):
        return path, True
    with locked(path):
        if _is_complete(path, settings):
            return path, True
        with atomic(path) as partial:
            partial.mkdir()
            write(partial)
            content = {"settings": settings, "files": _files(partial)}
            (partial / _CONTENT).write_text(json.dumps(content))
            shutil.rmtree(path, ignore_errors=True)
    return path, False


def folder_of_number(root, number):
    """The folder in `root` whose name is a number."""
    return pathlib.Path(root) / f"{number:0{_DIGITS}x}"


def file_identity(path):
    """What differs if a file is another one or has changed: path, size and modification time.

    Without the file, it is [path]; reading it says what is wrong.
    """
    path = os.path.realpath(path)
    try:
        found = os.stat(path)
    except OSError:
        return [path]
    return [path, found.st_size, found.st_mtime_ns]


def _is_complete(path, settings):
    try:
        content = json.loads((path / _CONTENT).read_text())
        return content == {"settings": settings, "files": _files(path)}
    except (OSError, ValueError):
        return False


def _files(folder):
    """{name: [size, checksum of the beginning]}, as reading large files whole takes long."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_file() and path.name != _CONTENT:
            with open(path, "rb") as file:
                checksum = zlib.crc32(file.read(_CHECKED))
            found[str(path.relative_to(folder))] = [path.stat().st_size, checksum]
    return found
