"""The folder that a training run leaves: all that a person needs to use it or go on with it."""

import csv
import json
import os
import pathlib
import platform
import shutil
import sys

from zoo.errors import UserError
from zoo.training.whole_file import PARTIAL, write_whole

CHECKPOINTS = "checkpoints"  # folder of the run's checkpoints
_GOES_ON = "goes_on"  # file in it: the same command goes on with the run without being asked to


class RunFolderError(UserError):
    """A run folder that cannot be written to or gone on with; the message says why."""


class RunFolder:
    """Opens the folder of a run, new or begun.

    Args:
        path: the folder.
        config: dict of the run's settings, as JSON can hold them.
        overwrite: whether a run that the folder already holds is deleted.
        resume: whether a run that the folder already holds is gone on with.
        writable: False for a worker that is not the chief: nothing is checked or written here.

    Raises:
        RunFolderError: if the folder holds a run (without `overwrite` or `resume`), other files,
            or, with `resume`, a run of other settings.
    """

    def __init__(self, path, config, overwrite=False, resume=False, writable=True):
        self.path = pathlib.Path(path)
        self.writable = writable
        if not writable:
            return
        if overwrite and resume:
            raise RunFolderError("--overwrite and --resume exclude each other.")
        if self.path.exists() and not self.path.is_dir():
            raise RunFolderError(f"{self.path} is a file; a run needs a folder.")
        if self.path.is_dir() and any(
            not path.name.startswith(PARTIAL) for path in self.path.iterdir()
        ):
            self._open_begun(config, overwrite, resume)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self.write_json("config.json", {"config": config, "environment": _environment()})
        except OSError as error:
            raise RunFolderError(f"{self.path} cannot be written to: {error.strerror}.") from None

    def __truediv__(self, name):
        return self.path / name

    @property
    def is_finished(self):
        """Whether the run has come to its end: the metrics are the last thing it writes."""
        return (self.path / "metrics.json").is_file()

    def write_json(self, name, values):
        """Writes a file of the folder as a whole or not at all."""
        text = json.dumps(values, indent=2) + "\n"
        write_whole(self.path / name, lambda file: file.write(text.encode()))

    def read_json(self, name):
        return json.loads((self.path / name).read_text())

    def history(self):
        """The metrics of each epoch, from ``history.csv``: {name: [value of each epoch]}."""
        with open(self.path / "history.csv", newline="") as file:
            # An epoch that was run again after an interruption counts once, as it ended.
            rows = {int(row["epoch"]): row for row in csv.DictReader(file)}
        ordered = [rows[epoch] for epoch in sorted(rows)]
        return {name: [float(row[name]) for row in ordered] for name in ordered[0]} if rows else {}

    def go_on_by_itself(self):
        """Has the same command go on with this run without ``--resume``."""
        if self.writable:
            go_on_by_itself(self.path)

    def _open_begun(self, config, overwrite, resume):
        holds_run = (self.path / "config.json").is_file()
        if not holds_run:
            raise RunFolderError(
                f"{self.path} is not empty and holds no run. Choose another --out folder."
            )
        if overwrite:
            shutil.rmtree(self.path)
        elif not resume and not (self.path / CHECKPOINTS / _GOES_ON).is_file():
            raise RunFolderError(
                f"{self.path} already holds a run. Go on with it by --resume, delete it by "
                "--overwrite, or choose another --out folder."
            )
        else:
            self._check_same(self.read_json("config.json")["config"], config)

    def _check_same(self, begun, config):
        config = json.loads(json.dumps(config))
        differing = [k for k in {**begun, **config} if begun.get(k) != config.get(k)]
        if differing:
            lines = [f"  {k}: {begun.get(k)!r}, now {config.get(k)!r}" for k in differing]
            raise RunFolderError(
                f"The run in {self.path} was begun with other settings:\n" + "\n".join(lines)
            )


def go_on_by_itself(folder):
    """Has the same command go on with the run in a folder without ``--resume``."""
    path = pathlib.Path(folder) / CHECKPOINTS / _GOES_ON
    write_whole(path, lambda file: file.write(b"The same command goes on with this run.\n"))


def end(folder):
    """Takes back `go_on_by_itself`."""
    (pathlib.Path(folder) / CHECKPOINTS / _GOES_ON).unlink(missing_ok=True)


def _environment():
    """What the run ran on, for whoever wants to repeat it."""
    from importlib.metadata import version

    packages = ("tensorflow", "keras", "tensorflow-datasets", "numpy")
    return {
        "command": " ".join([pathlib.Path(sys.executable).name, *sys.argv]),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "packages": {name: version(name) for name in packages},
    }
