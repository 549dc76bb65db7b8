"""The full training state of a model as named arrays.

Under a strategy, each variable has a copy on every replica. Weights and optimizer state are the
same on all replicas. Random states are derived from that of the first replica
(`distribution.set_random_state`). Metric variables are summed over the replicas of all workers.
"""

import re

import ml_dtypes  # noqa: F401  # registers bfloat16 with NumPy
import numpy as np

from zoo.training import distribution

WEIGHTS, RANDOM, OPTIMIZER, METRICS = "weights", "random", "optimizer", "metrics"


def random_states(model):
    """The seed-generator variables of a model, such as those of dropout layers."""
    return [v for v in model.variables if v.name == "seed_generator_state"]


def read_state(model):
    """Reads the state of a compiled model: {name: array}. All workers must call it together."""
    return {name: _stored(_value(name, v, model)) for name, v in _variables(model).items()}


def only(state, prefixes):
    """The entries of a state whose names start with one of the prefixes."""
    return {name: array for name, array in state.items() if name.startswith(prefixes)}


def difference(model, state, names=(WEIGHTS, RANDOM, OPTIMIZER)):
    """Why `state` does not fit `model`, as a message; None if it fits."""
    expected = {
        name: (tuple(v.shape), _stored(np.zeros(0, v.dtype)).dtype)
        for name, v in _variables(model).items()
        if name.startswith(names)
    }
    found = {name: (array.shape, array.dtype) for name, array in only(state, names).items()}
    for name in [*expected, *found]:
        if expected.get(name) != found.get(name):
            return f"{name} is {_described(found.get(name))}, not {_described(expected.get(name))}"
    return None


def set_state(model, state, names=(WEIGHTS, RANDOM, OPTIMIZER)):
    """Assigns a state to a model; check it with `difference` first."""
    for name, variable in _variables(model).items():
        if name.startswith(names):
            value = state[name].view(np.dtype(variable.dtype))
            if name.startswith(RANDOM):
                distribution.set_random_state(variable, value, model.distribute_strategy)
            elif name.startswith(METRICS):
                _set_metric(variable, value, model.distribute_strategy)
            else:
                variable.assign(value)


def set_weights(model, state):
    """Assigns the weights of a state to a model, the averaged weights if there are any.

    Raises:
        ValueError: if the weights do not fit the model.
    """
    wrong = difference(model, state, (WEIGHTS,))
    if wrong:
        raise ValueError(wrong)
    set_state(model, state, (WEIGHTS,))
    averages = [a for n, a in only(state, OPTIMIZER).items() if n.endswith("_average")]
    for variable, average in zip(model.trainable_variables, averages):
        variable.assign(average)


def build_metrics(model):
    """Builds the metrics of a model with one output, which Keras does in the first step only.

    They must be `keras.metrics.Metric`s: Keras resolves metric names with the first batch.
    """
    for metric in model.metrics:
        if not getattr(metric, "built", True):
            metric.build(np.zeros(1), np.zeros(1))


def _variables(model):
    random = random_states(model)
    numbers = {id(v) for v in random}
    groups = {
        WEIGHTS: [v for v in model.variables if id(v) not in numbers],
        RANDOM: random,
        OPTIMIZER: getattr(getattr(model, "optimizer", None), "variables", ()),
        METRICS: model.metrics_variables,
    }
    # Keras numbers layers by process, so the numbers in a path may differ between runs.
    return {
        f"{group}/{index:05d}/{re.sub('_[0-9]+(?=[/_]|$)', '', v.path)}": v
        for group, variables in groups.items()
        for index, v in enumerate(variables)
    }


def _value(name, variable, model):
    if not name.startswith(METRICS):
        return variable.numpy()
    strategy = model.distribute_strategy
    if distribution.num_workers(strategy) > 1:
        return variable.numpy()[None]
    return np.stack([part.numpy() for part in distribution.replica_values(strategy, variable)])


def _set_metric(variable, values, strategy):
    parts = distribution.replica_values(strategy, variable)
    if distribution.num_workers(strategy) == 1 and len(parts) == len(values):
        for part, value in zip(parts, values):
            part.assign(value)
    else:
        variable.assign(values.sum(axis=0))  # gives each replica an equal share


def _stored(array):
    """Views extension dtypes such as bfloat16, which .npz files cannot store, as integers."""
    return array if array.dtype.isbuiltin == 1 else array.view(f"u{array.dtype.itemsize}")


def _described(array):
    return "missing" if array is None else f"{array[1]} {list(array[0])}"
