"""Checkpoints in TensorFlow's format, one folder each, and the state of a model that they contain.

The format has a checksum of each array. The index file of `tf.train.CheckpointManager` has none, so
it is not used: the folders themselves are the index.

Under a strategy, each variable has a copy on every replica. Weights and optimizer state are the
same on all replicas. Random states are derived from the state of the first replica
(`distribution.set_random_state`). Metric variables are summed over the replicas of all workers.
"""

import json
import re
import shutil

import numpy as np
import tensorflow as tf

from zoo.errors import UserError
from zoo.files import as_path, atomic, remove_partial, without_pattern
from zoo.training import distribution

BEST = "best"  # subfolder
WEIGHTS = "weights"
RANDOM = "random"
OPTIMIZER = "optimizer"
_NAME = "state"  # of TensorFlow's files in the folder
_SEED = "seed_generator_state"  # the name of Keras


class TrainingStateError(UserError):
    """A checkpoint cannot be used; the message says why and what to do."""


class Damaged(TrainingStateError):
    """A checkpoint is truncated or corrupted."""


# --- files ---------------------------------------------------------------------------------------


def paths(folder):
    """Returns the paths of the checkpoints in a folder, oldest first."""
    return sorted(as_path(folder).glob("epoch_*"))


def write(path, variables, keep, metadata=None):
    """Writes a checkpoint atomically, then deletes others in its parent folder.

    Args:
        path: path of its folder.
        variables: {name: variable}.
        keep: number of checkpoints to keep: this one and earlier ones. Later ones are from before
            the run was resumed from an earlier step, and are deleted.
        metadata: dict that can be stored as JSON.
    """
    tensors = {"metadata": tf.constant(json.dumps(metadata))}
    for name, variable in variables.items():
        tensors[f"state/{name}"] = tf.convert_to_tensor(variable.value)
    remove_partial(path.parent)
    with atomic(path) as partial:
        try:
            with tf.device("CPU"):
                tf.raw_ops.SaveV2(
                    prefix=str(partial / _NAME),
                    tensor_names=[*tensors],
                    shape_and_slices=["" for _ in tensors],  # as a whole
                    tensors=[*tensors.values()],
                )
        except tf.errors.OpError as error:
            if partial.name not in error.message:
                raise  # a worker is lost, for instance
            raise OSError(error.message.split("; ")[-1].partition(" [Op")[0]) from error
        shutil.rmtree(path, ignore_errors=True)  # if the run was resumed from an earlier step
    stored = paths(path.parent)
    end = stored.index(path) + 1
    kept = stored[max(0, end - keep) : end]
    for other in stored:
        if other not in kept:
            shutil.rmtree(other)


def read(path, with_state=True):
    """Reads a checkpoint: returns the metadata and {name: array}, {} if not `with_state`.

    Raises:
        Damaged: if the content is not what was written.
        TrainingStateError: if the files cannot be read, and may be intact.
    """
    path = as_path(path)
    try:
        for file in path.iterdir():
            if not file.is_dir():
                file.open("rb").close()
    except OSError as error:
        raise TrainingStateError(f"{path} cannot be used: {error.strerror}.") from None
    try:
        with without_pattern(path) as folder:
            reader = tf.train.load_checkpoint(str(folder / _NAME))
            metadata = json.loads(reader.get_tensor("metadata"))
            state = {}
            if with_state:
                for name in sorted(reader.get_variable_to_shape_map()):
                    if name != "metadata":
                        state[name.removeprefix("state/")] = reader.get_tensor(name)
        return metadata, state
    except (OSError, MemoryError) as error:  # of a full disk, for instance
        raise TrainingStateError(f"{path} cannot be used: {error}.") from None
    # TensorFlow raises errors of several types, depending on where the damage is.
    except Exception as error:
        raise Damaged(f"{path} is damaged and cannot be used: {error}.") from None


# --- state of a model ----------------------------------------------------------------------------


def random_states(model):
    """Returns the variables of seed generators in a model, such as in dropout layers."""
    return [v for v in model.variables if v.name == _SEED]


