"""`zoo.training.Run` with models of all kinds: Keras's own results, exact resuming, and errors."""

import json
import math
import pathlib
import re
import signal
import subprocess
import sys
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

import zoo
import zoo.training
from zoo import hardware
from zoo.errors import DataError, UserError
from zoo.training.callbacks import history_rows
from zoo.training.trainer import Trainer

ROOT = pathlib.Path(__file__).parents[2]
DOCS = ROOT / "docs"
ROWS = 44  # of examples: six batches of 7 and one of 2
X = np.random.default_rng(0).normal(size=(ROWS, 6)).astype("float32")
Y = (X @ np.linspace(-1, 1, 18).reshape(6, 3)).argmax(axis=1)


def dataset(*arrays):
    return tf.data.Dataset.from_tensor_slices(arrays).batch(7)


def classifier():
    """A functional model with everything that a step must treat right."""
    inputs = keras.Input((6,))
    x = keras.layers.Dense(8, use_bias=False, kernel_regularizer="l2")(inputs)
    x = keras.layers.BatchNormalization()(x)
    x = keras.layers.Lambda(lambda x: keras.ops.relu(x), output_shape=(8,))(x)
    frozen = keras.layers.Dense(8, trainable=False, kernel_initializer="ones")
    x = keras.layers.Dropout(0.3)(x + 0.01 * frozen(x))
    model = keras.Model(inputs, keras.layers.Dense(3)(x))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"])
    return model


def two_outputs():
    """A dict of labels, losses by name with weights, metrics that are weighted and not."""
    inputs = {"a": keras.Input((6,), name="a")}
    x = keras.layers.Dense(4, "tanh")(inputs["a"])
    outputs = {"kind": keras.layers.Dense(3, "softmax", name="kind")(x)}
    outputs["size"] = keras.layers.Dense(2, name="size")(x)
    model = keras.Model(inputs, outputs)
    model.compile(
        keras.optimizers.SGD(0.1),
        {"kind": "sparse_categorical_crossentropy", "size": "mse"},
        loss_weights={"kind": 1.0, "size": 0.3},
        metrics={"kind": "accuracy"},
        weighted_metrics={"size": "mae"},
    )
    return model


class Unused(keras.Model):
    """A subclass with a weight on which no loss depends."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.used = keras.layers.Dense(3)
        self.unused = keras.layers.Dense(2)
        self.unused.build((None, 6))
        self.build((None, 6))

    def build(self, input_shape):
        self.used.build(input_shape)

    def call(self, x):
        return self.used(x)


class Measuring(Unused):
    """A subclass with a metric of its outputs."""

    def build(self, input_shape):
        super().build(input_shape)
        self.mean = keras.metrics.Mean(name="mean_output")

    def call(self, x):
        outputs = super().call(x)
        self.mean.update_state(outputs)
        return outputs


def unused():
    model = Unused()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss)
    return model


def tagger(mask_zero=False):
    """A label for each item of sequences of any length; perhaps zeros have none."""
    inputs = keras.Input((None,), dtype="int32")
    x = keras.layers.Embedding(9, 4, mask_zero=mask_zero)(inputs)
    model = keras.Model(inputs, keras.layers.Dense(3)(x))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, metrics=["accuracy"])
    return model


def shortened(*sequences):
    """To four items in batches of 7, to five in the batch of 2."""
    return tuple(sequence[:, : 3 + tf.shape(sequence)[0] % 3] for sequence in sequences)


ITEMS = np.random.default_rng(1).integers(0, 3, (ROWS, 6))


def distance(labels, outputs):
    """A loss of one's own, of outputs [B, 1]; Keras gives them and labels [B] the same rank."""
    return keras.ops.mean(keras.ops.square(labels - outputs), axis=-1)


def one_number(loss):
    def make():
        model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(1, "sigmoid")])
        model.compile("sgd", loss, metrics=["mae"])
        return model

    return make


def pairs():
    """Inputs in a tuple; two losses, of which one is None."""
    inputs = [keras.Input((6,)), keras.Input((6,))]
    x = keras.layers.Concatenate()(inputs)
    model = keras.Model(inputs, [keras.layers.Dense(3)(x), keras.layers.Dense(2)(x)])
    model.compile("sgd", ["mse", None])
    return model


