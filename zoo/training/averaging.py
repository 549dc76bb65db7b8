"""The average of the weights of the last epochs."""

import pathlib
import shutil

import keras
import numpy as np

from zoo.training import checkpoint_file as files


class AverageCheckpoints(keras.callbacks.Callback):
    """Saves the weights of the last epochs, whose mean translates better than the last weights.

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 6.1, which averaged the last
    five checkpoints. Put this callback before `Checkpoint` in the list: the weights of an epoch are
    then on disk before the checkpoint that marks the epoch as done.

    Args:
        folder: run directory; its subfolder ``last_epochs`` holds the weights until `remove` is
            called.
        count: number of epochs to keep, at least 1.
        is_chief: whether this worker writes the files.
    """

    def __init__(self, folder, count, is_chief=True):
        super().__init__()
        if count < 1:
            raise ValueError(f"count must be at least 1. Received: count={count}.")
        self.folder = pathlib.Path(folder) / "last_epochs"
        self.count = count
        self.is_chief = is_chief

    def on_epoch_end(self, epoch, logs=None):
        if self.is_chief:
            weights = {f"{index:05d}": v for index, v in enumerate(self.model.weights)}
            files.write(self.folder / f"epoch_{epoch:05d}", weights, self.count)

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
        for path in paths:
            for name, array in files.read(path)[1].items():
                is_count = array.dtype.kind in "iub"
                total[name] = array if is_count else total.get(name, 0) + array.astype(np.float64)
        model.set_weights([w if w.dtype.kind in "iub" else w / len(paths) for w in total.values()])

    def remove(self):
        """Deletes the saved epochs."""
        shutil.rmtree(self.folder, ignore_errors=True)
