"""`Run.train` is `fit` of Keras: with all losses and metrics that Keras exports.

Losses and metrics are found in `keras.losses` and `keras.metrics`. One that cannot be made, or that
suits none of `KINDS`, makes a test fail.
"""

import inspect
import itertools
import pathlib
import subprocess
import sys
from typing import NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf

import zoo.training
from zoo.compat import get_keras_mask, loss_of_function, set_keras_mask
from zoo.errors import UserError
from zoo.training import distribution
from zoo.training.callbacks import history_rows

if __name__ == "__main__":
    distribution.choose("mirrored", 2)  # before TensorFlow computes anything

ROOT = pathlib.Path(__file__).parents[2]
ROWS, BATCH, ITEMS, CLASSES, VOCABULARY = 47, 16, 4, 3, 9  # the last batch has 15 rows
RANDOM = np.random.default_rng(0)
TOKENS = RANDOM.integers(1, VOCABULARY, (ROWS, ITEMS))
TOKENS[np.arange(ITEMS) >= RANDOM.integers(2, ITEMS + 1, (ROWS, 1))] = 0  # padding
X = RANDOM.normal(size=(ROWS, 6)).astype("float32")
IDS = (TOKENS + RANDOM.integers(0, 2, TOKENS.shape)) % CLASSES
ONE_HOT = np.eye(CLASSES, dtype="float32")[IDS]
NUMBERS = RANDOM.uniform(0.1, 1.0, (ROWS, 2)).astype("float32")


class Kind(NamedTuple):
    """Inputs and labels, number and activation of the outputs, and the shape of weights."""

    inputs: np.ndarray
    labels: np.ndarray
    units: int
    activation: str
    weights_shape: tuple = (ROWS,)


KINDS = {
    "numbers": Kind(X, NUMBERS, 2, "sigmoid"),
    "binary": Kind(X, IDS[:, :1] % 2, 1, "sigmoid"),
    "ids": Kind(X, IDS[:, 0], CLASSES, "softmax"),
    "one-hot": Kind(X, ONE_HOT[:, 0], CLASSES, "softmax"),
    "ids of items": Kind(TOKENS, IDS, CLASSES, "softmax", (ROWS, ITEMS)),
    "one-hot of items": Kind(TOKENS, ONE_HOT, CLASSES, "softmax", (ROWS, ITEMS)),
    "sequences": Kind(TOKENS, 1 + IDS[:, :2], 1 + CLASSES, "linear"),
}
ARGUMENTS = {  # of constructors, where they have no default
    "fn": keras.losses.mean_squared_error,
    "num_classes": CLASSES,
    "target_class_ids": [0, 2],
    **dict.fromkeys(("precision", "recall", "sensitivity", "specificity"), 0.5),
}
MEAN, SUM = ("reduction", "sum_over_batch_size"), ("reduction", "sum")  # the first is the default
SETTINGS = (MEAN, SUM, ("reduction", "mean_with_sample_weight"), ("ignore_class", 1))


class Case(NamedTuple):
    """Data of a kind, whether they are weighted and masked, and a setting of the losses."""

    kind: str
    setting: tuple = MEAN
    weighted: bool = False
    masked: bool = False

    def rows(self, order):
        """Labels, random outputs and weights, in an order that is a slice."""
        kind = KINDS[self.kind]
        shape = (*kind.inputs.shape[: 2 if kind.inputs is TOKENS else 1], kind.units)
        logits = np.random.default_rng(1).normal(size=shape).astype("float32")
        outputs = keras.activations.get(kind.activation)(tf.constant(logits[order]))
        if self.masked:
            set_keras_mask(outputs, tf.constant(TOKENS[order] != 0))
        weights = self.weights()
        return kind.labels[order], outputs, None if weights is None else weights[order]

    def weights(self):
        shape = KINDS[self.kind].weights_shape
        weights = np.random.default_rng(2).uniform(0.5, 2.0, shape).astype("float32")
        return weights if self.weighted else None

    def batches(self, names):
        kind, weights = KINDS[self.kind], self.weights()
        labels = dict.fromkeys(names, kind.labels)
        arrays = (kind.inputs, labels) if weights is None else (kind.inputs, labels, weights)
        return tf.data.Dataset.from_tensor_slices(arrays).batch(BATCH)


def cases(kind, setting):
    masks = (False, True) if KINDS[kind].inputs is TOKENS else (False,)
    return [Case(kind, setting, *one) for one in itertools.product((False, True), masks)]


# --- what Keras exports --------------------------------------------------------------------------


def is_called_with_labels(function):
    names, parameters = zip(*inspect.signature(function).parameters.items())
    others = parameters[2:]
    return names[:2] == ("y_true", "y_pred") and all(one.default is not one.empty for one in others)


