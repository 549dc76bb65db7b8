"""Callbacks: history, training speed, norms, patch dropout, and the average of the last epochs.

To compute a metric of the logits after each epoch, pass a Keras metric as one of the
`weighted_metrics` of `Run.train`. To compute one of generated texts, such as BLEU, write a callback
that adds it to `logs` in `on_epoch_end`, as `LearningRateAndSpeed` does, and pass it in `callbacks`
of `Run.train`: it is then written to ``history.csv`` and TensorBoard.
"""

import collections
import csv
import io
import math
import pathlib
import shutil
import statistics
import time

import keras
import numpy as np
import tensorflow as tf

from zoo import compat
from zoo.files import as_path, write_text
from zoo.layers import PatchDropout
from zoo.training import state_file as files
from zoo.training.step import global_norm

# To measure the norm of the gradients in every step would take 1 to 2 % of the time.
STEPS_BETWEEN_NORMS = 10


class HistoryFile(keras.callbacks.Callback):
    """Writes the logs of each epoch to ``history.csv``, atomically.

    If an epoch is repeated after an interruption, its row and all later rows are replaced.
    """

    def __init__(self, folder):
        super().__init__()
        self.folder = pathlib.Path(folder)

    def on_epoch_end(self, epoch, logs=None):
        values = {name: float(value) for name, value in sorted((logs or {}).items())}
        rows = [row for row in history_rows(self.folder) if row["epoch"] < epoch]
        rows.append({"epoch": epoch, **values})
        table = io.StringIO(newline="")
        names = dict.fromkeys(name for row in rows for name in row)
        writer = csv.DictWriter(table, names)
        writer.writeheader()
        writer.writerows(rows)
        write_text(self.folder / "history.csv", table.getvalue())


def history_rows(folder):
    """Reads ``history.csv``: a list of a dict of metrics for each epoch."""
    try:
        with open(as_path(folder) / "history.csv", newline="", encoding="utf-8") as file:
            rows = [{k: float(v) for k, v in row.items() if v} for row in csv.DictReader(file)]
    except FileNotFoundError:
        return []
    return [{**row, "epoch": int(row["epoch"])} for row in rows]


def history(folder):
    """Reads the metrics of a run: {name: [value of each epoch]}, NaN where an epoch has none."""
    rows = history_rows(folder)
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name, math.nan) for row in rows] for name in names}


class LearningRateAndSpeed(keras.callbacks.Callback):
    """Adds the learning rate and the training speed to the logs of each epoch.

    The time of validation does not count.

    Args:
        steps_per_epoch: as passed to `fit`.
        first_step: number of steps done before training was resumed, which do not count.
        per_epoch: {name of items: their number in an epoch}. ``{"images": 50_000}`` adds
            `images_per_second` and `images_per_second_per_device` to the logs.
    """

    def __init__(self, steps_per_epoch=1, first_step=0, per_epoch=None):
        super().__init__()
        self.steps_per_epoch = steps_per_epoch
        self.first_step = first_step
        self.per_epoch = per_epoch or {}

    def on_epoch_begin(self, epoch, logs=None):
        self._start = time.perf_counter()
        self._end = None

    def on_test_begin(self, logs=None):
        self._end = self._end or time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        seconds = (self._end or time.perf_counter()) - self._start
        done_before = max(0, self.first_step - epoch * self.steps_per_epoch)
        steps = self.steps_per_epoch - done_before
        fraction = steps / self.steps_per_epoch if steps else math.nan  # only validation was left
        devices = self.model.distribute_strategy.num_replicas_in_sync
        for name, count in self.per_epoch.items():
            logs[f"{name}_per_second"] = fraction * count / seconds
            logs[f"{name}_per_second_per_device"] = fraction * count / seconds / devices
        rate = keras.ops.convert_to_numpy(self.model.optimizer.learning_rate)
        logs["learning_rate"] = float(rate)