def added_loss():
    layer = keras.layers.Dense(3, activity_regularizer="l2")
    model = keras.Sequential([keras.Input((6,)), layer])
    model.compile("sgd")
    return model


def with_loss(loss, *metrics):
    """A classifier of three classes, with metrics of these classes."""

    def make():
        model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(3, "softmax")])
        model.compile(keras.optimizers.SGD(0.1), loss, metrics=[metric() for metric in metrics])
        return model

    return make


WEIGHTED = dataset(ITEMS, ITEMS, 0.5 + ITEMS / 2).map(shortened)
SUMMED = keras.losses.BinaryCrossentropy(reduction="sum")
ONE_HOT = np.eye(3, dtype="float32")[Y]


def lists():
    """Outputs in a list, losses by name, metrics that are weighted and not."""
    inputs = keras.Input((6,))
    outputs = [keras.layers.Dense(3, "softmax", name="kind")(inputs)]
    outputs.append(keras.layers.Dense(2, name="size")(inputs))
    model = keras.Model(inputs, outputs)
    model.compile(
        keras.optimizers.SGD(0.1),
        {"kind": "crossentropy", "size": "mse"},
        metrics=[["accuracy"], ["mae"]],
        weighted_metrics=[["accuracy"], ["mae"]],
    )
    return model


class OwnCall(keras.losses.Loss):
    def __call__(self, labels, outputs, weights=None):
        return 3.0 * keras.ops.mean(keras.ops.square(keras.ops.cast(labels, "float32") - outputs))


def flat(labels, outputs):
    return keras.ops.reshape(keras.ops.square(labels - outputs), (-1,))


NOT_OF_ROWS = [OwnCall(), flat, keras.losses.CosineSimilarity(axis=0), keras.losses.Circle()]
IGNORING = keras.losses.SparseCategoricalCrossentropy(ignore_class=-1)
CASES = {
    "a function": (one_number(distance), dataset(X, X[:, 0])),
    "a sum": (one_number(SUMMED), dataset(X, Y > 1)),
    "a mask and weights": (lambda: tagger(True), WEIGHTED),
    "a tuple of inputs": (pairs, dataset((X, X), (X[:, :3], X[:, :2]))),
    "a metric of the model": (lambda: compiled(Measuring()), dataset(X, X[:, :3])),
    "an added loss": (added_loss, dataset(X, Y)),
    "classifier": (classifier, dataset(X, Y)),
    "weights of examples": (classifier, dataset(X, Y, np.linspace(0.5, 2, ROWS))),
    "two outputs": (two_outputs, dataset({"a": X}, {"kind": Y, "size": X[:, :2]})),
    "weights of items": (tagger, WEIGHTED),
    "an ignored class": (with_loss(IGNORING), dataset(X, np.where(np.arange(ROWS) % 4, Y, -1))),
    "lists": (lists, dataset(X, (Y, X[:, :2]))),
    "one number": (with_loss(keras.losses.Dice()), dataset(X, ONE_HOT)),
    "a value for each class": (
        with_loss("categorical_crossentropy", keras.metrics.F1Score),
        dataset(X, ONE_HOT),
    ),
    "rows without weight": (unused, dataset(X, Y, np.arange(ROWS) % 3)),
}


def begin(folder, **settings):
    keras.backend.clear_session(free_memory=False)
    settings = {"seed": 3, "checkpoint_steps": 3, **settings}
    return zoo.training.Run(out=str(folder), resume=folder.exists(), **settings)


def train(make, data, folder, epochs=2, validation=True, run=None, **settings):
    run = run or begin(folder)
    data = data() if callable(data) else data  # a shuffle takes the seed of the run
    with run.scope():
        model = make()
    validation_data = data if validation else None
    run.train(model, data, epochs=epochs, validation_data=validation_data, **settings)
    return model


def assert_same_weights(model, other):
    """To the bit."""
    for mine, theirs in zip(model.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, theirs)


MARKS = {
    **dict.fromkeys(CASES, [pytest.mark.slow]),
    "a mask and weights": [pytest.mark.ci],
    **dict.fromkeys(("classifier", "two outputs", "lists"), []),
    **dict.fromkeys(("an ignored class", "a value for each class", "a metric of the model"), []),
}


