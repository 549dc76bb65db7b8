"""The average of the weights of the last epochs, up to the best one."""

import math
import pathlib
import shutil

import keras
import numpy as np

from zoo.training import checkpoint_file as files


class AverageCheckpoints(keras.callbacks.Callback):
    """Saves the weights of the last epochs, whose mean translates better than the last weights.

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 6.1, which averages the last
    five checkpoints. Here the last epoch that counts is the one with the lowest `val_loss`, as the
    epochs before early stopping are all worse; without a `val_loss`, it is the last one. Those
    after it are kept too, until one of them is better.

    Put this callback before `Checkpoint` in the list: the weights of an epoch are then on disk
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
        path, loss = self.folder / f"epoch_{epoch:05d}", (logs or {}).get("val_loss")
        if loss is not None:
            loss = float(loss) if math.isfinite(loss) else math.inf
        losses = [_loss(other) for other in files.paths(self.folder) if other < path] + [loss]
        since_best = len(losses) - 1 - _best_index(losses)
        weights = {f"{index:05d}": v for index, v in enumerate(self.model.weights)}
        files.write(path, weights, since_best + self.count, {"loss": loss})

    def average(self, model):
        """Sets the weights of `model` to their mean over the saved epochs.

        Integer and boolean variables, such as counters, get the value of the last epoch.

        Raises:
            FileNotFoundError: if no epoch has been saved.
            ValueError: if the files do not fit `model`.
            CheckpointError: if a file is damaged.
        """
        paths, total = files.paths(self.folder), {}
        if not paths:
            raise FileNotFoundError(f"{self.folder} contains no epoch weights to average.")
        losses = list(map(_loss, paths))
        end = _best_index(losses) + 1
        paths = paths[max(0, end - self.count) : end]
        for path in paths:
            for name, array in files.read(path)[1].items():
                is_count = array.dtype.kind in "iub"
                total[name] = array if is_count else total.get(name, 0) + array.astype(np.float64)
        model.set_weights([w if w.dtype.kind in "iub" else w / len(paths) for w in total.values()])

    def remove(self):
        """Deletes the saved epochs."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _best_index(losses):
    """The index of the lowest finite loss; without one, of the last epoch."""
    known = [loss for loss in losses if loss is not None and math.isfinite(loss)]
    return losses.index(min(known)) if known else len(losses) - 1


def _loss(path):
    """The `val_loss` of a saved epoch: None if not validated, infinite if its files are damaged."""
    try:
        return files.read_metadata(path)["loss"]
    except files.Damaged:
        return math.inf
