"""The training state of a model: its variables by name, and the metrics of the current epoch.

Under a strategy, each variable has a copy on every replica. Weights and optimizer state are the
same on all replicas. Random states are derived from that of the first replica
(`distribution.set_random_state`). Metric variables are summed over the replicas of all workers.
"""

import re

import numpy as np

from zoo.training import distribution

WEIGHTS, RANDOM, OPTIMIZER = "weights", "random", "optimizer"
_SEED = "seed_generator_state"  # the name of Keras


def random_states(model):
    """The seed-generator variables of a model, such as those of dropout layers."""
    return [v for v in model.variables if v.name == _SEED]


def variables(model, groups=(WEIGHTS, RANDOM, OPTIMIZER)):
    """The variables of a model and its optimizer: {name: variable}."""
    members = {
        WEIGHTS: [v for v in model.variables if v.name != _SEED],
        RANDOM: random_states(model),
        OPTIMIZER: getattr(getattr(model, "optimizer", None), "variables", ()),
    }
    # Keras numbers layers by process, so the numbers in a path may differ between runs. TensorFlow
    # escapes slashes and dots.
    return {
        re.sub("[/.]", "-", f"{group}/{index:05d}/{re.sub('_[0-9]+(?=[/_]|$)', '', v.path)}"): v
        for group in groups
        for index, v in enumerate(members[group])
    }


def difference(variables, state):
    """Why the arrays of `state` do not fit `variables`, as a message; None if they fit."""
    expected, found = (
        {name: f"{v.dtype} {list(v.shape)}" for name, v in values.items()}
        for values in (variables, state)
    )
    for name in [*expected, *found]:
        if expected.get(name) != found.get(name):
            return f"{name} is {found.get(name, 'missing')}, not {expected.get(name, 'missing')}"
    return None


def set_state(model, state):
    """Assigns {name: array} to a model; check it with `difference` first."""
    for name, variable in variables(model).items():
        if name.startswith(RANDOM):
            distribution.set_random_state(variable, state[name], model.distribute_strategy)
        else:
            variable.assign(state[name])


def read_metrics(model):
    """The values of each metric variable on the replicas; all workers must call it together."""
    strategy = model.distribute_strategy
    if distribution.num_workers(strategy) > 1:
        return [[v.numpy().tolist()] for v in model.metrics_variables]
    return [
        [part.numpy().tolist() for part in distribution.replica_values(strategy, v)]
        for v in model.metrics_variables
    ]


def set_metrics(model, values):
    """Assigns what `read_metrics` returned, perhaps with another number of replicas.

    The metrics must be built, as `Trainer.fit` does.
    """
    strategy = model.distribute_strategy
    for variable, value in zip(model.metrics_variables, values, strict=True):
        parts, value = distribution.replica_values(strategy, variable), np.array(value)
        if distribution.num_workers(strategy) == 1 and len(parts) == len(value):
            for part, share in zip(parts, value):
                part.assign(share.astype(variable.dtype))
        else:  # gives each replica an equal share
            variable.assign(value.sum(axis=0).astype(variable.dtype))