@pytest.mark.parametrize("case", [pytest.param(case, marks=MARKS[case]) for case in CASES])
def test_on_one_device_it_is_fit_of_keras(case, tmp_path):
    make, data = CASES[case]
    trained = train(make, data, tmp_path / "run")
    keras.backend.clear_session(free_memory=False)
    keras.utils.set_random_seed(3)
    expected = make()
    expected.jit_compile = False  # XLA compiles for seconds
    logs = expected.fit(data, validation_data=data, epochs=2, verbose=0).history
    for mine, other in zip(trained.get_weights(), expected.get_weights(), strict=True):
        # float32 sums in another order
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-5)
    rows = history_rows(tmp_path / "run")
    for name, values in logs.items():
        if np.ndim(values) > 1:  # a value for each class
            classes = range(np.shape(values)[1])
            found = [[row[f"{name}_{number}"] for number in classes] for row in rows]
        else:
            found = [row[name] for row in rows]
        np.testing.assert_allclose(found, values, rtol=1e-4)
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["val_loss"] == rows[-1]["val_loss"]
    loaded = keras.saving.load_model(
        tmp_path / "run" / "model.keras",
        safe_mode=False,
        custom_objects={"Unused": Unused, "Measuring": Measuring, "distance": distance},
    )
    assert_same_weights(trained, loaded)


DIFFERENT = {"classifier", "weights of examples", "a mask and weights", "an added loss"}
DIFFERENT |= {"an ignored class", "one number", "a metric of the model"}
SAME_ON_SEVERAL = set(CASES) - DIFFERENT


def train_cases(folder, **devices):
    """Those in which no layer looks at a whole batch, has a mask or draws random numbers."""
    for case in sorted(SAME_ON_SEVERAL):
        path = pathlib.Path(folder) / case
        train(*CASES[case], path, run=begin(path, **devices))


@pytest.mark.slow
@pytest.mark.parametrize("devices", [2, 3])
def test_on_several_devices_all_figures_are_those_of_one(devices, tmp_path):
    """Of batches of 7 and 2 rows, with weights 0 too, which do not divide evenly."""
    code = (
        "from zoo.training import distribution\n"
        f"distribution.choose('mirrored', {devices})  # before the data sets of the module\n"
        "from tests.training.test_run import train_cases\n"
        f"train_cases({str(tmp_path)!r}, strategy='mirrored', devices={devices})"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
    for case in SAME_ON_SEVERAL:
        train(*CASES[case], tmp_path / "one" / case)
        rows = history_rows(tmp_path / case), history_rows(tmp_path / "one" / case)
        for found, expected in zip(*rows, strict=True):
            assert found == pytest.approx(expected, rel=1e-4), case


@pytest.mark.parametrize("loss", NOT_OF_ROWS)
def test_a_loss_that_is_not_of_rows_is_keras_s_on_one_device_and_else_refused(loss, tmp_path):
    data = dataset(X, Y if isinstance(loss, keras.losses.Circle) else ONE_HOT)
    trained = train(with_loss(loss), data, tmp_path / "run", epochs=1, validation=False)
    keras.utils.set_random_seed(3)
    expected = with_loss(loss)()
    expected.jit_compile = False
    expected.fit(data, verbose=0)
    for mine, other in zip(trained.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-5)
    before = trained.get_weights()
    trainer = Trainer(trained)
    trainer.compile("sgd", loss)
    batches = data.map(lambda x, y: (x, y, None)).repeat()
    with pytest.raises(UserError, match="cannot be split between 2 devices"):
        trainer.fit(batches, steps_per_epoch=1, verbose=0, accumulation=2)
    for mine, other in zip(trained.get_weights(), before, strict=True):
        np.testing.assert_array_equal(mine, other)


def test_a_loss_without_source_is_not_saved(tmp_path, capsys):
    """As in `python -c`: Keras cannot save a lambda whose source it does not find."""
    loss = eval("lambda labels, outputs: (labels - outputs) ** 2")

    def linear():
        model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(1)])
        model.compile("sgd", loss)
        return model

    trained = train(linear, dataset(X, X[:, :1]), tmp_path / "run", epochs=1)
    assert "will be saved without its loss" in capsys.readouterr().out
    loaded = keras.saving.load_model(tmp_path / "run" / "model.keras")
    assert_same_weights(trained, loaded)
    assert not loaded.compiled


