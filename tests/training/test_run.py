"""`zoo.training.Run` with models of all kinds: Keras's own results, exact resuming, and errors."""

import json
import pathlib
import re
import subprocess
import sys
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

import zoo.training
from zoo.errors import DataError, UserError
from zoo.training.run_folder import RunFolderError

ROOT = pathlib.Path(__file__).parents[2]
DOCS = ROOT / "docs"
SCRIPT = pathlib.Path(__file__).parent / "own_script.py"
ROWS = 44  # of examples: six batches of 7 and one of 2
X = np.random.default_rng(0).normal(size=(ROWS, 6)).astype("float32")
Y = (X @ np.linspace(-1, 1, 18).reshape(6, 3)).argmax(axis=1)


def dataset(*arrays):
    return tf.data.Dataset.from_tensor_slices(arrays).batch(7)


def classifier(**settings):
    """A functional model with everything that a step must treat right."""
    inputs = keras.Input((6,))
    x = keras.layers.Dense(8, use_bias=False, kernel_regularizer="l2")(inputs)
    x = keras.layers.BatchNormalization()(x)
    x = keras.layers.Lambda(lambda x: keras.ops.relu(x), output_shape=(8,))(x)
    frozen = keras.layers.Dense(8, trainable=False, kernel_initializer="ones")
    x = keras.layers.Dropout(0.3)(x + 0.01 * frozen(x))
    model = keras.Model(inputs, keras.layers.Dense(3)(x))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"], **settings)
    return model


def two_outputs(**settings):
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
        **settings,
    )
    return model


