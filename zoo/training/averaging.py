"""The average of the weights of the last epochs."""

import pathlib

import keras
import numpy as np

from zoo.training.whole_file import write_whole


class AverageCheckpoints(keras.callbacks.Callback):
    """Saves the weights of the last epochs, whose mean translates better than the last weights.

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 6.1, which averaged the last
    five checkpoints. Put this callback before `Checkpoint` in the list: the weights of an epoch are
    then on disk before the checkpoint that marks the epoch as done.

    Args:
        folder: run directory; it holds one file per epoch until `remove` is called.
        count: number of epochs to keep, at least 1.
        is_chief: whether this worker writes the files.
    """

    def __init__(self, folder, count, is_chief=True):
        super().__init__()
        if count < 1:
            raise ValueError(f"count must be at least 1. Received: count={count}.")
        self.folder = pathlib.Path(folder)
        self.count = count
        self.is_chief = is_chief

    def on_epoch_end(self, epoch, logs=None):
        if not self.is_chief:
            return
        weights = self.model.get_weights()

        def write(file):
            np.savez(file, *(_widened(array, np.float32) for array in weights))

        write_whole(self._path(epoch), write)
        kept = {self._path(number) for number in range(max(0, epoch - self.count + 1), epoch + 1)}
        for path in self._files():
            if path not in kept:
                path.unlink()

    def average(self, model):
        """Sets the weights of `model` to their mean over the saved epochs.

        Integer and boolean variables, such as counters, get the value of the last epoch.

        Raises:
            FileNotFoundError: if no epoch has been saved.
            ValueError: if the files do not fit `model`.
        """
        files = self._files()
        if not files:
            raise FileNotFoundError(f"{self.folder} contains no epoch weights to average.")
        total = None
        for path in files:
            with np.load(path) as file:
                weights = [_widened(array, np.float64) for array in file.values()]
            total = [
                old + new if new.dtype == np.float64 else new
                for old, new in zip(total or [0.0] * len(weights), weights, strict=True)
            ]
        model.set_weights([w / len(files) if w.dtype == np.float64 else w for w in total])

    def remove(self):
        """Deletes the saved epochs."""
        for path in self._files():
            path.unlink()

    def _path(self, epoch):
        return self.folder / f"epoch_{epoch:05d}.weights.npz"

    def _files(self):
        return sorted(self.folder.glob("epoch_*.weights.npz"))


def _widened(array, dtype):
    """Casts floats to `dtype` or wider, as .npz files cannot store bfloat16; keeps integers."""
    if array.dtype.kind in "iub":
        return array
    return array.astype(np.promote_types(array.dtype, dtype))