def test_a_run_that_diverges_says_which_norm_exploded(tmp_path):
    """The learning rate is far too high from step 40 on; every tenth gradient is measured."""

    class Faster(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if int(self.model.optimizer.iterations) == 39:
                self.model.optimizer.learning_rate = 1e4

    message = (
        r"The run has diverged\. The loss of step \d+ is (inf|nan) \(epoch \d+\)\. "
        r"The norm of the gradients exploded in one of the steps 32 to 41: it was \S+ in step 41, "
        r"the median before was \S+; "
        r"the norm of the weights is \S+, at the end of the last epoch it was \S+\. "
        r"The last checkpoint is .* Check that the inputs, the labels and the loss .* a lower "
    )

    def linear():
        model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.01), "mse")
        return model

    with pytest.raises(UserError, match=message):
        train(linear, dataset(X, X[:, 0]), tmp_path / "run", epochs=9, callbacks=[Faster()])


@pytest.mark.parametrize(
    "bad_step, rate, message",
    [
        (1, 0.01, r"was nan in step 1, there was no step before; the norm of the weights is nan\."),
        (2, 0.01, r"exploded in step 2: it was nan in step 2, the median before was \d\.\d+;"),
        (5, 0.01, r"exploded in one of the steps 2 to 5: it was nan in step 5, the median"),
        (
            None,
            1e18,
            r"exploded in one of the steps 2 to 3: it was (inf|nan) in step 3, the median",
        ),
    ],
)
def test_a_run_that_diverges_early_says_in_which_steps(tmp_path, bad_step, rate, message):
    """By data that are no numbers, or a learning rate that is far too high."""
    inputs = X.copy()
    if bad_step is not None:
        inputs[7 * (bad_step - 1)] = np.nan  # batches of 7

    def linear():
        model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(rate), "mse")
        return model

    with pytest.raises(UserError, match=message):
        train(linear, dataset(inputs, X[:, 0]), tmp_path / "run", epochs=1)


class StopAt(keras.callbacks.Callback):
    def __init__(self, *steps):
        super().__init__()
        self.steps = steps

    def on_train_batch_begin(self, batch, logs=None):
        if int(self.model.optimizer.iterations) in self.steps:
            raise InterruptedError


class Noise(keras.layers.Layer):
    """Noise in inference, too."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.seed = keras.random.SeedGenerator(5)

    def call(self, x):
        return x + keras.random.normal(keras.ops.shape(x), seed=self.seed)


def noisy():
    x = keras.Input((6,))
    y = Noise()(x)
    outputs = {name: keras.layers.Dense(3, "sigmoid", name=name)(y) for name in ("a", "b")}
    model = keras.Model(x, outputs)
    metrics = {"a": [keras.metrics.AUC(multi_label=True, num_labels=3)], "b": ["mae"]}
    model.compile("sgd", {"a": "binary_crossentropy", "b": "mse"}, metrics=metrics)
    return model


def test_metrics_of_all_kinds_and_noise_in_inference_are_resumed(tmp_path):
    """To the bit, within an epoch; Keras makes such metrics and losses in the first step."""
    labels = np.eye(3)[Y]
    data = dataset(X, {"a": labels, "b": labels})
    whole = train(noisy, data, tmp_path / "whole", validation=False)
    with pytest.raises(InterruptedError):
        train(noisy, data, tmp_path / "part", callbacks=[StopAt(11)], validation=False)
    part = train(noisy, data, tmp_path / "part", validation=False)
    assert_same_weights(part, whole)
    assert history_rows(tmp_path / "part") == history_rows(tmp_path / "whole")


class Decay(keras.callbacks.Callback):
    """Counts batches, and changes the learning rate in each."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def on_train_batch_end(self, batch, logs=None):
        self.count += 1
        rate = float(self.model.optimizer.learning_rate)
        self.model.optimizer.learning_rate = 0.98 * rate + 1e-7 * self.count