def exported(module):
    """(classes, functions) of a module that `compile` takes, by name."""
    classes, functions = {}, {}
    for name, one in vars(module).items():
        if inspect.isclass(one) and one is not keras.losses.Loss:
            method = getattr(one, "call", None) or one.update_state
            if is_called_with_labels(method.__get__(object())):
                classes[name] = one
        elif inspect.isfunction(one) and is_called_with_labels(one):
            functions[name] = one
    return classes, functions


LOSSES, LOSS_FUNCTIONS = exported(keras.losses)
METRICS, METRIC_FUNCTIONS = exported(keras.metrics)
METRIC_FUNCTIONS = {**LOSS_FUNCTIONS, **METRIC_FUNCTIONS}  # Keras takes losses as metrics


def made(cls, *settings):
    """An object of a class, or None if its constructor does not have the settings, pairs."""
    parameters = inspect.signature(cls).parameters
    arguments = dict(settings)
    if not set(arguments) <= set(parameters):
        return None
    for name, one in parameters.items():
        if one.default is one.empty and one.kind != one.VAR_KEYWORD:
            arguments[name] = ARGUMENTS[name]
    return cls(**arguments)


def is_suited(computing, case):
    """Whether Keras computes a number that is not huge, whatever the order of the rows."""
    numbers = []
    for order in (slice(None), slice(None, None, -1)):
        try:
            value = computing(*case.rows(order))
        except (ValueError, tf.errors.InvalidArgumentError):
            return False
        if isinstance(computing, keras.metrics.Metric):
            computing.reset_state()
        numbers.append(value)
    return bool(np.all(np.abs(value) < 1e3)) and np.allclose(*numbers, rtol=1e-4)


def has_finite_gradient(loss, case):
    labels, outputs, _ = case.rows(slice(None))
    with tf.GradientTape() as tape:
        tape.watch(outputs)
        value = loss(labels, outputs)
    gradient = tape.gradient(value, outputs)  # None if the loss is computed from the logits
    return gradient is None or np.isfinite(gradient).all()


def losses_for(case):
    """Losses by name; functions as the losses that Keras makes of them."""
    losses = {name: made(cls, case.setting) for name, cls in LOSSES.items()}
    if case.setting == MEAN and not case.weighted:
        losses |= {name: loss_of_function(function) for name, function in LOSS_FUNCTIONS.items()}
    suited = {}
    for name, loss in losses.items():
        if loss is not None and is_suited(loss, case) and has_finite_gradient(loss, case):
            suited[name] = loss
    return suited


def metrics_for(case):
    """Classes and functions by name."""
    metrics = {name: made(cls) for name, cls in METRICS.items()}
    for name, function in METRIC_FUNCTIONS.items() if not case.weighted else ():
        metrics[name] = keras.metrics.MeanMetricWrapper(function)
    given = {**METRICS, **METRIC_FUNCTIONS}
    return {name: given[name] for name, one in metrics.items() if is_suited(one, case)}


@pytest.mark.ci
def test_every_loss_and_metric_of_keras_is_tested():
    assert len(LOSSES) > 20 and len(METRICS) > 40
    found = {name for kind in KINDS for name in losses_for(Case(kind))}
    assert found == {*LOSSES, *LOSS_FUNCTIONS}
    found = {name for kind in KINDS for name in metrics_for(Case(kind))}
    assert found == {*METRICS, *METRIC_FUNCTIONS}


# --- what is refused -----------------------------------------------------------------------------


def why_refused(loss, case, devices):
    """Part of the error with which `Run.train` refuses a loss, or None.

    Each device computes the losses of its own rows, whose sum must be the loss of the batch. It is
    not if a loss depends on several rows, or is divided by the number of items that a mask
    selects, of which each device knows its own only.
    """
    values = values_of_rows(loss.call, case, ROWS)
    is_masked = case.masked or get_keras_mask(values) is not None
    if devices > 1 and len(values.shape) > 0 and not is_of_rows(loss.call, case):
        return "compares the rows of a batch"
    if is_masked and loss.reduction == "mean_with_sample_weight" and (devices > 1 or case.weighted):
        return "has a mask, which is not supported"
    if devices > 1 and is_masked and loss.reduction != "sum":
        return "has a mask, so a batch cannot be split between 2 devices"
    if devices > 1 and len(values.shape) == 0:
        return "returns one number for a batch, so a batch cannot be split between 2 devices"
    return None


def values_of_rows(function, case, count):
    labels, outputs, _ = case.rows(slice(count))
    return function(tf.cast(labels, "float32"), outputs)


def is_of_rows(function, case):
    """Whether there is a value for each row, which is the same without other rows."""
    of_all, of_some = (values_of_rows(function, case, count) for count in (ROWS, 8))
    return len(of_all.shape) > 0 and np.allclose(of_all[:8], of_some, rtol=1e-4, atol=1e-6)


