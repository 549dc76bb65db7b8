"""Callbacks that Keras has not: going on after an interruption, and figures of each epoch."""

import csv
import os
import pathlib
import time

import h5py
import keras
import numpy as np

CHECKPOINT_FILE = "checkpoint.weights.h5"


def standard_callbacks(folder, **counts):
    """Speed, learning rate, ``history.csv`` and TensorBoard logs in `folder`.

    Args:
        folder: of the run; what it holds already is appended to.
        **counts: of what is trained on in an epoch; see `EpochFigures`.
    """
    folder = pathlib.Path(folder)
    return [
        EpochFigures(**counts),
        keras.callbacks.CSVLogger(folder / "history.csv", append=True),
        keras.callbacks.TensorBoard(folder / "tensorboard", write_graph=False),
    ]


class Checkpoint(keras.callbacks.Callback):
    """Writes weights, optimizer and random states after each epoch, and restores them.

    `keras.callbacks.BackupAndRestore` overwrites its files in place and keeps the epoch in another
    one: a run that is killed while it writes loses its work or repeats an epoch. Here one file is
    replaced as a whole, and the epoch follows from the optimizer's own count of batches. The file
    holds what gradients have been accumulated, too.

    Args:
        folder: of the run.
        steps_per_epoch: number of batches in an epoch.
    """

    def __init__(self, folder, steps_per_epoch):
        super().__init__()
        self.path = pathlib.Path(folder) / CHECKPOINT_FILE
        self.steps_per_epoch = steps_per_epoch

    def restore(self, model):
        """Restores a compiled model if there is a checkpoint; returns the number of epochs done."""
        model.optimizer.build(model.trainable_variables)
        if self.path.is_file():
            model.load_weights(self.path)
            with h5py.File(self.path) as file:
                for variable, state in zip(_random_states(model), file["random_states"]):
                    variable.assign(state)
        # A batch that overflowed in 16 bits is not counted, so that the last epoch may seem short.
        return -(-_batches_done(model.optimizer) // self.steps_per_epoch)

    def on_epoch_end(self, epoch, logs=None):
        def write(path):
            self.model.save_weights(path)
            with h5py.File(path, "a") as file:
                # Keras leaves them out: dropout would begin again with the masks of the first step.
                file["random_states"] = [state.numpy() for state in _random_states(self.model)]

        _write_whole(self.path, write)

    def remove(self):
        """Deletes the checkpoint of a run that has ended."""
        self.path.unlink(missing_ok=True)


def _batches_done(optimizer):
    # `iterations` counts updates, which are fewer where gradients are accumulated.
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    return int(next(v for v in optimizer.variables if v.name == "iteration"))


def _random_states(model):
    return [v for v in model.variables if v.name == "seed_generator_state"]


def _write_whole(path, write):
    """Has `write` make a file beside `path` that then takes its place: whole or not at all."""
    partial = path.with_name(f"partial.{path.name}")
    write(partial)
    os.replace(partial, path)


class EpochFigures(keras.callbacks.Callback):
    """Adds `learning_rate` and the speed of training alone to each epoch's logs.

    Args:
        **counts: how many of something are trained on in an epoch: ``images_per_epoch=50_000`` is
            logged as `images_per_second`, ``tokens_per_epoch`` as `tokens_per_second`.
    """

    def __init__(self, **counts):
        super().__init__()
        self.counts = {name.removesuffix("_per_epoch"): count for name, count in counts.items()}

    def on_epoch_begin(self, epoch, logs=None):
        self._start, self._end = time.perf_counter(), None

    def on_test_begin(self, logs=None):
        self._end = self._end or time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        seconds = (self._end or time.perf_counter()) - self._start
        for name, count in self.counts.items():
            logs[f"{name}_per_second"] = count / seconds
        logs["learning_rate"] = float(self.model.optimizer.learning_rate)


class AverageCheckpoints(keras.callbacks.Callback):
    """Keeps the weights of the last epochs, whose mean translates better than the last ones alone.

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 6.1, which averaged the last
    five checkpoints. To survive an interruption it stands before `Checkpoint` among the callbacks:
    the weights of an epoch are then there once the epoch counts as done.

    Args:
        folder: of the run; a file for each epoch lies in it until `remove`.
        count: number of epochs whose weights are kept, at least 1.
    """

    def __init__(self, folder, count):
        super().__init__()
        if count < 1:
            raise ValueError(f"count must be at least 1. Received: count={count}.")
        self.folder = pathlib.Path(folder)
        self.count = count

    def on_epoch_end(self, epoch, logs=None):
        weights = self.model.get_weights()

        def write(path):
            with open(path, "wb") as file:
                np.savez(file, *(_widened(array, np.float32) for array in weights))

        _write_whole(self._path(epoch), write)
        kept = {self._path(number) for number in range(max(0, epoch - self.count + 1), epoch + 1)}
        for path in self._files():
            if path not in kept:
                path.unlink()

    def average(self, model):
        """Sets the weights of `model` to their mean over the epochs kept; what is not a fraction,
        such as a count, to that of the last epoch.

        Raises:
            FileNotFoundError: if no epoch has been kept.
            ValueError: if the files are of another model.
        """
        files = self._files()
        if not files:
            raise FileNotFoundError(f"{self.folder} holds no weights of epochs to average.")
        total = None
        for path in files:
            with np.load(path) as file:
                weights = [_widened(array, np.float64) for array in file.values()]
            total = [
                before + now if now.dtype == np.float64 else now
                for before, now in zip(total or [0.0] * len(weights), weights, strict=True)
            ]
        model.set_weights([w / len(files) if w.dtype == np.float64 else w for w in total])

    def remove(self):
        """Deletes the files of a run that has ended."""
        for path in self._files():
            path.unlink()

    def _path(self, epoch):
        return self.folder / f"epoch_{epoch:05d}.weights.npz"

    def _files(self):
        return sorted(self.folder.glob("epoch_*.weights.npz"))


def _widened(array, dtype):
    """Floats in `dtype` or wider, as NumPy's files know no bfloat16; counts as they are."""
    if array.dtype.kind in "iub":
        return array
    return array.astype(np.promote_types(array.dtype, dtype))


def early_stopping(folder, patience, monitor="val_loss"):
    """Stops training once `monitor` has not improved for `patience` epochs, resumed or not.

    Args:
        folder: of the run, with the ``history.csv`` of `standard_callbacks`.
        patience: number of epochs.
        monitor: column of the history; one whose name ends in "loss" is to fall, any other to rise.

    Returns:
        `EarlyStopping`.
    """
    mode = "min" if monitor.endswith("loss") else "max"
    return EarlyStopping(folder, monitor=monitor, patience=patience, mode=mode)


class EarlyStopping(keras.callbacks.EarlyStopping):
    """`keras.callbacks.EarlyStopping` that knows the epochs before the one a run is resumed at.

    Args:
        folder: of the run, with the ``history.csv`` of `standard_callbacks`.
        **settings: `monitor`, `patience` and `mode`, "min" or "max", as in Keras.
    """

    def __init__(self, folder, **settings):
        super().__init__(**settings)
        self.history = pathlib.Path(folder) / "history.csv"

    def has_stopped(self, epochs_done):
        """Whether a run that goes on after `epochs_done` epochs had stopped: `fit` cannot stop
        before its first batch, so it should not be called then."""
        self.on_train_begin()
        self._replay(epochs_done)
        return self.wait >= max(self.patience, 1)

    def on_train_begin(self, logs=None):
        super().on_train_begin(logs)
        self._is_replayed = False

    def on_epoch_begin(self, epoch, logs=None):
        if not self._is_replayed:
            self._replay(epoch)

    def _replay(self, epochs_done):
        self._is_replayed = True
        if self.monitor_op is None:
            self._set_monitor_op()
        for epoch, value in enumerate(self._values(epochs_done)):
            self.wait += 1
            if self._is_improvement(value, self.best):
                self.best, self.best_epoch, self.wait = value, epoch, 0

    def _values(self, epochs_done):
        """What was monitored in each of the first epochs."""
        if not epochs_done:
            return []
        with open(self.history, newline="") as file:
            # An epoch that was run again after an interruption counts once, as it ended.
            rows = {int(row["epoch"]): row[self.monitor] for row in csv.DictReader(file)}
        return [float(rows[epoch]) for epoch in range(epochs_done)]