def all_callbacks():
    """What each of them counts changes the learning rate or the number of epochs."""
    return [
        Decay(),
        keras.callbacks.LearningRateScheduler(lambda epoch, rate: 0.9 * rate),
        keras.callbacks.ReduceLROnPlateau("loss", patience=2, factor=0.5, min_delta=0.5),
        keras.callbacks.EarlyStopping("loss", patience=3, min_delta=0.5),
    ]


def test_callbacks_are_resumed(tmp_path):
    """Between epochs and within one, from a checkpoint some steps old: what they count goes on.

    The data are shuffled anew in each epoch.
    """

    def five_epochs(folder, *stops):
        settings = {"epochs": 5, "callbacks": [*all_callbacks(), *stops], "validation": False}
        return train(classifier, lambda: dataset(X, Y).shuffle(7), folder, **settings)

    whole = five_epochs(tmp_path / "whole")
    for step in (12, 21):
        with pytest.raises(InterruptedError):
            five_epochs(tmp_path / "part", StopAt(step))
    assert_same_weights(five_epochs(tmp_path / "part"), whole)
    rows = history_rows(tmp_path / "whole")
    assert history_rows(tmp_path / "part") == rows and len(rows) == 4, "it stops early"
    rates = [row["learning_rate"] for row in rows]
    assert rates[3] < 0.6 * rates[2], "it is on a plateau"


def test_signals_are_handled_as_before_however_training_ends(tmp_path):
    def handlers():
        return [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]

    before = handlers()
    try:
        with pytest.raises(InterruptedError):
            train(unused, dataset(X, Y), tmp_path / "run", callbacks=[StopAt(3)])
        assert handlers()[0] == before[0]
        with pytest.raises(SystemExit):
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before[1])


def test_a_run_that_a_callback_has_stopped_stays_stopped(tmp_path, monkeypatch):
    """It was interrupted after training, and resumed with another patience."""

    def five_epochs(patience):
        stop = keras.callbacks.EarlyStopping(patience=patience, min_delta=9)
        train(unused, dataset(X, Y), tmp_path / "run", epochs=5, callbacks=[stop])

    with monkeypatch.context() as broken, pytest.raises(RuntimeError):
        broken.setattr(keras.Model, "save", lambda *_: (_ for _ in ()).throw(RuntimeError))
        five_epochs(1)
    five_epochs(3)
    assert len(history_rows(tmp_path / "run")) == 2


def test_what_a_callback_adds_is_in_the_history_and_null_in_the_metrics(tmp_path):
    own = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: logs.__setitem__("own", math.nan)
    )
    train(unused, dataset(X, Y), tmp_path / "run", callbacks=[own])
    rows = history_rows(tmp_path / "run")
    assert len(rows) == 2 and all(math.isnan(row["own"]) for row in rows)
    metrics = (tmp_path / "run" / "metrics.json").read_text()
    assert json.loads(metrics)["own"] is None and "NaN" not in metrics


def averaged():
    """Validated, and in the end saved, with the moving average of the weights."""
    model = unused()
    model.compile(keras.optimizers.Adam(0.01, use_ema=True, ema_momentum=0.7), model.loss)
    return model


def test_epochs_without_validation(tmp_path):
    """Validation changes nothing: the weights are the same to the bit."""
    case = (averaged, dataset(X, Y))
    each = train(*case, tmp_path / "each", epochs=5)
    second = train(*case, tmp_path / "second", epochs=5, validation_freq=2)
    assert_same_weights(second, each)
    rows = history_rows(tmp_path / "second")
    assert ["val_loss" in row for row in rows] == [False, True, False, True, False]
    metrics = json.loads((tmp_path / "second" / "metrics.json").read_text())
    assert metrics["val_loss"] == rows[3]["val_loss"]
    assert metrics["loss"] == rows[4]["loss"]


class Misfit(Unused):
    def __init__(self, size):
        super().__init__()


class OwnSteps(Unused):
    def make_train_function(self, force=False):
        raise NotImplementedError


class OwnLoss(Unused):
    def compute_loss(self, *args, **kwargs):
        return 0.0


def compiled(model, loss="mse", **settings):
    model.compile("sgd", loss, **settings)
    return model


MEAN, SUM, NONE = (keras.losses.MeanSquaredError(reduction=name) for name in ("mean", "sum", None))
TWO = {"kind": MEAN, "size": SUM}