# --- Run.train and fit ---------------------------------------------------------------------------


def compiled(case, losses, metrics=()):
    """A model with an output for each loss, so that all are trained at once."""
    kind = KINDS[case.kind]
    inputs = x = keras.Input(kind.inputs.shape[1:])
    if kind.inputs is TOKENS:
        x = keras.layers.Embedding(VOCABULARY, 6, mask_zero=case.masked)(inputs)
    outputs = {
        name: keras.layers.Dense(kind.units, kind.activation, name=name)(x) for name in losses
    }
    model = keras.Model(inputs, outputs)
    first = next(iter(losses))
    metrics = {first: [made(one) if inspect.isclass(one) else one for one in metrics]}
    model.compile(
        keras.optimizers.SGD(0.05),
        losses,
        jit_compile=False,  # XLA compiles for seconds
        metrics=None if case.weighted else metrics,
        weighted_metrics=metrics if case.weighted else None,
    )
    return model


def begin(folder, devices):
    keras.backend.clear_session(free_memory=False)
    settings = {"strategy": "mirrored", "devices": devices} if devices > 1 else {}
    return zoo.training.Run(out=f"{folder}/run", seed=3, overwrite=True, **settings)


def check_equal(case, losses, metrics, devices, folder):
    """Names and values of losses and metrics of two epochs with validation, and the weights."""
    data = case.batches(losses)
    keras.backend.clear_session(free_memory=False)
    keras.utils.set_random_seed(3)
    expected = compiled(case, losses, metrics)
    logs = expected.fit(data, validation_data=data, epochs=2, verbose=0).history
    run = begin(folder, devices)
    with run.scope():
        model = compiled(case, losses, metrics)
    model = run.train(model, data, validation_data=data, epochs=2)
    rows = history_rows(run.path)
    for name, wanted in logs.items():
        is_mean_of_weighted = case.setting[1] == "mean_with_sample_weight"
        if is_mean_of_weighted and name in ("loss", "val_loss"):
            continue  # the mean over all items, see docs/training_your_model.md
        if np.ndim(wanted) > 1:  # a value for each class
            found = [[row[f"{name}_{i}"] for i in range(np.shape(wanted)[1])] for row in rows]
        else:
            found = [row[name] for row in rows]
        # float32 sums in another order
        np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=1e-6, err_msg=f"{case} {name}")
    for mine, theirs in zip(model.weights, expected.weights, strict=True):
        np.testing.assert_allclose(
            mine, theirs, rtol=2e-4, atol=1e-5, err_msg=f"{case} {theirs.path}"
        )


def check_refused(case, losses, metrics, devices, folder, message):
    """By an error before the first step."""
    run = begin(folder, devices)
    with run.scope():
        model = compiled(case, losses, metrics)
    before = model.get_weights()
    with pytest.raises(UserError, match=message):
        run.train(model, case.batches(losses), epochs=1)
    for mine, other in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(mine, other)


def check(case, devices, folder):
    """All losses and metrics that suit a case."""
    losses, metrics = {}, []
    for name, loss in losses_for(case).items():
        message = why_refused(loss, case, devices)
        if message is None:
            losses[name] = loss
        elif name in LOSSES:
            check_refused(case, {name: loss}, (), devices, folder, message)
    if not losses:
        return
    # several devices refuse the mean over what a mask selects
    has_metrics = case.setting == MEAN or (case.masked and case.setting == SUM)
    for name, metric in metrics_for(case).items() if has_metrics else ():
        if devices == 1 or inspect.isclass(metric) or is_of_rows(metric, case):
            metrics.append(metric)
        else:
            loss = dict([next(iter(losses.items()))])
            check_refused(case, loss, [metric], devices, folder, f"the metric {name}")
    check_equal(case, losses, metrics, devices, folder)


def marks(kind, setting):
    """By the seconds that they take: all metrics are trained with the default setting."""
    if kind == "ids" and setting != MEAN:
        return [pytest.mark.ci] if setting[1] == "mean_with_sample_weight" else []
    return [pytest.mark.slow]


@pytest.mark.parametrize(
    "kind, setting",
    [
        pytest.param(*one, marks=marks(*one), id="-".join([one[0], str(one[1][1])]))
        for one in itertools.product(KINDS, SETTINGS)
    ],
)
def test_on_one_device(kind, setting, tmp_path):
    for case in cases(kind, setting):
        check(case, 1, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_on_two_devices(kind, tmp_path):
    """In a process of its own, as the devices are chosen before TensorFlow computes anything."""
    arguments = [sys.executable, "-m", "tests.training.test_equal_to_fit", kind, str(tmp_path)]
    subprocess.run(arguments, cwd=ROOT, check=True)


if __name__ == "__main__":
    for setting in SETTINGS:
        for case in cases(sys.argv[1], setting):
            check(case, 2, sys.argv[2])
