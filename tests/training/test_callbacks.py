"""Speed, history files, patch dropout and early stopping."""

import csv
import json
import math

import keras
import numpy as np
import pytest
import tensorflow as tf

import zoo
from zoo.layers import PatchDropout
from zoo.training.callbacks import (
    EarlyStopping,
    EpochFigures,
    HistoryFiles,
    PatchDropoutRates,
    standard_callbacks,
)
from zoo.training.trainer import Trainer

SMALL = {
    "input_shape": (8, 8, 3),
    "num_classes": 3,
    "patch_size": 4,
    "embed_dim": 8,
    "num_heads": 2,
    "num_layers": 2,
    "num_registers": 1,
    "layer_scale": 0.1,
}
IMAGES = np.random.default_rng(0).normal(size=(8, 8, 8, 3)).astype("float32")
LABELS = np.eye(3, dtype="float32")[np.arange(8) % 3]


def small_model():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile(keras.optimizers.SGD(0.2), "mse")
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
    figures = EpochFigures(steps_per_epoch=4, first_step=first_step, images_per_epoch=8)
    figures.set_model(small_model())
    logs = {}
    figures.on_epoch_begin(1)
    figures.on_test_begin()
    figures.on_epoch_end(1, logs)
    speeds = [logs["images_per_second"], logs["images_per_second_per_device"]]
    np.testing.assert_array_equal(speeds, expected)
    assert abs(logs["learning_rate"] - 0.2) < 1e-6


def test_figures_are_named_after_what_is_counted(tmp_path):
    model = small_model()
    callbacks = standard_callbacks(tmp_path, tokens_per_epoch=100)
    model.fit(np.zeros((4, 3)), np.ones((4, 2)), 2, 2, 0, callbacks)
    with open(tmp_path / "history.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    names = {"epoch", "loss", "learning_rate", "tokens_per_second", "tokens_per_second_per_device"}
    assert len(rows) == 2 and names <= set(rows[0])
    assert any((tmp_path / "tensorboard").rglob("events*"))


def test_the_history_is_written_whole_and_once(tmp_path):
    """An epoch that is run again takes the place of itself and of those after it."""
    files = HistoryFiles(tmp_path)
    for epoch, loss in ((0, 3.0), (1, float("nan")), (2, 1.0)):
        files.on_epoch_end(epoch, {"loss": np.float32(loss)})
    rows = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    assert rows == [
        {"epoch": 0, "loss": 3.0},
        {"epoch": 1, "loss": None},
        {"epoch": 2, "loss": 1.0},
    ]
    assert (tmp_path / "history.csv").read_text().split() == [
        "epoch,loss",
        "0,3.0",
        "1,nan",
        "2,1.0",
    ]
    HistoryFiles(tmp_path).on_epoch_end(1, {"loss": 2.0, "val_loss": 4.0})
    assert (tmp_path / "history.csv").read_text().split() == [
        "epoch,loss,val_loss",
        "0,3.0,nan",
        "1,2.0,4.0",
    ]


# --- early stopping ------------------------------------------------------------------------------


def run_epochs(folder, values, patience, monitor, first=0, last=None):
    """What `fit` asks of its callbacks in epochs of these values; returns the epochs done."""
    stopping = EarlyStopping(folder, patience, monitor)
    if stopping.has_stopped(first):
        return first
    model = keras.Model()
    callbacks = keras.callbacks.CallbackList([HistoryFiles(folder), stopping], model=model)
    model.stop_training = False
    callbacks.on_train_begin()
    for epoch in range(first, len(values) if last is None else last):
        callbacks.on_epoch_begin(epoch)
        callbacks.on_epoch_end(epoch, {monitor: values[epoch]})
        if model.stop_training:
            break
    callbacks.on_train_end()
    return epoch + 1


LOSSES = [5.0, 4.0, 4.5, 4.2, 3.9, 4.0, 4.1, 4.05, 3.0, 2.0]


@pytest.mark.parametrize("patience,expected", [(0, 3), (1, 3), (2, 4), (3, 8), (4, 10)])
@pytest.mark.parametrize("monitor,sign", [("val_loss", 1.0), ("val_bleu", -1.0)])
def test_a_resumed_run_stops_where_an_uninterrupted_one_does(
    tmp_path, patience, expected, monitor, sign
):
    values = [sign * v for v in LOSSES]
    for cut in range(expected + 1):
        folder = tmp_path / str(cut)
        folder.mkdir()
        if cut:
            assert run_epochs(folder, values, patience, monitor, last=cut) == cut
        if cut < len(values):
            assert run_epochs(folder, values, patience, monitor, first=cut) == expected


def test_keras_stops_a_resumed_fit(tmp_path):
    """The weights do not learn: from the second epoch on, nothing gets better."""
    for epochs, first in ((2, 0), (9, 2)):
        stopping = EarlyStopping(tmp_path, 3)
        model = small_model()
        model.trainable = False
        model.compile("sgd", "mse")
        history = model.fit(
            np.zeros((1, 3)),
            np.ones((1, 2)),
            validation_data=(np.zeros((1, 3)), np.ones((1, 2))),
            epochs=epochs,
            initial_epoch=first,
            callbacks=[*standard_callbacks(tmp_path), stopping],
            verbose=0,
        )
    assert history.epoch == [2, 3]
    assert stopping.has_stopped(4) and not stopping.has_stopped(3)


def history_of(folder, *losses):
    rows = [{"epoch": n} if x == "none" else {"epoch": n, "val_loss": x} for n, x in losses]
    (folder / "history.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_epochs_that_do_not_count_as_done(tmp_path):
    """The history of an interrupted run may have one more."""
    history_of(tmp_path, (0, 5.0), (1, 4.0), (2, 0.1))
    assert run_epochs(tmp_path, [5.0, 4.0, 3.0, 2.0], 1, "val_loss", first=2) == 4


def test_epochs_without_validation_do_not_count(tmp_path):
    """Those with a loss that is not finite, written as null, do."""
    history_of(tmp_path, (0, 5.0), (1, "none"), (2, None), (3, "none"), (4, 5.2))
    stopping = EarlyStopping(tmp_path, 2)
    assert stopping.has_stopped(5) and not stopping.has_stopped(4)
    history_of(tmp_path, (0, "none"))
    assert not stopping.has_stopped(1)
