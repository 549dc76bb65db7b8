"""The folder that a training run leaves: all that a person needs to use it or go on with it."""

import csv
import json
import os
import pathlib
import platform
import shutil
import sys

from zoo.errors import UserError


class RunFolderError(UserError):
    """A run folder that cannot be written to or gone on with; the message says why."""


class RunFolder:
    """Opens the folder of a run, new or begun.

    Args:
        path: the folder.
        config: dict of the run's settings, as JSON can hold them.
        overwrite: whether a run that the folder already holds is deleted.
        resume: whether a run that the folder already holds is gone on with.

    Raises:
        RunFolderError: if the folder holds a run (without `overwrite` or `resume`), other files,
            or, with `resume`, a run of other settings.
    """

    def __init__(self, path, config, overwrite=False, resume=False):
        self.path = pathlib.Path(path)
        if overwrite and resume:
            raise RunFolderError("--overwrite and --resume exclude each other.")
        if self.path.exists() and not self.path.is_dir():
            raise RunFolderError(f"{self.path} is a file; a run needs a folder.")
        if self.path.is_dir() and any(self.path.iterdir()):
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
        partial = self.path / f"{name}.partial"
        partial.write_text(json.dumps(values, indent=2) + "\n")
        os.replace(partial, self.path / name)

    def read_json(self, name):
        return json.loads((self.path / name).read_text())

    def history(self):
        """The metrics of each epoch, from ``history.csv``: {name: [value of each epoch]}."""
        with open(self.path / "history.csv", newline="") as file:
            # An epoch that was run again after an interruption counts once, as it ended.
            rows = {int(row["epoch"]): row for row in csv.DictReader(file)}
        ordered = [rows[epoch] for epoch in sorted(rows)]
        return {name: [float(row[name]) for row in ordered] for name in ordered[0]} if rows else {}

    def _open_begun(self, config, overwrite, resume):
        holds_run = (self.path / "config.json").is_file()
        if not holds_run:
            raise RunFolderError(
                f"{self.path} is not empty and holds no run. Choose another --out folder."
            )
        if overwrite:
            shutil.rmtree(self.path)
        elif not resume:
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
