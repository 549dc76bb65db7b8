"""Checkpoints in TensorFlow's format, one folder each.

`tf.train.Checkpoint` writes them; it stores a checksum of each array. The list of checkpoints that
`tf.train.CheckpointManager` keeps has none, so the folders themselves are the list.
"""

import contextlib
import json
import pathlib
import shutil

import tensorflow as tf

from zoo.errors import UserError
from zoo.files import atomic, remove_partial
from zoo.training import model_state

BEST = "best"  # subfolder
_NAME = "state"  # of TensorFlow's files in the folder


class CheckpointError(UserError):
    """A checkpoint cannot be used; the message says why and what to do."""


class Damaged(CheckpointError):
    """A checkpoint that is truncated or corrupted."""


def paths(folder):
    """The paths of the checkpoints in a folder, oldest first."""
    return sorted(pathlib.Path(folder).glob("epoch_*"))


def write(path, variables, keep, metadata=None):
    """Writes a checkpoint atomically, then deletes those beside it that are no longer needed.

    Args:
        path: path of its folder.
        variables: {name: variable}; the names without slashes and dots.
        keep: number of checkpoints to keep, this one and the ones before it. Later ones could not
            be used, as the run has gone back, and are deleted.
        metadata: dict that can be stored as JSON.

    Raises:
        zoo.files.WriteError: if it cannot be written; the others are unchanged.
    """
    checkpoint = tf.train.Checkpoint(state=variables, metadata=_Json(metadata))
    remove_partial(path.parent)
    with atomic(path) as partial:
        try:
            checkpoint.write(partial / _NAME)
        except tf.errors.OpError as error:
            if partial.name not in error.message:
                raise  # a worker is lost, for instance
            raise OSError(error.message.split("; ")[-1].partition(" [Op")[0]) from error
        shutil.rmtree(path, ignore_errors=True)  # if the run has gone back
    _keep(path, keep)


def copy(source, path, keep):
    """Copies a checkpoint; see `write`."""
    with atomic(path) as partial:
        shutil.copytree(source, partial)
        shutil.rmtree(path, ignore_errors=True)
    _keep(path, keep)


def _keep(path, count):
    """Deletes the checkpoints beside one that are no longer needed."""
    found = paths(path.parent)
    end = found.index(path) + 1
    for other in found[: max(0, end - count)] + found[end:]:
        shutil.rmtree(other)


def read(path):
    """Reads a checkpoint: (metadata, {name: array}).

    Raises:
        Damaged: if the content is not what was written.
    """
    with _opened(path) as reader:
        keys = sorted(key for key in reader.get_variable_to_shape_map() if key.startswith("state/"))
        return _metadata(reader), {key.split("/")[1]: reader.get_tensor(key) for key in keys}


def read_metadata(path):
    """Reads the metadata of a checkpoint only; see `read`."""
    with _opened(path) as reader:
        return _metadata(reader)


def _metadata(reader):
    return json.loads(reader.get_tensor("metadata/.ATTRIBUTES/py_state"))


@contextlib.contextmanager
def _opened(path):
    """Yields a reader of a checkpoint; raises `Damaged` if something in it cannot be read."""
    try:
        yield tf.train.load_checkpoint(str(pathlib.Path(path) / _NAME))
    # TensorFlow raises errors of several types, depending on where the damage is.
    except Exception as error:
        raise Damaged(f"{path} is damaged and cannot be used: {error}.") from None


def load_weights(model, path):
    """Loads the weights of a checkpoint into a model, the averaged weights if there are any.

    Args:
        model: model of the same architecture, such as ``zoo.load("runs/vit_digits").model``.
        path: path of the checkpoint, or of a folder of checkpoints, of which the newest is loaded:
            ``runs/vit_digits/checkpoints/best``.

    Raises:
        CheckpointError: if the checkpoint is missing or damaged, or does not fit the model.
    """
    path = next(reversed(paths(path)), path)
    state = read(path)[1]
    weights = {name: a for name, a in state.items() if name.startswith(model_state.WEIGHTS)}
    variables = model_state.variables(model, (model_state.WEIGHTS,))
    averages = [array for name, array in state.items() if name.endswith("_average")]
    wrong = model_state.difference(variables, weights)
    if averages and len(averages) != len(model.trainable_variables):
        wrong = wrong or (
            f"it has averages of {len(averages)} weights, and the model has "
            f"{len(model.trainable_variables)} trainable ones; freeze the layers that were frozen"
        )
    if wrong:
        raise CheckpointError(f"{path} cannot be used: {wrong}.")
    for name, variable in variables.items():
        variable.assign(weights[name])
    for variable, average in zip(model.trainable_variables, averages):
        variable.assign(average)


class _Json(tf.train.experimental.PythonState):
    """A dict that `tf.train.Checkpoint` writes as JSON."""

    def __init__(self, values):
        self.values = values

    def serialize(self):
        return json.dumps(self.values)

    def deserialize(self, string_value):
        self.values = json.loads(string_value)
