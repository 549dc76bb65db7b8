"""Checkpoints as files: one ``.npz`` each, in which damage shows."""

import json
import pathlib

import numpy as np

from zoo.errors import UserError
from zoo.training import model_state
from zoo.training.whole_file import write_whole

BEST = "best.npz"
UNUSABLE = ".unusable"  # added to the name of a file that was found damaged or foreign
_FORMAT = 1  # of these files
_ABOUT = "about"


class CheckpointError(UserError):
    """Checkpoints of which none can be used; the message says why and what to do."""


class Damaged(Exception):
    """A checkpoint that is cut off or has other bytes than were written."""


def step_path(folder, step):
    """Where the checkpoint of a step lies."""
    return pathlib.Path(folder) / f"step_{step:08d}.npz"


def step_paths(folder):
    """The checkpoints of steps in a folder, the oldest first."""
    return sorted(pathlib.Path(folder).glob("step_*.npz"), key=lambda p: (len(p.name), p.name))


def write(path, about, state):
    """Writes a checkpoint as a whole or not at all.

    Args:
        path: of the file.
        about: dict of what else is to be known, as JSON can hold it.
        state: {name: array}.

    Raises:
        zoo.training.whole_file.WriteError: if it cannot be written; `path` is as it was.
    """
    # The list of an archive's members has no check sum: one that is lost there would not show.
    about = json.dumps({"format": _FORMAT, "names": list(state), **about})
    write_whole(path, lambda file: np.savez(file, **{_ABOUT: np.array(about)}, **state))


def read(path):
    """Reads a checkpoint: (about, state).

    Raises:
        Damaged: if it is not as it was written. The members of the archive have check sums.
    """
    try:
        with np.load(path) as file:
            state = {name: file[name] for name in file.files}
        about = json.loads(str(state.pop(_ABOUT)))
        if about["format"] != _FORMAT:
            raise ValueError(f"its format is {about['format']}, not {_FORMAT}")
        if about.pop("names") != list(state):
            raise ValueError("some of its arrays are missing")
        return about, state
    # Wherever a damaged archive is wrong, another part of its reader fails.
    except Exception as error:
        raise Damaged(f"{type(error).__name__}: {error}") from None


def read_about(path):
    """The dict alone, without reading the state.

    Raises:
        FileNotFoundError: if there is none.
        Damaged: as for `read`, as far as it was read.
    """
    try:
        with np.load(path) as file:
            return json.loads(str(file[_ABOUT]))
    except FileNotFoundError:
        raise
    except Exception as error:
        raise Damaged(f"{type(error).__name__}: {error}") from None


def newest_usable(folder, fault):
    """Searches for the newest checkpoint that is whole and of the run.

    Args:
        folder: of the checkpoints.
        fault: function of (about, state) that returns in words what is wrong with it, or None.

    Returns:
        (about, state, path), or None if there is none; and a list of (path, message) of those that
        cannot be used. If they kept their names, later checkpoints would count as older.

    Raises:
        CheckpointError: if there is none, and one is whole but of another run. Damaged ones alone
            are no error: the run begins again.
    """
    folder, unusable, foreign = pathlib.Path(folder), [], None
    best = [folder / BEST] if (folder / BEST).exists() else []
    for path in [*reversed(step_paths(folder)), *best]:
        try:
            about, state = read(path)
            reason = fault(about, state)
            if reason is None:
                return (about, state, path), unusable
            message = f"{path} is of another run and cannot be used: {reason}."
            foreign = foreign or message
        except Damaged as error:
            message = f"{path} is damaged and cannot be used: {error}."
        unusable.append((path, message))
    if foreign:
        raise CheckpointError(
            f"None of the checkpoints in {folder} is of this run. {foreign} "
            "Restore the settings they were written with, or start anew by --overwrite."
        )
    return None, unusable


def load_weights(model, path):
    """Gives a model the weights of a checkpoint, the averaged ones if it holds them.

    Args:
        model: of the kind that was trained, such as ``zoo.load("runs/vit_digits").model``.
        path: of the checkpoint, such as ``runs/vit_digits/checkpoints/best.npz``.

    Raises:
        CheckpointError: if it is damaged or of another model.
    """
    try:
        model_state.set_weights(model, read(path)[1])
    except (Damaged, ValueError) as error:
        raise CheckpointError(f"{path} cannot be used: {error}.") from None