@pytest.mark.parametrize(
    ("make", "data", "message"),
    [
        (classifier, (X, Y), "batches must be a tf.data.Dataset, .* Received: tuple"),
        (classifier, dataset(X, Y).take(0), "batches must have a known number of batches"),
        (classifier, dataset(X, Y).filter(lambda x, y: True), "or pass steps_per_epoch"),
        (Unused, dataset(X, Y), "The model unused.* must be compiled"),
        (classifier, dataset(X), "must yield .inputs, labels. or .inputs, labels, weights"),
        (two_outputs, dataset(X, Y, {"kind": Y, "size": Y}), "the weights are one tensor"),
        (lambda: compiled(OwnLoss()), dataset(X, Y), "OwnLoss overrides compute_loss, which"),
        (lambda: compiled(OwnSteps()), dataset(X, Y), "OwnSteps overrides make_train_function, "),
        (lambda: compiled(Misfit(3)), dataset(X, Y), "Misfit cannot be saved: .* get_config"),
        (lambda: compiled(Unused(), run_eagerly=True), dataset(X, Y), "without run_eagerly"),
        (lambda: compiled(Unused(), steps_per_execution=2), dataset(X, Y), "steps_per_execution"),
        (lambda: compiled(Unused(), TWO), dataset(X, Y), "All losses of a model must have"),
        (lambda: compiled(Unused(), NONE), dataset(X, Y), "All losses .* Received: None"),
    ],
)
def test_data_and_models_that_cannot_be_used(make, data, message, tmp_path):
    """They are named before the first step."""
    with pytest.raises(ValueError, match=message):
        train(make, data, tmp_path / "run", validation=False)
    assert not list((tmp_path / "run").glob("checkpoints/epoch_*"))


def test_validation_data_and_settings_that_cannot_be_used(tmp_path):
    run = zoo.training.Run(out=str(tmp_path / "run"))
    for data in ((X, Y), dataset(X, Y).repeat(), dataset(X, Y).filter(lambda x, y: True)):
        with pytest.raises(DataError, match="validation_data must"):
            run.train(classifier(), dataset(X, Y), epochs=1, validation_data=data)
    with pytest.raises(UserError, match="validation_freq must be an integer of at least 1"):
        run.train(classifier(), dataset(X, Y), epochs=1, validation_freq=0)
    run = zoo.training.Run(out=str(tmp_path / "run"), remat=True)
    with pytest.raises(UserError, match="remat is for zoo.models"):
        run.train(classifier(), dataset(X, Y), epochs=1)
    assert not (tmp_path / "run").exists()


class Spoil(keras.callbacks.Callback):
    """Makes all epochs after the second worse."""

    def on_epoch_begin(self, epoch, logs=None):
        for weight in self.model.trainable_variables if epoch > 1 else ():
            weight.assign(3 * weight)


def test_the_weights_of_the_best_epoch_are_restored(tmp_path):
    """Also if the run was interrupted after it."""
    data = dataset(X, Y)

    def best(name, *callbacks):
        callbacks = [Spoil(), keras.callbacks.EarlyStopping(patience=2), *callbacks]
        settings = {"epochs": 9, "restore_best": True, "callbacks": callbacks}
        return train(unused, data, tmp_path / name, **settings)

    expected = train(unused, data, tmp_path / "expected", epochs=2)
    with pytest.raises(InterruptedError):
        best("part", StopAt(16))
    for name in ("whole", "part"):
        assert_same_weights(best(name), expected)
        assert len(history_rows(tmp_path / name)) == 4


@pytest.mark.ci
def test_a_run_that_was_interrupted_may_have_more_epochs(tmp_path):
    """And a function of the steps done gives what the data set gives, read again."""
    whole = train(unused, dataset(X, Y), tmp_path / "whole", epochs=4)
    with pytest.raises(InterruptedError):
        train(unused, dataset(X, Y), tmp_path / "part", callbacks=[StopAt(11)])
    run = begin(tmp_path / "part")
    model = unused()

    def from_step(step):
        return dataset(X, Y).repeat().skip(step)

    run.train(model, from_step, epochs=4, steps_per_epoch=7, validation_data=dataset(X, Y))
    assert_same_weights(model, whole)
    for name, lengths in (("epochs: 4", (5, 7)), ("steps_per_epoch: 7", (4, 5))):
        with pytest.raises(UserError, match=rf"{name}, now 5\n.*The run is finished\."):
            run.train(model, from_step, epochs=lengths[0], steps_per_epoch=lengths[1])


