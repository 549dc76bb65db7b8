"""Callbacks that Keras has not: figures of each epoch, and epochs across interruptions."""

import csv
import io
import json
import math
import pathlib
import time

import keras

from zoo.training.whole_file import write_whole


def standard_callbacks(folder, steps_per_epoch=1, first_step=0, is_chief=True, **counts):
    """Speed, learning rate, ``history.csv``, ``history.jsonl`` and TensorBoard logs in `folder`.

    Args:
        folder: of the run; what it holds already is added to.
        steps_per_epoch: of `fit`.
        first_step: steps that were done before.
        is_chief: whether this worker writes.
        **counts: of what is trained on in an epoch; see `EpochFigures`.
    """
    folder = pathlib.Path(folder)
    figures = EpochFigures(steps_per_epoch, first_step, **counts)
    if not is_chief:
        return [figures]
    board = keras.callbacks.TensorBoard(folder / "tensorboard", write_graph=False)
    return [figures, HistoryFiles(folder), board]


class HistoryFiles(keras.callbacks.Callback):
    """Writes the logs of each epoch to ``history.jsonl``, an object in each line, and a table,
    ``history.csv``.

    Both are replaced as a whole. An epoch that is run again after an interruption, and those after
    it, take the place of what was written of them before.

    Args:
        folder: of the run.
    """

    def __init__(self, folder):
        super().__init__()
        self.folder = pathlib.Path(folder)

    def on_epoch_end(self, epoch, logs=None):
        values = {name: float(value) for name, value in sorted((logs or {}).items())}
        rows = [row for row in self._rows() if row["epoch"] < epoch] + [{"epoch": epoch, **values}]
        # JSON knows no NaN.
        lines = [
            json.dumps({name: v if math.isfinite(v) else None for name, v in row.items()})
            for row in rows
        ]
        table = io.StringIO(newline="")
        names = dict.fromkeys(name for row in rows for name in row)
        writer = csv.DictWriter(table, names, restval="nan")
        writer.writeheader()
        writer.writerows(rows)
        for path, text in (
            ("history.jsonl", "\n".join(lines) + "\n"),
            ("history.csv", table.getvalue()),
        ):
            write_whole(self.folder / path, lambda file, text=text: file.write(text.encode()))

    def _rows(self):
        try:
            lines = (self.folder / "history.jsonl").read_text().splitlines()
        except FileNotFoundError:
            return []
        rows = map(json.loads, lines)
        return [{k: math.nan if v is None else v for k, v in row.items()} for row in rows]


class EpochFigures(keras.callbacks.Callback):
    """Adds `learning_rate` and the speed of training alone to each epoch's logs.

    Args:
        steps_per_epoch: of `fit`.
        first_step: steps that were done before: they are not part of an epoch's speed.
        **counts: how many of something are trained on in an epoch: ``images_per_epoch=50_000`` is
            logged as `images_per_second`, ``tokens_per_epoch`` as `tokens_per_second`, and
            `images_per_second_per_device` likewise.
    """

    def __init__(self, steps_per_epoch=1, first_step=0, **counts):
        super().__init__()
        self.steps_per_epoch = steps_per_epoch
        self.first_step = first_step
        self.counts = {name.removesuffix("_per_epoch"): count for name, count in counts.items()}

    def on_epoch_begin(self, epoch, logs=None):
        self._start, self._end = time.perf_counter(), None

    def on_test_begin(self, logs=None):
        self._end = self._end or time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        seconds = (self._end or time.perf_counter()) - self._start
        done_before = max(0, self.first_step - epoch * self.steps_per_epoch)
        share = 1 - done_before / self.steps_per_epoch
        devices = self.model.distribute_strategy.num_replicas_in_sync
        for name, count in self.counts.items():
            logs[f"{name}_per_second"] = share * count / seconds
            logs[f"{name}_per_second_per_device"] = share * count / seconds / devices
        rate = keras.ops.convert_to_numpy(self.model.optimizer.learning_rate)
        logs["learning_rate"] = float(rate)


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
