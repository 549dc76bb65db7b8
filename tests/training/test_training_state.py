"""Checkpoints: what they hold, when they are written, and what happens to bad ones."""

import contextlib
import os
import re
import resource
import shutil
import signal
import time
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

from zoo.errors import UserError
from zoo.files import WriteError
from zoo.training import state_file as files
from zoo.training import training_state
from zoo.training.callbacks import HistoryFile, LearningRateAndSpeed, history_rows
from zoo.training.interruption import REPEATED, Interruption
from zoo.training.run_folder import RunFolder
from zoo.training.state_file import Damaged, TrainingStateError, load_weights
from zoo.training.trainer import Trainer
from zoo.training.training_state import TrainingState

STEPS = 4
EPOCHS = 3


def make_trainer(width=6, seed=0):
    keras.utils.set_random_seed(seed)
    layers = [
        keras.layers.Dense(width, activation="gelu"),
        keras.layers.BatchNormalization(),
        keras.layers.Dropout(0.5),
        keras.layers.Dense(3),
    ]
    trainer = Trainer(keras.Sequential([keras.Input((5,)), *layers]))
    optimizer = keras.optimizers.AdamW(0.05, use_ema=True, ema_momentum=0.9)
    loss = keras.losses.CategoricalCrossentropy(from_logits=True, reduction="sum")
    trainer.compile(
        optimizer, loss, weighted_metrics=[keras.metrics.CategoricalAccuracy(name="accuracy")]
    )
    return trainer


def batches(first_step=0, bad_step=None):
    """Random batches, each a function of the number of its step, which counts from 1."""

    def batch(step):
        x = tf.random.stateless_normal((8, 5), tf.stack([step, 0]))
        y = tf.one_hot(tf.argmax(x[:, :3], axis=1), 3)
        x = tf.where(step + 1 == (bad_step or -1), np.float32(np.nan), x)
        return x, y, tf.fill([8], 1 / 8)

    return tf.data.Dataset.range(first_step, np.iinfo(np.int64).max).map(batch)


class Killed(Exception):
    """Stands in for a power cut."""


class Meanwhile(keras.callbacks.Callback):
    """Calls a function at the beginning or the end of a step, which counts from 1, or in the
    validation of an epoch."""

    def __init__(self, function, begin=None, end=None, validation=None):
        super().__init__()
        self.function = function
        self.begin = begin
        self.end = end
        self.validation = validation

    def on_train_batch_begin(self, batch, logs=None):
        if int(self.model.optimizer.iterations) + 1 == self.begin:
            self.function()

    def on_train_batch_end(self, batch, logs=None):
        if int(self.model.optimizer.iterations) == self.end:
            self.function()

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_test_batch_begin(self, batch, logs=None):
        if self.epoch == self.validation:
            self.function()


def power_cut():
    raise Killed


def train(folder, trainer=None, bad_step=None, before=(), after=(), **settings):
    """Resumes from the checkpoints in the folder, as the recipes do; returns trainer and step.

    The callbacks are the standard ones but for TensorBoard, which takes most of the time.
    """
    trainer = trainer or make_trainer()
    checkpoint = TrainingState(folder, STEPS, **{"steps": 1, **settings})
    done = checkpoint.restore(trainer)
    speed = LearningRateAndSpeed(STEPS, done, {"rows": 8 * STEPS})
    swap = keras.callbacks.SwapEMAWeights()
    try:
        trainer.fit(
            batches(done, bad_step),
            epochs=EPOCHS,
            initial_epoch=checkpoint.epoch,
            steps_per_epoch=STEPS,
            validation_data=batches(1000).take(2),
            callbacks=[*before, swap, speed, HistoryFile(folder), checkpoint, *after],
            verbose=0,
        )
    finally:
        checkpoint.interruption.unwatch()
    return trainer, done


def killed(folder, step, trainer=None):
    """The checkpoints of a run whose power is cut after a step."""
    with pytest.raises(Killed):
        train(folder, trainer, after=[Meanwhile(power_cut, end=step)])
    return folder / "checkpoints"


def everything(trainer):
    groups = (trainer.variables, trainer.optimizer.variables)
    return [np.asarray(v.numpy(), "float64") for group in groups for v in group]


