"""A run that ends at any moment goes on as if it had not."""

import os
import pathlib
import time

import keras
import numpy as np

from zoo.training import checkpoint_file as files
from zoo.training import distribution, model_state, run_folder
from zoo.training.divergence import DivergedError, LossWatch, check_weights
from zoo.training.interruption import Interruption
from zoo.training.whole_file import remove_partial


class Checkpoint(keras.callbacks.Callback):
    """Saves all that training depends on, goes on from it, and watches over what it saves.

    A checkpoint holds weights, optimizer with averaged weights, random states, the step, and the
    metrics of the epoch so far. One is written at the end of each epoch, after each `minutes` or
    `steps`, and when SIGTERM or SIGINT ask the run to end: it then ends after the step at hand.
    With several workers the chief writes and all restore.

    Keras's `BackupAndRestore` restores the epoch only, overwrites its files in place, and cannot do
    with several workers. Orbax and `tf.train.Checkpoint` write many files, in which damage does not
    show until values are wrong.

    It must come last in the list of callbacks: what the others write of an epoch is then there when
    the epoch counts as done.

    Args:
        folder: of the run; checkpoints lie in its folder ``checkpoints``.
        steps_per_epoch: of `fit`.
        minutes: after which a checkpoint is written.
        steps: after which one is written, besides; 0 for none.
        keep: how many are kept, at least 1. The best one is kept apart, as ``best.npz``.
        monitor: what makes an epoch the best: a value that is low if its name ends in "loss", and
            high otherwise.

    Attributes:
        step: steps done.
        epoch: epochs done: the `initial_epoch` of `fit`.
    """

    def __init__(self, folder, steps_per_epoch, minutes=10.0, steps=0, keep=3, monitor="val_loss"):
        super().__init__()
        if steps_per_epoch < 1 or keep < 1:
            raise ValueError(
                "steps_per_epoch and keep must be at least 1. "
                f"Received: steps_per_epoch={steps_per_epoch}, keep={keep}."
            )
        if minutes < 0 or steps < 0:
            raise ValueError(
                f"minutes and steps must not be negative. Received: {minutes=}, {steps=}."
            )
        self.run_folder = pathlib.Path(folder)
        self.folder = self.run_folder / run_folder.CHECKPOINTS
        self.steps_per_epoch = steps_per_epoch
        self.minutes = minutes
        self.steps = steps
        self.keep = keep
        self.monitor = monitor
        self.step = self.epoch = 0
        self._saved = 0  # step
        self._best = None
        self._metrics = None  # to be put back
        self._trained = None  # state at the end of an epoch's steps, before validation
        self._losses = LossWatch()
        self._interruption = Interruption()

    def restore(self, model):
        """Restores a compiled model from the newest checkpoint that can be used; returns `step`.

        Those that cannot be used are named in a printed line.

        Raises:
            CheckpointError: if there are only checkpoints of other runs.
        """
        model.optimizer.build(model.trainable_variables)
        strategy = model.distribute_strategy
        self._is_chief = distribution.is_chief(strategy)
        self._agreement = distribution.Agreement(strategy)
        found, unusable = files.newest_usable(self.folder, lambda *it: self._fault(model, *it))
        if self._is_chief:
            for path, words in unusable:
                print(words)
                os.replace(path, f"{path}{files.UNUSABLE}")
            remove_partial(self.folder)
            self._best = self._best_value()
        if found:
            about, state, path = found
            model_state.set_state(model, state)
            self.step = self._saved = about["step"]
            self.epoch = about["epoch"]
            self._metrics = model_state.only(state, model_state.METRICS)
            if self._is_chief:
                steps = self.step - self.epoch * self.steps_per_epoch
                print(f"Going on after {self.epoch:,} epochs and {steps:,} steps, from {path}")
        return self.step

    def newest(self):
        """The newest checkpoint's path; None if there is none."""
        return next(reversed(files.step_paths(self.folder)), None)

    def remove(self):
        """Deletes the checkpoints of a run that has ended, but for the best one."""
        run_folder.end(self.run_folder)
        for path in files.step_paths(self.folder):
            path.unlink(missing_ok=True)
        remove_partial(self.folder)

    # --- what `fit` calls ------------------------------------------------------------------------

    def on_train_begin(self, logs=None):
        self._interruption.watch()
        self._due = time.monotonic() + 60 * self.minutes

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch
        done = self.step - epoch * self.steps_per_epoch
        if self._metrics and done > 0:
            model_state.build_metrics(self.model)
            model_state.set_state(self.model, self._metrics, (model_state.METRICS,))
            self._skip(done)
        self._metrics = None

    def on_train_batch_begin(self, batch, logs=None):
        self._batch = batch

    def on_train_batch_end(self, batch, logs=None):
        step = self.epoch * self.steps_per_epoch + batch + 1
        if step <= self.step:
            return
        self.step = step
        self._sound(lambda: self._losses.add(step, logs))
        is_last = batch + 1 == self.steps_per_epoch
        save, leave = self._agree(step)
        if is_last or save or leave:
            sound = self._about(self.epoch), self._read()
            if save or leave:
                self._write(*sound)
            if leave:
                self._leave()
            self._trained = sound if is_last else None

    def on_test_batch_end(self, batch, logs=None):
        # The weights may be the averaged ones now, and the metrics are those of the validation.
        if self._trained and self._agree(batch + 1)[1]:
            self._write(*self._trained)
            self._leave()

    def on_epoch_end(self, epoch, logs=None):
        value = (logs or {}).get(self.monitor)
        value = None if value is None else float(value)
        about = {**self._about(epoch + 1), self.monitor: value}
        self._trained, state = None, self._read()
        self._write(about, state)
        if self._is_chief and self._is_best(value):
            files.write(self.folder / files.BEST, about, state)
        if self._agree(0)[1]:
            self._leave()

    def on_train_end(self, logs=None):
        leave = self._agree(0)[1]
        self._interruption.unwatch()
        self._mark()  # what is missing now is the report
        if leave:
            self._leave()

    # --- how -------------------------------------------------------------------------------------

    def _skip(self, done):
        """Has `fit` count the first steps of this epoch, which were done, without doing them.

        To `fit` the rest of an epoch and then the other epochs would put averaged weights into the
        model in between, and tell other callbacks twice that training begins and ends.
        """
        train, epoch, logs = self.model.train_function, self.epoch, self.model.get_metrics_result()

        def train_function(iterator):
            if self.epoch == epoch and self._batch < done:
                return logs
            self.model.train_function = train
            return train(iterator)

        self.model.train_function = train_function

    def _agree(self, number):
        """Whether to save, and whether to leave, after so many steps. Workers must do both
        together, as they read metrics together."""
        is_due = self._is_chief and time.monotonic() >= self._due
        told = self._interruption.signal is not None
        save, leave = self._agreement.on(number, is_due, told)
        enough = self.steps > 0 and self.step - self._saved >= self.steps
        return save or enough, leave

    def _about(self, epochs_done):
        return {"step": self.step, "epoch": epochs_done, "steps_per_epoch": self.steps_per_epoch}

    def _read(self):
        """The state, if it is sound."""

        def read():
            self._losses.check()
            state = model_state.read_state(self.model)
            check_weights(state, self.step)
            return state

        return self._sound(read)

    def _sound(self, look):
        """What `look` returns; if it finds that training diverged, says what there is to go to."""
        try:
            return look()
        except DivergedError as error:
            self._interruption.unwatch()
            newest = self.newest()
            raise DivergedError(
                f"{error} (epoch {self.epoch + 1}). "
                + (f"The last checkpoint is {newest}. " if newest else "There is no checkpoint. ")
                + "A lower learning rate, a longer warmup or a smaller norm of gradients may help."
            ) from None

    def _write(self, about, state):
        if self._is_chief:
            files.write(files.step_path(self.folder, about["step"]), about, state)
            for path in files.step_paths(self.folder)[: -self.keep]:
                path.unlink(missing_ok=True)
        self._saved = about["step"]
        self._due = time.monotonic() + 60 * self.minutes

    def _best_value(self):
        try:
            return files.read_about(self.folder / files.BEST).get(self.monitor)
        except (FileNotFoundError, files.Damaged):
            return None

    def _is_best(self, value):
        if value is None or not np.isfinite(value):
            return False
        sign = 1 if self.monitor.endswith("loss") else -1
        if self._best is not None and sign * value >= sign * self._best:
            return False
        self._best = value
        return True

    def _mark(self):
        if self._is_chief:
            run_folder.go_on_by_itself(self.run_folder)

    def _leave(self):
        self._mark()
        if self._is_chief:
            print(f"\nEnding early: step {self.step:,} is saved, and the same command goes on.")
        self._agreement.on(0, True)  # no worker is gone before the chief has written
        self._interruption.leave()

    def _fault(self, model, about, state):
        """What keeps a checkpoint from being one of this run, in words; None if nothing does."""
        if about["steps_per_epoch"] != self.steps_per_epoch:
            return (
                f"its epochs have {about['steps_per_epoch']:,} steps, not {self.steps_per_epoch:,}"
            )
        return model_state.difference(model, state)
