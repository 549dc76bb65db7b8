"""A callback that saves the state of training, from which an interrupted run resumes exactly."""

import contextlib
import math
import pathlib
import shutil
import time

import keras
import numpy as np

from zoo.errors import UserError
from zoo.files import remove_partial
from zoo.training import distribution
from zoo.training import state_file as files
from zoo.training.interruption import Interruption, how_to_resume
from zoo.training.state_file import TrainingStateError

_SECONDS_BEFORE_VALIDATION = 10.0  # of training that may be lost if a run is killed in validation


class TrainingState(keras.callbacks.Callback):
    """Saves the full training state and restores it; stops training if it diverges.

    A checkpoint contains the weights, the optimizer state including averaged weights, the random
    states, the step, and the metrics of the current epoch so far. One is written at the end of each
    epoch; before validation, if the last one is older than some seconds; every `minutes`; every
    `steps`; and when the process receives SIGTERM or SIGINT: the current step is then finished
    before the process exits. With several workers, the chief writes and all workers restore.

    Keras's `BackupAndRestore` restores the epoch only, overwrites its files in place, and does not
    support several workers.

    This callback must be the last in the list, so that the other callbacks have written their files
    before the checkpoint marks an epoch as done. Attributes of the callbacks passed to `restore`
    that are numbers, strings or None are also saved, and so is whether training has stopped.

    Args:
        folder: run directory; checkpoints are written to its subfolder ``checkpoints``.
        steps_per_epoch: as passed to `fit`.
        minutes: minutes between checkpoints.
        steps: steps between checkpoints, in addition to `minutes`; 0 to disable.
        keep: number of checkpoints to keep, at least 1. The one with the lowest `val_loss` is also
            kept, in the subfolder ``best``.
        norms: `zoo.training.callbacks.Norms` to save and restore; the error of a run that diverges
            contains them.

    Attributes:
        step: number of steps done.
        epoch: number of epochs done, the `initial_epoch` of `fit`.
        stopped: whether a callback had stopped training.
        interruption: `Interruption`, which records signals during training.
    """

    def __init__(self, folder, steps_per_epoch, minutes=10.0, steps=0, keep=3, norms=None):
        super().__init__()
        self.folder = pathlib.Path(folder) / "checkpoints"
        self.steps_per_epoch = steps_per_epoch
        self.minutes = minutes
        self.steps = steps
        self.keep = keep
        self.norms = norms
        self.step = 0
        self.epoch = 0
        self.stopped = False
        self.interruption = Interruption()
        self._saved_step = 0  # of the last checkpoint
        self._best_loss = math.inf  # lowest `val_loss`
        self._callbacks = []
        self._initial_attributes = []  # of each callback, when training begins
        # What a checkpoint contains, until it is restored:
        self._metrics = None  # of the epoch that is resumed
        self._attributes = []  # of each callback
        self._rates = []  # (variable, learning rate)

    def restore(self, model, callbacks=()):
        """Restores a compiled model from the newest usable checkpoint; returns `step`.

        Prints a line for each checkpoint that cannot be used.

        Args:
            model: compiled `zoo.training.trainer.Trainer`.
            callbacks: list of callbacks whose state is saved, and restored when training begins.

        Raises:
            TrainingStateError: if no checkpoint is usable and at least one is from another run.
        """
        model.optimizer.build(model.trainable_variables)
        self._callbacks = list(callbacks)
        self._strategy = model.distribute_strategy
        self._is_chief = distribution.is_chief(self._strategy)

        newest_first = [*reversed(files.paths(self.folder))]
        best = files.paths(self.folder / files.BEST)
        used = None
        errors = []
        for path in newest_first + best:
            try:
                metadata, state = files.read(path)
                self._set_state(model, path, metadata, state)
                used = path
                break
            except TrainingStateError as error:
                errors.append(error)

        if used is None:
            for error in errors:
                # If all are damaged, the run starts from the beginning instead.
                if not isinstance(error, files.Damaged):
                    raise error
        if self._is_chief:
            for error in errors:
                print(error)
            if self.step:
                steps = self.step - self.epoch * self.steps_per_epoch
                print(f"Resuming after {self.epoch:,} epochs and {steps:,} steps, from {used}")
        return self.step

    @contextlib.contextmanager
    def watching(self):
        """A context of `fit`, after which signals are handled as before."""
        try:
            yield
        finally:
            self.interruption.unwatch()

    def remove(self):
        """Deletes the checkpoints of a finished run, except the best one."""
        for path in files.paths(self.folder):
            shutil.rmtree(path)
        remove_partial(self.folder)

    # --- callback methods ------------------------------------------------------------------------

    def on_train_begin(self, logs=None):
        self._initial_attributes = [_plain_attributes(callback) for callback in self._callbacks]
        self._restore_callbacks()
        self.interruption.watch()
        self._saved_at = time.monotonic()

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch
        done = self.step - epoch * self.steps_per_epoch
        if self._metrics and done > 0:
            files.set_metrics(self.model, self._metrics)
            self._skip(done)
        self._metrics = None

    def on_train_batch_begin(self, batch, logs=None):
        self._batch = batch

    def on_train_batch_end(self, batch, logs=None):
        step = self.epoch * self.steps_per_epoch + batch + 1
        if step == self.step:  # the last skipped step; callbacks have counted the skipped steps
            self._restore_callbacks()
        if step <= self.step:
            return
        self.step = step
        loss = (logs or {}).get("loss", 0.0)  # a mean: once not finite, it stays so for an epoch
        if not np.isfinite(loss).all():
            self._stop_diverged(f"The loss of step {step:,} is {np.ravel(loss)[0]}")
        if batch + 1 == self.steps_per_epoch:
            # During validation, the model may have the averaged weights and validation metrics, so
            # the state is written before validation, unless little would be lost.
            save, stop = self._save_or_stop(0, _SECONDS_BEFORE_VALIDATION)
        else:
            save, stop = self._save_or_stop(step, 60 * self.minutes)
        if save or stop:
            self._save(self.epoch)
        if stop:
            self._exit()

    def on_test_batch_end(self, batch, logs=None):
        is_saved = self._saved_step == self.step  # otherwise the run stops after validation
        if self._must_stop(batch + 1) and is_saved:
            self._exit()

    def on_epoch_end(self, epoch, logs=None):
        value = float((logs or {}).get("val_loss", math.inf))
        is_best = value < self._best_loss  # False for NaN
        if is_best:
            self._best_loss = value
        self._save(epoch + 1, is_best)
        if self._must_stop():
            self._exit()

    def on_train_end(self, logs=None):
        if self._must_stop():
            self._exit()

    # --- internals -------------------------------------------------------------------------------

    def _set_state(self, model, path, metadata, state):
        """Restores the state of the checkpoint at `path`; raises `TrainingStateError`."""
        steps = metadata["steps_per_epoch"]
        wrong = files.difference(files.variables(model), state)
        if steps != self.steps_per_epoch:
            wrong = f"its epochs have {steps:,} steps, not {self.steps_per_epoch:,}"
        if wrong:
            raise TrainingStateError(
                f"{path} is from another run, or from another version of zoo, and cannot be used: "
                f"{wrong}. Use the settings it was written with, or start over with --overwrite."
            )
        files.set_state(model, state)
        self.step = metadata["step"]
        self.epoch = metadata["epoch"]
        self.stopped = metadata["stopped"]
        self._saved_step = self.step
        self._best_loss = metadata["val_loss"]
        self._metrics = metadata["metrics"]
        self._attributes = metadata["callbacks"]
        if self.norms is not None:
            self.norms.steps_done = self.step
            self.norms.values.update(metadata.get("norms") or {})  # earlier versions have none
        # callbacks may change the learning rate in the skipped steps
        rates = [v for v in model.optimizer.variables if v.name == "learning_rate"]
        self._rates = [(variable, variable.numpy()) for variable in rates]

    def _restore_callbacks(self):
        for callback, attributes in zip(self._callbacks, self._attributes):
            vars(callback).update(attributes)
        for variable, rate in self._rates:
            variable.assign(rate)

    def _skip(self, done):
        """Makes `fit` count the first `done` steps of this epoch without running them.

        Calling `fit` for the rest of the epoch and then again for the other epochs would swap in
        the averaged weights in between, and call `on_train_begin` and `on_train_end` twice.
        """
        train = self.model.train_function
        epoch = self.epoch
        logs = self.model.get_metrics_result()

        def train_function(iterator):
            if self.epoch == epoch and self._batch < done:
                return logs
            self.model.train_function = train
            return train(iterator)

        self.model.train_function = train_function

    def _save_or_stop(self, step, seconds):
        """Returns whether to save, and whether to stop, after a step; the same on all workers.

        A checkpoint is due `seconds` after the last one. Workers must save together, as reading the
        metrics is a collective operation.
        """
        is_due = self._is_chief and time.monotonic() >= self._saved_at + seconds
        interrupted = self.interruption.signal is not None
        save, stop = distribution.any_worker(self._strategy, step, is_due, interrupted)
        steps_due = self.steps > 0 and self.step - self._saved_step >= self.steps
        return save or steps_due, stop

    def _must_stop(self, step=0):
        """Whether any worker has received a signal."""
        _, stop = self._save_or_stop(step, 60 * self.minutes)
        return stop

    def _stop_diverged(self, reason):
        """Raises `UserError` for a run whose loss or weights are not finite."""
        norms = "" if self.norms is None else f" {self.norms.divergence(self.step)}"
        paths = files.paths(self.folder)
        last = f"The last checkpoint is {paths[-1]}." if paths else "There is no checkpoint."
        raise UserError(
            f"The run has diverged. {reason} (epoch {self.epoch + 1}).{norms} {last} Check that "
            "the inputs, the labels and the loss have no NaN or infinite values, or try a lower "
            "learning rate, a longer warmup or stronger gradient clipping."
        )

    def _save(self, epochs_done, is_best=False):
        """Writes a checkpoint; raises `UserError` if weights are not finite."""
        for name, variable in files.variables(self.model, (files.WEIGHTS,)).items():
            if "float" in variable.dtype and not np.isfinite(variable.numpy()).all():
                self._stop_diverged(f"After step {self.step:,}, {name} is not finite")
        metadata = {
            "step": self.step,
            "epoch": epochs_done,
            "steps_per_epoch": self.steps_per_epoch,
            "metrics": files.read_metrics(self.model),
            "val_loss": self._best_loss,
            "stopped": bool(self.model.stop_training),
            "norms": None if self.norms is None else self.norms.values,
            "callbacks": [
                # Attributes that do not change are settings, which may differ in the resumed run.
                dict(_plain_attributes(callback).items() - initial.items())
                for callback, initial in zip(self._callbacks, self._initial_attributes)
            ],
        }
        if self._is_chief:
            variables = files.variables(self.model)
            name = f"epoch_{epochs_done:05d}_step_{self.step:08d}"
            if is_best:  # first: a run that is killed in between repeats the validation
                files.write(self.folder / files.BEST / name, variables, 1, metadata)
            files.write(self.folder / name, variables, self.keep, metadata)
        self._saved_step = self.step
        self._saved_at = time.monotonic()

    def _exit(self):
        if self._is_chief:
            advice = how_to_resume(is_saved=True)
            print(f"\nInterrupted: step {self.step:,} is saved. {advice}")
        distribution.any_worker(self._strategy, 0, True)  # none exits before the chief has saved
        self.interruption.exit()


def _plain_attributes(callback):
    """The attributes of a callback that are numbers, strings or None, which JSON can store."""
    found = {}
    for name, value in vars(callback).items():
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or isinstance(value, (int, float, str)):
            found[name] = value
    found.pop("min_delta", None)  # a setting: Keras changes its sign in the first epoch of a `fit`
    return found