def steps(folder):
    """Epochs and steps of the checkpoints in a folder, oldest first."""
    return [tuple(map(int, re.findall("[0-9]+", path.name))) for path in files.paths(folder)]


def data_file(path):
    return path / "state.data-00000-of-00001"


def history(folder):
    rows = history_rows(folder)
    return [{k: v for k, v in row.items() if "per_second" not in k} for row in rows]


def assert_equal(found, expected):
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An uninterrupted run: (trainer, folder)."""
    folder = tmp_path_factory.mktemp("whole")
    return train(folder)[0], folder


@pytest.fixture(scope="module")
def interrupted_once(tmp_path_factory):
    folder = tmp_path_factory.mktemp("interrupted")
    killed(folder, 5)
    return folder


@pytest.fixture
def interrupted(interrupted_once, tmp_path):
    """The checkpoints of a run that was killed after its fifth step, in `tmp_path`."""
    shutil.copytree(interrupted_once, tmp_path, dirs_exist_ok=True)
    return tmp_path / "checkpoints"


# --- resuming ------------------------------------------------------------------------------------


def test_resumed_is_uninterrupted(whole, tmp_path):
    """To the last bit, within epochs and at their ends: weights, optimizer, dropout, history."""
    for step in (3, 8):
        assert steps(killed(tmp_path, step))[-1][1] == step
    trainer, begun = train(tmp_path)
    assert begun == 8
    assert_equal(everything(trainer), everything(whole[0]))
    assert history(tmp_path) == history(whole[1])
    assert [row["epoch"] for row in history(tmp_path)] == [0, 1, 2]


# --- which are written ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "seconds, kept", [(0.0, [(2, 11), (2, 12), (3, 12)]), (60.0, [(2, 8), (2, 11), (3, 12)])]
)
def test_the_last_ones_and_the_best_are_kept(tmp_path, monkeypatch, seconds, kept):
    """One is from before validation, if the epoch took long."""
    monkeypatch.setattr(training_state, "_SECONDS_BEFORE_VALIDATION", seconds)
    train(tmp_path, keep=3, steps=3)
    folder = tmp_path / "checkpoints"
    assert steps(folder) == kept
    losses = [row["val_loss"] for row in history(tmp_path)]
    [best] = files.paths(folder / "best")
    metadata, _ = files.read(best)
    assert metadata["val_loss"] == min(losses)
    assert metadata["step"] == STEPS * (1 + int(np.argmin(losses)))
    checkpoint = TrainingState(tmp_path, STEPS)
    checkpoint.remove()
    assert [path.name for path in folder.iterdir()] == ["best"]
    assert files.paths(folder / "best") == [best]


def test_one_is_written_after_some_minutes(tmp_path, monkeypatch):
    trainer = make_trainer()
    clock = types.SimpleNamespace(monotonic=lambda: 30.0 * int(trainer.optimizer.iterations))
    monkeypatch.setattr(training_state, "time", clock)
    checkpoint = TrainingState(tmp_path, 100, minutes=2.0, keep=9)
    checkpoint.restore(trainer)
    trainer.fit(batches(), steps_per_epoch=10, callbacks=[checkpoint], verbose=0)
    assert steps(tmp_path / "checkpoints") == [(0, 4), (0, 8), (1, 10)]


def test_weights_can_be_taken_from_a_checkpoint(whole, tmp_path):
    folder = shutil.copytree(whole[1] / "checkpoints", tmp_path / "checkpoints")
    (files.paths(folder)[-1] / "@eaDir").mkdir()  # as some file servers create
    for path in (folder, files.paths(folder)[-1]):
        model = make_trainer(seed=1).model
        load_weights(model, path)
        # at its end, `fit` gives the model the averaged weights
        assert_equal(model.get_weights(), whole[0].model.get_weights())
    with pytest.raises(TrainingStateError, match=r"weights-00000-.*\[5, 6\], not float32 \[5, 7\]"):
        load_weights(make_trainer(width=7).model, path)
    other = keras.Sequential([keras.Input((4,)), keras.layers.Dense(7, name="new")])
    with pytest.raises(
        TrainingStateError, match="cannot be used: it has no weights-00000-.*new-kernel"
    ):
        load_weights(other, path)
    model.layers[0].trainable = False
    with pytest.raises(TrainingStateError, match="averages of 6 weights, .* 4 trainable"):
        load_weights(model, path)
    with pytest.raises(TrainingStateError, match="cannot be used"):
        load_weights(model, tmp_path)


# --- bad ones ------------------------------------------------------------------------------------


class MovingAverage(keras.layers.Layer):
    def build(self, shape):
        self.moving_average = self.add_weight(shape=shape[1:], trainable=False, name="my_average")

    def call(self, x):
        return x - self.moving_average


def test_weights_that_are_averages_by_their_name(tmp_path):
    model = keras.Sequential([keras.Input((4,)), MovingAverage(), keras.layers.Dense(2)])
    model.build()
    model.layers[0].moving_average.assign([1.0, 2.0, 3.0, 4.0])
    files.write(tmp_path / "epoch_00000_step_00000001", files.variables(model), 1, {})
    before = model.get_weights()
    load_weights(model, tmp_path)
    assert_equal(model.get_weights(), before)


@pytest.mark.parametrize("name", ["state.index", "state.data-00000-of-00001"])
def test_damage_shows(interrupted, name):
    """A cut or changed file is not read, or what changed is no part of what it holds."""
    path = files.paths(interrupted)[-1]
    whole_bytes = (path / name).read_bytes()
    metadata, state = files.read(path)
    random = np.random.default_rng(0)
    noticed = 0
    for length in random.integers(0, len(whole_bytes), 20):
        (path / name).write_bytes(whole_bytes[:length])
        noticed += is_noticed(path, metadata, state)
    for position in random.integers(0, len(whole_bytes), 200):
        flipped = bytearray(whole_bytes)
        flipped[position] ^= 1 << random.integers(8)
        (path / name).write_bytes(flipped)
        noticed += is_noticed(path, metadata, state)
    assert noticed > 200  # of 220; what is between blocks of the index is not read


def is_noticed(path, metadata, state):
    try:
        found_metadata, found = files.read(path)
    except Damaged:
        return True
    assert found_metadata == metadata and found.keys() == state.keys()
    assert_equal(list(found.values()), list(state.values()))
    return False


@pytest.mark.parametrize("damaged, begun", [(2, 4), (3, 4), (4, 0)])
def test_the_one_before_a_damaged_one_is_used(whole, interrupted, tmp_path, capsys, damaged, begun):
    """That of step 4 before its validation; the best one, if that is all there is; or none."""
    assert steps(interrupted) == [(0, 4), (1, 4), (1, 5)]
    best = files.paths(interrupted / "best")
    for path in [*best, *files.paths(interrupted)][-damaged:]:
        data_file(path).write_bytes(data_file(path).read_bytes()[:1000])
    trainer, done = train(tmp_path)
    printed = capsys.readouterr().out
    assert done == begun
    assert printed.count("is damaged and cannot be used") == damaged
    assert "epoch_00001_step_00000005 is damaged" in printed
    assert steps(interrupted) == [(2, 11), (2, 12), (3, 12)], "all are of this run"
    assert_equal(everything(trainer), everything(whole[0]))
    assert history(tmp_path) == history(whole[1])


def test_one_that_cannot_be_read_is_not_replaced(interrupted, tmp_path, monkeypatch):
    """As it may be intact: the disk with temporary files is full, for instance."""

    def full(path):
        raise OSError(28, "No space left on device")

    before = steps(interrupted)
    monkeypatch.setattr(files, "without_pattern", full)
    with pytest.raises(TrainingStateError, match="cannot be used: .* No space left") as raised:
        train(tmp_path)
    assert not isinstance(raised.value, Damaged) and steps(interrupted) == before


def test_a_foreign_one_is_named(interrupted_once, tmp_path, capsys):
    shutil.copytree(interrupted_once, tmp_path / "other")
    other = tmp_path / "other" / "checkpoints"
    with pytest.raises(TrainingStateError, match=r"step_00000005 is from another run.*\[5, 6\]"):
        TrainingState(tmp_path / "other", STEPS).restore(make_trainer(width=7))
    with pytest.raises(TrainingStateError, match="epochs have 4 steps, not 5"):
        TrainingState(tmp_path / "other", 5).restore(make_trainer())
    assert len(files.paths(other)) == 3, "nothing of it is touched"
    killed(tmp_path / "mine", 2, make_trainer(width=7))
    foreign = files.paths(other)[-1]
    foreign.rename(tmp_path / "mine" / "checkpoints" / "epoch_00009_step_00000099")
    capsys.readouterr()
    assert TrainingState(tmp_path / "mine", STEPS).restore(make_trainer(width=7)) == 2
    assert "epoch_00009_step_00000099 is from another run" in capsys.readouterr().out


def test_a_write_that_was_cut_off_leaves_no_trace(interrupted, tmp_path, monkeypatch):
    before = {path: path.read_bytes() for path in interrupted.rglob("state.*")}

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(os, "replace", lambda *args: power_cut())
        train(tmp_path)
    assert {path: path.read_bytes() for path in interrupted.rglob("state.*")} == before
    half = interrupted / "partial.epoch_00007_step_00000030"  # of a process killed outright
    half.mkdir()
    (half / "state.index").write_bytes(b"half")
    assert train(tmp_path)[1] == 5
    assert not half.exists()


def test_a_full_disk_is_named(tmp_path):
    """Here, the system allows files of at most 1,000 bytes from the second step on."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    fill = Meanwhile(lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1])), begin=2)
    try:
        with pytest.raises(WriteError, match="step_00000002 cannot be written: File too large"):
            train(tmp_path, before=[fill])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert steps(tmp_path / "checkpoints") == [(0, 1)]


