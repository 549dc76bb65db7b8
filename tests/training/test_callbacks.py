"""Speed, history files, patch dropout, and the average of the last epochs."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf

import zoo
from tests.training.test_optimizers import SMALL
from zoo.layers import PatchDropout
from zoo.training.callbacks import (
    AverageCheckpoints,
    HistoryFile,
    LearningRateAndSpeed,
    Norms,
    PatchDropoutRates,
)
from zoo.training.trainer import Trainer

IMAGES = np.random.default_rng(0).normal(size=(8, 8, 8, 3)).astype("float32")
LABELS = np.eye(3, dtype="float32")[np.arange(8) % 3]


def small_model():
    layers = [keras.layers.Dense(2), keras.layers.BatchNormalization()]
    model = keras.Sequential([keras.Input((3,)), *layers])
    model.compile(keras.optimizers.Adam(0.2), "mse")
    return model


@pytest.mark.parametrize("first, expected", [(0, [3, 4]), (3, [4])])
def test_rates_of_patch_dropout_follow_each_other(first, expected, monkeypatch):
    """Each is traced when its epochs begin, also if training is resumed there."""
    tokens, call = [], PatchDropout.call

    def record(self, x, training=False):
        x = call(self, x, training)
        tokens.extend([x.shape[1]] * bool(training))
        return x

    model = zoo.vit(**SMALL, patch_dropout=0.75)  # a class token, a register token and four patches
    trainer = Trainer(model)
    loss = keras.losses.CategoricalCrossentropy(from_logits=True, reduction="sum")
    trainer.compile(keras.optimizers.SGD(0.01), loss)
    batches = tf.data.Dataset.from_tensors((IMAGES, LABELS, np.ones(8, "float32"))).repeat()
    monkeypatch.setattr(PatchDropout, "call", record)
    trainer.fit(
        batches,
        epochs=4,
        initial_epoch=first,
        steps_per_epoch=2,
        callbacks=[PatchDropoutRates([0.75, 0.5], 4)],
        verbose=0,
    )
    assert list(dict.fromkeys(tokens)) == expected


@pytest.mark.parametrize("first_step, expected", [(0, 2.0), (7, 0.5), (4, 2.0), (8, math.nan)])
def test_speed_is_that_of_training_alone(monkeypatch, first_step, expected):
    """Of what was trained on in this process, in an epoch that it began or went on with."""
    now = iter([10.0, 14.0, 99.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(now))
    speed = LearningRateAndSpeed(4, first_step, {"images": 8})
    speed.set_model(small_model())
    logs = {}
    speed.on_epoch_begin(1)
    speed.on_test_begin()
    speed.on_epoch_end(1, logs)
    speeds = [logs["images_per_second"], logs["images_per_second_per_device"]]
    np.testing.assert_array_equal(speeds, expected)
    assert abs(logs["learning_rate"] - 0.2) < 1e-6


@pytest.mark.parametrize("dtype", ["float32", "mixed_float16"])
def test_norms_are_those_of_the_last_step(dtype):
    """Of an epoch of one step: of gradients before clipping and, in float16, before scaling."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, dtype=dtype)])
    model.dtype_policy = dtype
    trainer = Trainer(model)
    trainer.compile(keras.optimizers.SGD(0.5, global_clipnorm=0.1), keras.losses.MeanSquaredError())
    inputs, labels = np.full((4, 3), 0.1, "float32"), np.ones((4, 2), "float32")
    before = model.get_weights()
    batches = tf.data.Dataset.from_tensors((inputs, labels, np.ones(4, "float32"))).repeat()
    norms = Norms(1)
    logs = trainer.fit(batches, steps_per_epoch=1, callbacks=[norms], verbose=0).history
    after = model.get_weights()
    # of the mean of (x W + b - y)² over four rows and two columns
    errors = 2 * (inputs @ before[0] + before[1] - labels) / 8
    gradients = [inputs.T @ errors, errors.sum(axis=0)]
    expected = {
        "gradient_norm": norm(gradients),
        "weight_norm": norm(after),
        "update_norm": norm([new - old for new, old in zip(after, before)]),
    }
    assert expected["update_norm"] == pytest.approx(0.05, rel=1e-2), "0.5 times the clipped norm"
    for name, value in expected.items():
        tolerance = 1e-5 if dtype == "float32" else 1e-2
        assert logs[name] == pytest.approx([value], rel=tolerance)
        assert norms.values[name] == logs[name][0]