def variables(model, groups=(WEIGHTS, RANDOM, OPTIMIZER)):
    """Returns the variables of a model and its optimizer: {name: variable}."""
    members = {
        WEIGHTS: [v for v in model.variables if v.name != _SEED],
        RANDOM: random_states(model),
        OPTIMIZER: getattr(getattr(model, "optimizer", None), "variables", ()),
    }
    found = {}
    for group in groups:
        for index, variable in enumerate(members[group]):
            # Keras numbers the layers of a process: these numbers may differ between runs.
            path = re.sub("_[0-9]+(?=[/_]|$)", "", variable.path)
            name = re.sub("[/.]", "-", f"{group}/{index:05d}/{path}")
            found[name] = variable
    return found


def difference(variables, state):
    """Returns why the arrays of `state` do not fit `variables`; None if they do."""
    expected = {name: f"{v.dtype} {list(v.shape)}" for name, v in variables.items()}
    stored = {name: f"{array.dtype} {list(array.shape)}" for name, array in state.items()}
    for name in [*expected, *stored]:
        if name not in stored:
            return f"it has no {name}"
        if name not in expected:
            return f"its {name} is not a variable of the model"
        if expected[name] != stored[name]:
            return f"{name} is {stored[name]}, not {expected[name]}"
    return None


def set_state(model, state):
    """Assigns {name: array} to a model; check it with `difference` first."""
    for name, variable in variables(model).items():
        if name.startswith(RANDOM):
            distribution.set_random_state(variable, state[name], model.distribute_strategy)
        else:
            variable.assign(state[name])


def load_weights(model, path):
    """Loads the weights of a checkpoint into a model, the averaged weights if there are any.

    Args:
        model: model of the same architecture, such as ``zoo.load("runs/vit_digits").model``.
        path: path of the checkpoint, or of a folder of checkpoints, of which the newest is loaded:
            ``runs/vit_digits/checkpoints/best``.

    Raises:
        TrainingStateError: if the checkpoint is missing or damaged, or does not fit the model.
    """
    checkpoints = paths(path)
    if checkpoints:
        path = checkpoints[-1]
    _, state = read(path)
    weights = {name: array for name, array in state.items() if name.startswith(WEIGHTS)}
    averages = [
        array
        for name, array in state.items()
        if name.startswith(OPTIMIZER) and name.endswith("_average")
    ]
    variables_of_model = variables(model, (WEIGHTS,))
    trainable = model.trainable_variables
    wrong = difference(variables_of_model, weights)
    if not wrong and averages and len(averages) != len(trainable):
        wrong = (
            f"it has averages of {len(averages)} weights, the model {len(trainable)} trainable ones"
        )
    if wrong:
        raise TrainingStateError(f"{path} cannot be used: {wrong}.")
    for name, variable in variables_of_model.items():
        variable.assign(weights[name])
    for variable, average in zip(trainable, averages):
        variable.assign(average)


def read_metrics(model):
    """Returns the values of each metric variable on the replicas; all workers must call it."""
    strategy = model.distribute_strategy
    if distribution.num_workers(strategy) > 1:
        return [[v.numpy().tolist()] for v in model.metrics_variables]
    return [
        [part.numpy().tolist() for part in distribution.replica_values(strategy, v)]
        for v in model.metrics_variables
    ]


def set_metrics(model, values):
    """Assigns the values that `read_metrics` returned, also with another number of replicas.

    The metrics must be built: Keras does so in the first step, `Trainer.fit` before it.
    """
    strategy = model.distribute_strategy
    for variable, value in zip(model.metrics_variables, values, strict=True):
        value = np.array(value)
        parts = distribution.replica_values(strategy, variable)
        if distribution.num_workers(strategy) == 1 and len(parts) == len(value):
            for part, share in zip(parts, value):
                part.assign(share.astype(variable.dtype))
        else:  # gives each replica an equal share
            variable.assign(value.sum(axis=0).astype(variable.dtype))