class Norms(keras.callbacks.Callback):
    """Adds norms of gradients, weights and updates to the logs of each epoch.

    They are norms of all trainable variables together, in float32: `gradient_norm` of the gradients
    before clipping, in the last step that was measured, one in `STEPS_BETWEEN_NORMS`; `weight_norm`
    of the weights at the end of the epoch; `update_norm` of their change in its last step.

    Args:
        steps_per_epoch: as passed to `fit`.

    Attributes:
        values: {name: the last value}, which `TrainingState` saves and restores.
        steps_done: number of steps done when the run was resumed, which `fit` skips.
    """

    def __init__(self, steps_per_epoch=1):
        super().__init__()
        self.steps_per_epoch = steps_per_epoch
        self.values = dict.fromkeys(("gradient_norm", "weight_norm", "update_norm"), math.nan)
        self.steps_done = 0
        self._measured = collections.deque(maxlen=1000)  # pairs (step, norm of the gradients)

    def on_epoch_begin(self, epoch, logs=None):
        self._first_step = epoch * self.steps_per_epoch

    def on_train_batch_begin(self, batch, logs=None):
        step = self._first_step + batch + 1
        if step <= self.steps_done:
            return
        if _is_measured(step):
            self.model.measure_gradient_norm()
        if batch + 1 == self.steps_per_epoch:
            self._weights_before = self._weights()

    def on_train_batch_end(self, batch, logs=None):
        step = self._first_step + batch + 1
        if step <= self.steps_done:
            return
        if _is_measured(step):
            norm = float(self.model.gradient_norm.numpy())
            self.values["gradient_norm"] = norm
            self._measured.append((step, norm))
        if batch + 1 == self.steps_per_epoch:
            weights = self._weights()
            changes = [new - old for new, old in zip(weights, self._weights_before)]
            self.values["weight_norm"] = float(global_norm(weights))
            self.values["update_norm"] = float(global_norm(changes))
            self._weights_before = None

    def on_epoch_end(self, epoch, logs=None):
        logs.update(self.values)

    def divergence(self, step):
        """Describes the norms of a run that diverges: a sentence for the error message.

        The norm of the gradients has exploded if it is not finite, or more than ten times the
        median before. The sentence names the steps from the one after the last normal norm to the
        first exploded one.

        Args:
            step: number of steps done, the last of which has a loss or weights that are not finite.
        """
        self._add_norm_of_diverged_step(step)
        weights = f"the norm of the weights is {float(global_norm(self._weights())):.3g}"
        if self._first_step > 0:
            weights += f", at the end of the last epoch it was {self.values['weight_norm']:.3g}"
        return f"{self._describe_gradients()}; {weights}."

    def _add_norm_of_diverged_step(self, step):
        """Adds the norm of the last step, which was measured if its loss is not finite."""
        last_step, last_norm = self._measured[-1] if self._measured else (0, 0.0)
        norm = float(self.model.gradient_norm.numpy())
        if step != last_step and norm != last_norm:  # a step that is not measured keeps the norm
            self._measured.append((step, norm))

    def _describe_gradients(self):
        if not self._measured:
            return "The norm of the gradients was not measured since the run was resumed"
        norms = [norm for _, norm in self._measured]
        first = len(norms)  # index of the first exploded norm
        while first > 0 and _has_exploded(norms[first - 1], norms[: first - 1]):
            first -= 1
        if first == len(norms):
            step, norm = self._measured[-1]
            return (
                f"The norm of the gradients was {norm:.3g} in step {step:,}, when it was last "
                "measured, and had not exploded"
            )
        step, norm = self._measured[first]
        if first > 0:
            last_normal_step, _ = self._measured[first - 1]
            steps = f"step {step:,}"
            if last_normal_step + 1 < step:
                steps = f"one of the steps {last_normal_step + 1:,} to {step:,}"
            return (
                f"The norm of the gradients exploded in {steps}: it was {norm:.3g} in step "
                f"{step:,}, the median before was {_finite_median(norms[:first]):.3g}"
            )
        sentence = f"The norm of the gradients was {norm:.3g} in step {step:,}"
        if step == 1:
            return f"{sentence}, there was no step before"
        return f"{sentence}, the first that was measured since the run was resumed"

    def _weights(self):
        return [tf.convert_to_tensor(v.value) for v in self.model.trainable_variables]