def test_norms_are_measured_at_their_step_after_a_skipped_update():
    """The first step overflows in float16, so the optimizer counts one update less."""
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, dtype="mixed_float16")])
    model.dtype_policy = "mixed_float16"
    trainer = Trainer(model)
    trainer.set_weights([np.zeros_like(weight) for weight in trainer.get_weights()])
    trainer.compile(keras.optimizers.SGD(1e-3), keras.losses.MeanSquaredError())
    labels = np.ones((24, 1, 1), "float32")
    labels[0] = 1e4
    arrays = np.ones((24, 1, 1), "float32"), labels, np.ones((24, 1), "float32")
    norms = Norms(12)
    trainer.fit(
        tf.data.Dataset.from_tensor_slices(arrays),
        epochs=2,
        steps_per_epoch=12,
        callbacks=[norms],
        verbose=0,
    )
    assert int(trainer.optimizer.iterations) == 23
    steps, found = zip(*norms._measured)
    assert steps == (1, 11, 21)
    assert found[0] == math.inf
    # wx + b - 1 with x = 1 is -1 at first; each update multiplies it by 1 - 2 · 2 · 1e-3. The steps
    # 11 and 21 come after 9 and 19 updates.
    expected = [2 * math.sqrt(2) * (1 - 4e-3) ** updates for updates in (9, 19)]
    assert found[1:] == pytest.approx(expected, rel=5e-3)


def norm(arrays):
    return np.sqrt(sum((array.astype("float64") ** 2).sum() for array in arrays))


def test_the_history_is_written_whole_and_once(tmp_path):
    """An epoch that is run again takes the place of itself and of those after it."""
    files = HistoryFile(tmp_path)
    for epoch, loss in ((0, 3.0), (1, float("nan")), (2, 1.0)):
        files.on_epoch_end(epoch, {"loss": np.float32(loss)})
    table = tmp_path / "history.csv"
    assert table.read_text().split() == ["epoch,loss", "0,3.0", "1,nan", "2,1.0"]
    HistoryFile(tmp_path).on_epoch_end(1, {"loss": 2.0, "val_loss": 4.0})
    assert table.read_text().split() == ["epoch,loss,val_loss", "0,3.0,", "1,2.0,4.0"]


# --- the average of the last epochs -----------------------------------------------------------


def keep(average, model, epoch, value, loss=None):
    """Ends an epoch with weights that all are `value`."""
    model.set_weights([np.full(w.shape, value, "float32") for w in model.get_weights()])
    average.set_model(model)
    average.on_epoch_end(epoch, {} if loss is None else {"val_loss": loss})


def test_the_last_epochs_are_averaged_across_interruptions(tmp_path):
    model = small_model()
    (tmp_path / "history.csv").write_text("a file of somebody else")
    for epoch, value in enumerate([100.0, 1.0, 2.0, 70.0]):
        keep(AverageCheckpoints(tmp_path, 3), model, epoch, value)
    # killed before epoch 3 counted as done: it is run again, and then another one
    keep(AverageCheckpoints(tmp_path, 3), model, 3, 6.0)
    assert len(list((tmp_path / "last_epochs").iterdir())) == 3
    fresh = small_model()
    average = AverageCheckpoints(tmp_path, 3)
    average.average(fresh)
    for weights in fresh.get_weights():
        np.testing.assert_array_equal(weights, np.full(weights.shape, 3.0))  # (1 + 2 + 6) / 3
    keep(average, model, 1, 9.0)  # gone on from an older checkpoint: later epochs are no more
    average.average(fresh)
    np.testing.assert_array_equal(fresh.get_weights()[0], np.full((3, 2), 9.0))
    with pytest.raises(ValueError):
        average.average(keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)]))
    average.remove()
    assert [path.name for path in tmp_path.iterdir()] == ["history.csv"]


@pytest.mark.parametrize(
    "losses, averaged",
    [
        ([3.0, 2.0, 1.0, 1.5, 1.2], [1, 2]),
        ([3.0, 2.0, 1.0, 1.5, 1.2, 0.9], [4, 5]),
        ([1.0, 2.0, 3.0], [0]),
        ([math.nan, 2.0, 2.0], [0, 1]),
        ([None, 2.0, None, 3.0, None], [0, 1]),  # validated every other epoch
        ([None, None, None], [1, 2]),
        ([math.inf, math.inf], [0, 1]),
    ],
)
def test_no_epoch_after_the_best_one_is_averaged(tmp_path, losses, averaged):
    model = small_model()
    for epoch, loss in enumerate(losses):
        average = AverageCheckpoints(tmp_path, 2)  # as after an interruption
        keep(average, model, epoch, 2.0**epoch, loss)
    average.average(model)
    expected = np.mean([2.0**epoch for epoch in averaged])
    np.testing.assert_array_equal(model.get_weights()[0], np.full((3, 2), expected))


def test_weights_in_16_bits_and_counts(tmp_path):
    class Counted(keras.layers.Dense):
        def build(self, input_shape):
            self.seen = self.add_weight(shape=(), dtype="int32", trainable=False, name="seen")
            super().build(input_shape)

    model = keras.Sequential([keras.Input((3,)), Counted(2, dtype="bfloat16")])
    counter = model.layers[0].seen
    average = AverageCheckpoints(tmp_path, 2)
    for epoch in range(2):
        keep(average, model, epoch, 1.0 + epoch)
        counter.assign(7 + epoch)
        average.on_epoch_end(epoch)
    average.average(model)
    kernel = model.layers[0].kernel
    assert kernel.dtype == "bfloat16"
    np.testing.assert_array_equal(np.asarray(kernel.numpy(), "float32"), np.full((3, 2), 1.5))
    assert int(counter) == 8