class Unused(keras.Model):
    """A subclass with a weight on which no loss depends."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.used, self.unused = keras.layers.Dense(3), keras.layers.Dense(2)
        self.unused.build((None, 6))
        self.build((None, 6))

    def build(self, input_shape):
        self.used.build(input_shape)

    def call(self, x):
        return self.used(x)


def unused(**settings):
    model = Unused()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, **settings)
    return model


def tagger(**settings):
    """A label for each item of sequences of any length."""
    inputs = keras.Input((None,), dtype="int32")
    x = keras.layers.Dense(3)(keras.layers.Embedding(9, 4)(inputs))
    model = keras.Model(inputs, x)
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), **settings)
    return model


def shortened(*sequences):
    """To four items in batches of 7, to five in the batch of 2."""
    return tuple(sequence[:, : 3 + tf.shape(sequence)[0] % 3] for sequence in sequences)


ITEMS = np.random.default_rng(1).integers(0, 3, (ROWS, 6))
KINDS = {
    "classifier": (classifier, dataset(X, Y)),
    "weights of examples": (classifier, dataset(X, Y, np.linspace(0.5, 2, ROWS))),
    "two outputs": (two_outputs, dataset({"a": X}, {"kind": Y, "size": X[:, :2]})),
    "an unused variable": (unused, dataset(X, Y)),
    "sequences": (tagger, dataset(ITEMS, ITEMS).map(shortened)),
    "weights of items": (tagger, dataset(ITEMS, ITEMS, 0.5 + ITEMS / 2).map(shortened)),
}


def train(make, data, folder, seed=3, epochs=2, callbacks=(), validation=True, **settings):
    keras.backend.clear_session()
    run = zoo.training.Run(out=str(folder), seed=seed, resume=folder.exists(), checkpoint_steps=3)
    data = data() if callable(data) else data  # a shuffle takes the seed of the run
    with run.scope():
        model = make(**settings)
    run.train(
        model,
        data,
        epochs=epochs,
        validation_data=data if validation else None,
        callbacks=list(callbacks),
    )
    return model


def history(folder):
    return [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("kind", KINDS)
def test_on_one_device_it_is_fit_of_keras(kind, tmp_path):
    make, data = KINDS[kind]
    found = train(make, data, tmp_path / "run")
    keras.backend.clear_session()
    keras.utils.set_random_seed(3)
    expected = make()
    logs = expected.fit(data, validation_data=data, epochs=2, verbose=0).history
    for mine, other in zip(found.get_weights(), expected.get_weights(), strict=True):
        # float32 sums in another order
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-5)
    rows = history(tmp_path / "run")
    for name, values in logs.items():
        np.testing.assert_allclose([row[name] for row in rows], values, rtol=1e-4)
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["val_loss"] == rows[-1]["val_loss"]
    loaded = keras.saving.load_model(
        tmp_path / "run" / "model.keras", safe_mode=False, custom_objects={"Unused": Unused}
    )
    for mine, other in zip(found.get_weights(), loaded.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, other)


class Stop(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if int(self.model.optimizer.iterations) == 11:
            raise InterruptedError


@pytest.mark.parametrize(
    "make, before, after",
    [(classifier, 1, 1), (classifier, 7, 7), (classifier, 1, 7), (two_outputs, 1, 1)],
)
def test_resumed_is_uninterrupted(tmp_path, make, before, after):
    """To the bit, with these steps per execution; the last checkpoint is some steps old."""

    def three_epochs(folder, steps_per_execution, *callbacks):
        settings = {"epochs": 3, "callbacks": callbacks}
        settings["steps_per_execution"] = steps_per_execution
        data = KINDS["classifier" if make is classifier else "two outputs"][1]
        return train(make, lambda: data.shuffle(7), folder, validation=False, **settings)

    whole = three_epochs(tmp_path / "whole", before)
    with pytest.raises(InterruptedError):
        three_epochs(tmp_path / "part", before, Stop() if before == 1 else StopInTheEnd())
    part = three_epochs(tmp_path / "part", after)
    for mine, other in zip(part.get_weights(), whole.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, other)
    ended = [history(tmp_path / name) for name in ("part", "whole")]
    assert ended[0] == ended[1]


class StopInTheEnd(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 2:
            raise InterruptedError


def test_several_steps_per_execution_change_nothing(tmp_path):
    found = [
        train(classifier, dataset(X, Y), tmp_path / str(steps), steps_per_execution=steps)
        for steps in (1, 7)
    ]
    for mine, other in zip(*(model.get_weights() for model in found), strict=True):
        np.testing.assert_array_equal(mine, other)
    with pytest.raises(UserError, match="must divide the 7 steps of an epoch. Received: 2"):
        train(classifier, dataset(X, Y), tmp_path / "2", steps_per_execution=2)
    assert not (tmp_path / "2").exists()


def test_a_function_of_the_steps_done(tmp_path):
    """It gives the batches without end; the data set is the same, read again."""

    def from_step(step):
        return dataset(X, Y).repeat().skip(step)

    expected = train(classifier, dataset(X, Y), tmp_path / "set", validation=False)
    run = zoo.training.Run(out=str(tmp_path / "function"), seed=3)
    keras.backend.clear_session()
    with run.scope():
        model = classifier()
    run.train(model, from_step, epochs=2, steps_per_epoch=7)
    for mine, other in zip(model.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, other)


def test_what_cannot_be_trained(tmp_path):
    run = zoo.training.Run(out=str(tmp_path / "run"))
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(3)])
    with pytest.raises(ValueError, match="must be compiled"):
        run.train(model, dataset(X, Y), epochs=1)
    unknown = dataset(X, Y).filter(lambda x, y: True)
    with pytest.raises(DataError, match="Pass steps_per_epoch"):
        run.train(classifier(), unknown, epochs=1)
    assert not (tmp_path / "run").exists()
    train(classifier, dataset(X, Y), tmp_path / "run", epochs=1)
    with pytest.raises(RunFolderError, match="seed: 3, now 4"):
        train(classifier, dataset(X, Y), tmp_path / "run", seed=4)


def test_a_run_that_was_interrupted_may_have_more_epochs(tmp_path):
    whole = train(classifier, dataset(X, Y), tmp_path / "whole", epochs=4)
    with pytest.raises(InterruptedError):
        train(classifier, dataset(X, Y), tmp_path / "part", callbacks=[Stop()])
    part = train(classifier, dataset(X, Y), tmp_path / "part", epochs=4)
    for mine, other in zip(part.get_weights(), whole.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, other)


def test_the_script_of_the_docs_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    [code] = re.findall("```python\n(.*?)```", (DOCS / "training_your_model.md").read_text(), re.S)
    assert len(code.strip().splitlines()) < 35
    exec(code, {"__name__": "script"})
    rows = history(tmp_path / "runs" / "digits_cnn")
    assert len(rows) == 2 and rows[-1]["val_accuracy"] > 0.8


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_script_on_two_devices_is_killed_and_resumed(tmp_path, workers):
    """With the result of an uninterrupted run to the bit, and of one device but for rounding."""
    whole, part, one = (tmp_path / name for name in ("whole", "part", "one"))

    def start(folder, *arguments):
        launch = ["-m", "zoo", "launch", "--workers", "2", "--", sys.executable]
        command = [sys.executable, *(launch if workers == 2 else []), str(SCRIPT), str(folder)]
        return subprocess.Popen(
            [*command, *(arguments if workers == 1 else [])], cwd=SCRIPT.parents[2]
        )

    assert start(whole, "2").wait() == 0
    process = start(part, "2")
    while not list(part.glob("checkpoints/epoch_00001_*")):
        assert process.poll() is None
        time.sleep(0.05)
    process.kill() if workers == 1 else process.terminate()
    process.wait()
    assert not (part / "model.keras").exists()
    assert start(part, "2").wait() == 0
    assert (
        subprocess.run([sys.executable, str(SCRIPT), str(one)], cwd=SCRIPT.parents[2]).returncode
        == 0
    )
    expected, resumed, alone = (
        keras.saving.load_model(folder / "model.keras", safe_mode=False).get_weights()
        for folder in (whole, part, one)
    )
    for mine, other, single in zip(resumed, expected, alone, strict=True):
        np.testing.assert_array_equal(mine, other)
        # float32 sums in another order, which Adam amplifies where gradients are small
        np.testing.assert_allclose(mine, single, atol=2e-2)
    accuracies = [history(folder)[-1]["val_digit_accuracy"] for folder in (whole, one)]
    np.testing.assert_allclose(*accuracies, atol=0.01)
