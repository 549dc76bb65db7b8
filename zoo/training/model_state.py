"""All that a step of training depends on and changes, as arrays by name.

Under a strategy, each variable lies on every replica. Weights and optimizer are the same on all of
them, random states follow from those of the first one (`distribution.set_random_state`), and what
replicas counted for metrics is added up by all workers together.
"""

import re

import ml_dtypes  # noqa: F401  # has NumPy know bfloat16
import numpy as np

from zoo.training import distribution

WEIGHTS, RANDOM, OPTIMIZER, METRICS = "weights", "random", "optimizer", "metrics"


def random_states(model):
    """Variables of the random numbers that a model draws, as in dropout."""
    return [v for v in model.variables if v.name == "seed_generator_state"]


def read_state(model):
    """The state of a compiled model: {name: array}. All workers must call it together."""
    return {name: _stored(_value(name, v, model)) for name, v in _variables(model).items()}


def only(state, names):
    """The part of a state whose names begin with one of these."""
    return {name: array for name, array in state.items() if name.startswith(names)}


def difference(model, state, names=(WEIGHTS, RANDOM, OPTIMIZER)):
    """What keeps `state` from being one of `model`, in words; None if nothing does."""
    expected = {
        name: (tuple(v.shape), _stored(np.zeros(0, v.dtype)).dtype)
        for name, v in _variables(model).items()
        if name.startswith(names)
    }
    found = {name: (array.shape, array.dtype) for name, array in only(state, names).items()}
    for name in [*expected, *found]:
        if expected.get(name) != found.get(name):
            return f"{name} is {_words(found.get(name))}, not {_words(expected.get(name))}"
    return None


def set_state(model, state, names=(WEIGHTS, RANDOM, OPTIMIZER)):
    """Gives a model the state that `difference` found nothing against."""
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
    """Gives a model, compiled or not, the weights of a state, the averaged ones if there are.

    Raises:
        ValueError: if they are of another model.
    """
    wrong = difference(model, state, (WEIGHTS,))
    if wrong:
        raise ValueError(wrong)
    set_state(model, state, (WEIGHTS,))
    averages = [a for n, a in only(state, OPTIMIZER).items() if n.endswith("_average")]
    for variable, average in zip(model.trainable_variables, averages):
        variable.assign(average)


def build_metrics(model):
    """Makes the metrics of a model of one output whole, which Keras does in the first step only.

    They must be `keras.metrics.Metric`s and not names, of which the first batch decides.
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
    # Keras numbers layers by how many came before in the process: a path may differ in its numbers.
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
        variable.assign(values.sum(axis=0))  # which gives each replica an equal share


def _stored(array):
    """NumPy's files do not know the types that it has not itself, such as bfloat16."""
    return array if array.dtype.isbuiltin == 1 else array.view(f"u{array.dtype.itemsize}")


def _words(array):
    return "missing" if array is None else f"{array[1]} {list(array[0])}"
