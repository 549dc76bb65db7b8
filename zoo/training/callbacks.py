"""Callbacks for the history files, the training speed and patch dropout."""

import csv
import io
import json
import math
import pathlib
import time

import keras

from zoo import compat
from zoo.files import write_text
from zoo.layers import PatchDropout


class HistoryFiles(keras.callbacks.Callback):
    """Writes the logs of each epoch to ``history.jsonl`` and ``history.csv``.

    Both files are rewritten atomically. If an epoch is repeated after an interruption, its row and
    all later rows are replaced.

    Args:
        folder: run directory.
    """

    def __init__(self, folder):
        super().__init__()
        self.folder = pathlib.Path(folder)

    def on_epoch_end(self, epoch, logs=None):
        values = {name: float(value) for name, value in sorted((logs or {}).items())}
        rows = [row for row in history_rows(self.folder) if row["epoch"] < epoch]
        rows = [{k: math.nan if v is None else v for k, v in row.items()} for row in rows]
        rows.append({"epoch": epoch, **values})
        # JSON has no NaN.
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
            write_text(self.folder / path, text)


def history_rows(folder):
    """The metrics of each epoch in ``history.jsonl``, a dict each: None for NaN and infinity."""
    try:
        lines = (pathlib.Path(folder) / "history.jsonl").read_text().splitlines()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines]


class EpochFigures(keras.callbacks.Callback):
    """Adds `learning_rate` and the training speed, without validation, to the logs of each epoch.

    Args:
        steps_per_epoch: as passed to `fit`.
        first_step: number of steps done before training was resumed; they do not count for speed.
        **per_epoch: number of items in an epoch. ``images_per_epoch=50_000`` adds
            `images_per_second` and `images_per_second_per_device` to the logs,
            ``tokens_per_epoch`` adds `tokens_per_second` and so on.
    """

    def __init__(self, steps_per_epoch=1, first_step=0, **per_epoch):
        super().__init__()
        self.steps_per_epoch = steps_per_epoch
        self.first_step = first_step
        self.per_epoch = {k.removesuffix("_per_epoch"): v for k, v in per_epoch.items()}

    def on_epoch_begin(self, epoch, logs=None):
        self._start, self._end = time.perf_counter(), None

    def on_test_begin(self, logs=None):
        self._end = self._end or time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        seconds = (self._end or time.perf_counter()) - self._start
        done_before = max(0, self.first_step - epoch * self.steps_per_epoch)
        steps = self.steps_per_epoch - done_before
        share = steps / self.steps_per_epoch if steps else math.nan  # only validation was left
        devices = self.model.distribute_strategy.num_replicas_in_sync
        for name, count in self.per_epoch.items():
            logs[f"{name}_per_second"] = share * count / seconds
            logs[f"{name}_per_second_per_device"] = share * count / seconds / devices
        rate = keras.ops.convert_to_numpy(self.model.optimizer.learning_rate)
        logs["learning_rate"] = float(rate)


class PatchDropoutRates(keras.callbacks.Callback):
    """Changes the rate of patch dropout of a Vision Transformer during training.

    Args:
        rates: list of rates, each for an equal part of the epochs.
        epochs: number of epochs.
    """

    def __init__(self, rates, epochs):
        super().__init__()
        self.rates = list(rates)
        self.epochs = epochs

    def on_epoch_begin(self, epoch, logs=None):
        rate = self.rates[epoch * len(self.rates) // self.epochs]
        for layer in compat.all_layers(self.model):
            if isinstance(layer, PatchDropout) and layer.rate != rate:
                layer.rate = rate
                self.model.trace()
