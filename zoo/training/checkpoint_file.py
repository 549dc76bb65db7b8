"""Checkpoint files: one ``.npz`` with checksums per checkpoint."""

import json
import pathlib

import numpy as np

from zoo.errors import UserError
from zoo.training import model_state
from zoo.training.whole_file import write_whole

BEST = "best.npz"
UNUSABLE = ".unusable"  # suffix for files that are damaged or from another run
_FORMAT = 1  # version of the file format
_METADATA = "metadata"


class CheckpointError(UserError):
    """No checkpoint can be used; the message says why and what to do."""


class Damaged(Exception):
    """A checkpoint that is truncated or corrupted."""


def step_path(folder, step):
    """The path of the checkpoint of a step."""
    return pathlib.Path(folder) / f"step_{step:08d}.npz"


def step_paths(folder):
    """The paths of the step checkpoints in a folder, oldest first."""
    return sorted(pathlib.Path(folder).glob("step_*.npz"), key=lambda p: (len(p.name), p.name))


def write(path, metadata, state):
    """Writes a checkpoint atomically.

    Args:
        path: path of the file.
        metadata: dict that can be stored as JSON.
        state: {name: array}.

    Raises:
        zoo.training.whole_file.WriteError: if the file cannot be written; `path` is unchanged.
    """
    # The directory of a zip archive has no checksum, so a lost member would go unnoticed without
    # the list of names.
    metadata = json.dumps({"format": _FORMAT, "names": list(state), **metadata})
    write_whole(path, lambda file: np.savez(file, **{_METADATA: np.array(metadata)}, **state))


def read(path):
    """Reads a checkpoint: (metadata, state).

    Raises:
        Damaged: if the content is not what was written; each array has a checksum.
    """
    try:
        with np.load(path) as file:
            state = {name: file[name] for name in file.files}
        metadata = json.loads(str(state.pop(_METADATA)))
        if metadata["format"] != _FORMAT:
            raise ValueError(f"its format is {metadata['format']}, not {_FORMAT}")
        if metadata.pop("names") != list(state):
            raise ValueError("some of its arrays are missing")
        return metadata, state
    # A damaged archive can raise almost any error, depending on where the damage is.
    except Exception as error:
        raise Damaged(f"{type(error).__name__}: {error}") from None


def read_metadata(path):
    """Reads the metadata of a checkpoint without its state.

    Raises:
        FileNotFoundError: if the file does not exist.
        Damaged: if the metadata is damaged; the state is not checked.
    """
    try:
        with np.load(path) as file:
            return json.loads(str(file[_METADATA]))
    except FileNotFoundError:
        raise
    except Exception as error:
        raise Damaged(f"{type(error).__name__}: {error}") from None


def newest_usable(folder, mismatch):
    """Finds the newest checkpoint that is intact and belongs to the run.

    Args:
        folder: folder of the checkpoints.
        mismatch: function (metadata, state) -> why the checkpoint does not belong to the run, as a
            message, or None if it does.

    Returns:
        (metadata, state, path), or None if there is no usable checkpoint; and a list of
        (path, message) of the unusable ones. Rename these: otherwise the step in their names could
        rank them above later checkpoints.

    Raises:
        CheckpointError: if there is no usable checkpoint and at least one is intact but from
            another run. If all are damaged, the run starts from the beginning instead.
    """
    folder, unusable, foreign = pathlib.Path(folder), [], None
    best = [folder / BEST] if (folder / BEST).exists() else []
    for path in [*reversed(step_paths(folder)), *best]:
        try:
            metadata, state = read(path)
            reason = mismatch(metadata, state)
            if reason is None:
                return (metadata, state, path), unusable
            message = f"{path} is from another run and cannot be used: {reason}."
            foreign = foreign or message
        except Damaged as error:
            message = f"{path} is damaged and cannot be used: {error}."
        unusable.append((path, message))
    if foreign:
        raise CheckpointError(
            f"None of the checkpoints in {folder} is from this run. {foreign} "
            "Use the settings they were written with, or start over with --overwrite."
        )
    return None, unusable


def load_weights(model, path):
    """Loads the weights of a checkpoint into a model, the averaged weights if there are any.

    Args:
        model: model of the same architecture, such as ``zoo.load("runs/vit_digits").model``.
        path: path of the checkpoint, such as ``runs/vit_digits/checkpoints/best.npz``.

    Raises:
        CheckpointError: if the checkpoint is damaged or does not fit the model.
    """
    try:
        model_state.set_weights(model, read(path)[1])
    except (Damaged, ValueError) as error:
        raise CheckpointError(f"{path} cannot be used: {error}.") from None