@pytest.mark.usefixtures("same_policy")
@pytest.mark.parametrize(
    "bfloat16, capabilities, expected",
    [
        (0.5, [], "mixed_bfloat16"),  # on the CPU, in these seconds; 1 in float32
        (0.9, [], "float32"),
        (0.9, [(9, 0)], "mixed_bfloat16"),
        (0.5, [(7, 5)], "mixed_float16"),
        (0.5, [(9, 0), (7, 0)], "mixed_float16"),  # they train together
        (0.5, [(6, 1)], "float32"),
        (0.5, [None], "float32"),  # of another manufacturer
    ],
)
def test_the_precision_suits_the_devices(
    bfloat16, capabilities, expected, tmp_path, monkeypatch, capsys
):
    details = [
        {} if one is None else {"compute_capability": one, "device_name": "A card"}
        for one in capabilities
    ]
    gpus = [SimpleNamespace(name=f"GPU:{index}") for index in range(len(details))]
    seconds = {"float32": 1.0, "bfloat16": bfloat16}
    hardware.is_faster_in_bfloat16.cache_clear()
    monkeypatch.setattr(hardware, "seconds_of_product", seconds.__getitem__)
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda _: gpus)
    monkeypatch.setattr(
        tf.config.experimental, "get_device_details", lambda gpu: details[gpus.index(gpu)]
    )
    run = zoo.training.Run(out=str(tmp_path / "run"), precision="auto")
    assert run.settings.precision == keras.config.dtype_policy().name == expected
    line = capsys.readouterr().out
    assert f"Precision: {expected}.\n" in line
    name = "CPU with" if not details else "A card, compute" if details[0] else "GPU:0"
    assert line.startswith(f"Devices: {name}")


@pytest.mark.usefixtures("same_policy")
@pytest.mark.parametrize("precision", ["mixed_bfloat16", "mixed_float16"])
def test_a_run_is_not_resumed_in_another_precision(precision, tmp_path, monkeypatch):
    monkeypatch.setattr("zoo.training.run.faster_precision", lambda: precision)
    path = str(tmp_path / "run")
    batches = dataset(X, Y)
    run = zoo.training.Run(out=path, precision="auto")
    run.train(unused(), batches, epochs=1)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["config"]["precision"] == precision
    monkeypatch.setattr("zoo.training.run.faster_precision", lambda: "float32")
    resumed = zoo.training.Run(out=path, resume=True, precision="auto")
    assert resumed.settings.precision == precision  # on another machine
    other = zoo.training.Run(out=path, overwrite=True, precision="auto")
    assert other.settings.precision == "float32"
    with pytest.raises(UserError, match=f"precision: '{precision}', now 'float32'"):
        resumed = zoo.training.Run(out=path, resume=True)
        resumed.train(unused(), batches, epochs=1)


@pytest.mark.parametrize("steps", [0, 3, 100])
def test_steps_are_profiled(steps, tmp_path):
    """From the tenth of 7 steps an epoch on, to the end at most."""
    run = zoo.training.Run(out=str(tmp_path / "run"), profile=steps)
    run.train(unused(), dataset(X, Y), epochs=2)
    traces = [*tmp_path.rglob("*.xplane.pb")]
    assert len(traces) == (steps > 0)


def test_a_run_too_short_to_profile_is_refused(tmp_path):
    run = zoo.training.Run(out=str(tmp_path / "run"), profile=3)
    with pytest.raises(UserError, match="begins at step 10. The run has 7"):
        run.train(unused(), dataset(X, Y), epochs=1)
    assert not (tmp_path / "run").exists()


@pytest.mark.ci
def test_the_script_of_the_docs_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    [code] = re.findall("```python\n(.*?)```", (DOCS / "training_your_model.md").read_text(), re.S)
    assert len(code.strip().splitlines()) < 35
    exec(code, {"__name__": "script"})
    rows = history_rows(tmp_path / "runs" / "digits_cnn")
    assert len(rows) == 2 and rows[-1]["val_accuracy"] > 0.8
