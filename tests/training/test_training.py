"""Optimizer, run folder, figures and history."""

import json
import math
import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf

import zoo
from zoo.layers import PatchDropout
from zoo.training.callbacks import EpochFigures, HistoryFiles, PatchDropoutRates
from zoo.training.optimizers import adamw, muon
from zoo.training.trainer import Trainer

ROOT = pathlib.Path(__file__).parents[2]
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


def compiled(optimizer=adamw, **options):
    keras.utils.set_random_seed(0)
    model = zoo.vit(**SMALL)
    settings = {"learning_rate": 0.1, "weight_decay": 0.5, "total_steps": 100, **options}
    model.compile(
        optimizer(model, **settings), keras.losses.CategoricalCrossentropy(from_logits=True)
    )
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


@pytest.mark.parametrize("optimizer", [adamw, muon])
def test_only_matrices_decay(optimizer):
    """Without gradients, a step changes what decays and nothing else."""
    model = compiled(optimizer)
    before = [v.numpy() for v in model.trainable_variables]
    zeros = [np.zeros(v.shape, "float32") for v in model.trainable_variables]
    model.optimizer.apply(zeros, model.trainable_variables)
    decayed = {
        variable.path
        for variable, old in zip(model.trainable_variables, before)
        if not np.array_equal(variable.numpy(), old)
    }
    assert decayed == {v.path for v in model.trainable_variables if v.path.endswith("kernel")}
    assert len(decayed) == 2 + 4 * 2  # patches and head, and four in each of two blocks


@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16", "bfloat16", "float64"])
def test_muon_moves_the_matrices_of_blocks_alike_in_all_directions(precision, same_policy):
    """Their updates are close to orthogonal, of AdamW's size; all else moves as with AdamW."""
    keras.config.set_dtype_policy(precision)
    models = [compiled(optimizer, weight_decay=0.0) for optimizer in (adamw, muon)]
    assert models[1].optimizer.in_bfloat16 == ("bfloat16" in precision)
    random = np.random.default_rng(0)
    gradients = [
        random.normal(size=v.shape).astype("float32") for v in models[0].trainable_variables
    ]
    moved = []
    for model in models:
        before = [v.numpy() for v in model.trainable_variables]
        tensors = list(map(keras.ops.convert_to_tensor, gradients))
        model.optimizer.apply(tensors, model.trainable_variables)
        moved.append([old - v.numpy() for v, old in zip(model.trainable_variables, before)])
    matrices = 0
    for variable, by_adamw, by_muon in zip(models[0].trainable_variables, *moved):
        if not (variable.path.startswith("vit/encoder_") and variable.name == "kernel"):
            np.testing.assert_allclose(by_muon, by_adamw, atol=1e-6)
            continue
        matrices += 1
        sizes = np.linalg.svd(by_muon, compute_uv=False)
        # 0.2 · √(longer side) times a singular value that is close to one, between 0.5 and 1.3
        expected = 0.1 * 0.2 * max(by_muon.shape) ** 0.5
        assert 0.5 * expected < sizes.min() and sizes.max() < 1.3 * expected
    assert matrices == 4 * 2


@pytest.mark.parametrize("optimizer", [adamw, muon])
def test_the_learning_rate_rises_and_falls(optimizer):
    model = compiled(optimizer, learning_rate=0.2, total_steps=100, warmup_steps=10)
    schedule = model.optimizer._learning_rate
    rates = np.array([float(schedule(step)) for step in range(101)])
    np.testing.assert_allclose(rates[:11], 0.2 * np.arange(11) / 10, atol=1e-6)
    expected = 0.1 * (1 + np.cos(np.pi * np.arange(91) / 90))
    np.testing.assert_allclose(rates[10:], expected, atol=1e-6)


def test_gradients_are_clipped_together():
    model = compiled(learning_rate=1.0, weight_decay=0.0, clip_norm=1e-3)
    gradients = [np.ones(v.shape, "float32") for v in model.trainable_variables]
    clipped = model.optimizer._clip_gradients([keras.ops.convert_to_tensor(g) for g in gradients])
    norm = np.sqrt(sum(float(keras.ops.sum(g**2)) for g in clipped))
    assert abs(norm - 1e-3) < 1e-6
    values = {round(float(keras.ops.max(g)), 8) for g in clipped}
    assert len(values) == 1, "all shrink by the same factor"


def test_the_model_ends_with_averaged_weights():
    model = compiled(ema_momentum=0.9, weight_decay=0.0)
    seen = []

    class Record(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            seen.append(model.head.kernel.numpy())

    model.fit(
        IMAGES, LABELS, batch_size=2, epochs=2, shuffle=False, callbacks=[Record()], verbose=0
    )
    average = seen[0]
    for weights in seen[1:]:
        average = 0.9 * average + 0.1 * weights
    np.testing.assert_allclose(model.head.kernel.numpy(), average, atol=1e-6)


@pytest.mark.parametrize("first_step,expected", [(0, 2.0), (7, 0.5), (4, 2.0)])
def test_speed_is_that_of_training_alone(monkeypatch, first_step, expected):
    """Of what was trained on in this process, in an epoch that it began or went on with."""
    now = iter([10.0, 14.0, 99.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(now))
    figures = EpochFigures(steps_per_epoch=4, first_step=first_step, images_per_epoch=8)
    figures.set_model(compiled(learning_rate=0.2))
    logs = {}
    figures.on_epoch_begin(1)
    figures.on_test_begin()
    figures.on_epoch_end(1, logs)
    assert logs["images_per_second"] == logs["images_per_second_per_device"] == expected
    assert abs(logs["learning_rate"] - 0.2) < 1e-6


def test_the_speed_is_unknown_if_only_validation_was_left(monkeypatch):
    figures = EpochFigures(steps_per_epoch=4, first_step=8, images_per_epoch=8)
    figures.set_model(compiled(learning_rate=0.2))
    logs = {}
    figures.on_epoch_begin(1)
    figures.on_epoch_end(1, logs)
    assert math.isnan(logs["images_per_second"])


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