def _is_measured(step):
    return (step - 1) % STEPS_BETWEEN_NORMS == 0


def _has_exploded(norm, before):
    return not math.isfinite(norm) or norm > 10 * _finite_median(before)


def _finite_median(norms):
    """The median without float16's overflows, whose steps are skipped; NaN if there is none."""
    finite = [norm for norm in norms if math.isfinite(norm)]
    return statistics.median(finite) if finite else math.nan


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
        if set_patch_dropout(self.model, rate):
            self.model.trace()


def set_patch_dropout(model, rate):
    """Sets the rate of patch dropout of a model; returns whether it was another one."""
    changed = False
    for layer in compat.all_layers(model):
        if isinstance(layer, PatchDropout) and layer.rate != rate:
            layer.rate = rate
            changed = True
    return changed


class AverageCheckpoints(keras.callbacks.Callback):
    """Saves the weights of the last epochs, whose mean translates better than the last weights.

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 6.1, which averages the last
    five checkpoints. Here the average ends with the epoch of the lowest `val_loss`. Later epochs,
    for which early stopping waits, are not averaged, but stay on disk: if one of them becomes the
    best, the average ends with it. Without a `val_loss`, the average ends with the last epoch.

    Put this callback before `TrainingState` in the list: the weights of an epoch are then written
    before the checkpoint that marks the epoch as done.

    Args:
        folder: run directory; its subfolder ``last_epochs`` holds the weights until `remove` is
            called.
        count: number of epochs to average, at least 1.
        is_chief: whether this worker writes the files.
    """

    def __init__(self, folder, count, is_chief=True):
        super().__init__()
        self.folder = pathlib.Path(folder) / "last_epochs"
        self.count = count
        self.is_chief = is_chief

    def on_epoch_end(self, epoch, logs=None):
        if not self.is_chief:
            return
        path = self.folder / f"epoch_{epoch:05d}"
        loss = (logs or {}).get("val_loss")
        earlier = [other for other in files.paths(self.folder) if other < path]
        losses = [*_losses(earlier), None if loss is None else float(loss)]
        since_best = len(losses) - 1 - best_index(losses)
        weights = {f"{index:05d}": v for index, v in enumerate(self.model.weights)}
        keep = self.count + since_best  # the epochs to average, and those after the best one
        files.write(path, weights, keep=keep, metadata={"losses": losses})

    def average(self, model):
        """Sets the weights of `model` to their mean over the saved epochs.

        Integer and boolean variables, such as counters, get the value of the last epoch.

        Raises:
            ValueError: if the files do not fit `model`.
            TrainingStateError: if a file is damaged.
        """
        paths = files.paths(self.folder)
        total = {}
        losses = _losses(paths)
        since_best = len(losses) - 1 - best_index(losses)
        paths = paths[: len(paths) - since_best][-self.count :]
        for path in paths:
            for name, array in files.read(path)[1].items():
                is_count = array.dtype.kind in "iub"
                total[name] = array if is_count else total.get(name, 0) + array.astype(np.float64)
        model.set_weights([w if w.dtype.kind in "iub" else w / len(paths) for w in total.values()])

    def remove(self):
        """Deletes the saved epochs."""
        shutil.rmtree(self.folder, ignore_errors=True)


def best_index(losses):
    """Returns the index of the lowest finite loss, or the last index if there is none."""
    known = [loss for loss in losses if loss is not None and math.isfinite(loss)]
    return losses.index(min(known)) if known else len(losses) - 1


def _losses(paths):
    """The `val_loss` of every epoch so far, None without validation.

    Each file has the list up to its own epoch, so that of the last file is the longest.
    """
    return files.read(paths[-1], with_state=False)[0]["losses"] if paths else []
