"""Callbacks that Keras has not: going on after an interruption, and figures of each epoch."""

import os
import pathlib
import time

import keras

CHECKPOINT_FILE = "checkpoint.weights.h5"


def standard_callbacks(folder, images_per_epoch):
    """Averaged weights for testing, speed, ``history.csv`` and TensorBoard logs in `folder`.

    Args:
        folder: of the run; what it holds already is appended to.
        images_per_epoch: number of images trained on in an epoch.
    """
    folder = pathlib.Path(folder)
    return [
        keras.callbacks.SwapEMAWeights(),
        EpochFigures(images_per_epoch),
        keras.callbacks.CSVLogger(folder / "history.csv", append=True),
        keras.callbacks.TensorBoard(folder / "tensorboard", write_graph=False),
    ]


class Checkpoint(keras.callbacks.Callback):
    """Writes weights, optimizer and random states after each epoch, and restores them.

    `keras.callbacks.BackupAndRestore` overwrites its files in place and keeps the epoch in another
    one: a run that is killed while it writes loses its work or repeats an epoch. Here one file is
    replaced as a whole, and the epoch follows from the optimizer's own count of steps.

    Args:
        folder: of the run.
        steps_per_epoch: number of optimizer steps in an epoch.
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
        return int(model.optimizer.iterations) // self.steps_per_epoch

    def on_epoch_end(self, epoch, logs=None):
        partial = self.path.with_name(f"partial.{self.path.name}")
        self.model.save_weights(partial)
        os.replace(partial, self.path)

    def remove(self):
        """Deletes the checkpoint of a run that has ended."""
        self.path.unlink(missing_ok=True)


class EpochFigures(keras.callbacks.Callback):
    """Adds `learning_rate`, and `images_per_second` of training alone, to each epoch's logs.

    Args:
        images_per_epoch: number of images trained on in an epoch.
    """

    def __init__(self, images_per_epoch):
        super().__init__()
        self.images_per_epoch = images_per_epoch

    def on_epoch_begin(self, epoch, logs=None):
        self._start, self._end = time.perf_counter(), None

    def on_test_begin(self, logs=None):
        self._end = self._end or time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        seconds = (self._end or time.perf_counter()) - self._start
        logs["images_per_second"] = self.images_per_epoch / seconds
        logs["learning_rate"] = float(self.model.optimizer.learning_rate)