# --- divergence ----------------------------------------------------------------------------------


def test_a_run_without_a_number_stops_at_its_step(tmp_path):
    with pytest.raises(UserError, match=r"loss of step 7 is nan \(epoch 2\).*step_00000006"):
        train(tmp_path, bad_step=7, steps=2)
    newest = files.paths(tmp_path / "checkpoints")[-1]
    _, state = files.read(newest)
    assert all(np.isfinite(a).all() for a in state.values() if a.dtype.kind == "f")
    assert train(tmp_path)[1] == 6


def test_weights_that_are_no_numbers_are_not_saved(tmp_path):
    trainer = make_trainer()
    kernel = trainer.model.layers[0].kernel
    spoil = Meanwhile(lambda: kernel.assign(np.inf * kernel), end=3)
    with pytest.raises(UserError, match="After step 3, weights-00000.*kernel is not finite"):
        train(tmp_path, trainer, before=[spoil])


# --- signals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "number, ending, when, done",
    [
        (signal.SIGTERM, SystemExit, {"validation": 1}, 8),
        (signal.SIGINT, KeyboardInterrupt, {"begin": 4}, 4),
    ],
)
def test_a_signal_ends_a_run_after_its_step(
    whole, tmp_path, capsys, monkeypatch, number, ending, when, done
):
    monkeypatch.setattr(training_state, "_SECONDS_BEFORE_VALIDATION", 0.0)
    before = [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)]
    run = RunFolder(tmp_path / "run", {})
    send = Meanwhile(lambda: os.kill(os.getpid(), number), **when)
    with pytest.raises(ending) as info:
        train(run.path, before=[send], steps=0)
    assert ending is KeyboardInterrupt or info.value.code == 143
    assert f"step {done} is saved" in capsys.readouterr().out
    assert [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)] == before
    run.close()
    RunFolder(run.path, {}).close()
    found, begun = train(run.path)
    assert begun == done
    assert_equal(everything(found), everything(whole[0]))
    assert history(run.path) == history(whole[1])


def test_a_second_ctrl_c_ends_at_once():
    # A `fit` that raised an error, in another test, has left its handler.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    interruption = Interruption()
    interruption.watch()
    signal.raise_signal(signal.SIGINT)  # `os.kill` may interrupt another thread
    assert interruption.signal == signal.SIGINT
    signal.raise_signal(signal.SIGINT)  # the same one, which a program such as `timeout` passed on
    time.sleep(REPEATED)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    with contextlib.suppress(SystemExit):
        signal.raise_signal(signal.SIGTERM)
    interruption.unwatch()
