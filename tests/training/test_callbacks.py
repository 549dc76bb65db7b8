"""Speed, history files and patch dropout."""

import csv
import json
import math

import keras
import numpy as np
import pytest
import tensorflow as tf

import zoo
from zoo.layers import PatchDropout
from zoo.training.callbacks import EpochFigures, HistoryFiles, PatchDropoutRates
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
    callbacks = [EpochFigures(tokens_per_epoch=100), HistoryFiles(tmp_path)]
    small_model().fit(np.zeros((4, 3)), np.ones((4, 2)), 2, 2, 0, callbacks)
    with open(tmp_path / "history.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    names = {"epoch", "loss", "learning_rate", "tokens_per_second", "tokens_per_second_per_device"}
    assert len(rows) == 2 and names <= set(rows[0])


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
