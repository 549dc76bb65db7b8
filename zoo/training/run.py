"""A training run, from the devices to the report, for recipes and users' own scripts."""

import contextlib
import dataclasses
import pathlib
import sys

import keras

from zoo.compat import SwapEMAWeights, compile_arguments
from zoo.errors import UserError, check_at_least_1
from zoo.files import atomic
from zoo.layers.config import check_not_quantized
from zoo.training import distribution
from zoo.training import state_file as files
from zoo.training.callbacks import EpochFigures, HistoryFile, history_rows
from zoo.training.hardware import resolve_precision
from zoo.training.interruption import exit_on_sigterm
from zoo.training.run_folder import RunFolder, check_folder
from zoo.training.settings import RunSettings
from zoo.training.trainer import Trainer, num_batches
from zoo.training.training_state import TrainingState


class Run:
    """Trains a Keras model on any number of devices and machines, with exact resuming.

    The same command resumes an interrupted script, as it does a recipe. See
    docs/training_your_model.md.

        run = zoo.training.Run(out="runs/mine")
        with run.scope():
            model = ...
            model.compile(...)
        run.train(model, batches, epochs=3)

    Create the run first: it selects the devices, which TensorFlow allows only before it computes
    anything, and sets the seed and the precision.

    Args:
        settings: `zoo.training.settings.RunSettings`, such as the config of a recipe.
        name: name of the run directory in ``runs``, if the settings have no `out`.
        **fields: fields that override those of `settings`: `out`, `resume`, `seed`, ...

    Attributes:
        settings: the settings. The precision "auto" is replaced by that of the run in the run
            directory, or else by the one that was measured to be faster.
        path: path of the run directory.
        strategy: `tf.distribute.Strategy`.
        is_chief: whether this worker prints and writes the run directory.
    """

    def __init__(self, settings=None, name="model", **fields):
        settings = dataclasses.replace(settings or RunSettings(), **fields)
        self.strategy = distribution.choose(settings.strategy, settings.devices)
        self.is_chief = distribution.is_chief(self.strategy)
        self.path = pathlib.Path(settings.out or f"runs/{name}")
        if self.is_chief:
            with distribution.tell_failure():
                check_folder(self.path, settings.overwrite, settings.resume)
        precision = resolve_precision(settings, self.path, self.strategy)
        self.settings = dataclasses.replace(settings, precision=precision)
        keras.utils.set_random_seed(self.settings.seed)
        keras.config.set_dtype_policy(precision)

    @contextlib.contextmanager
    def scope(self):
        """The context in which the model is created and compiled."""
        with (
            distribution.tell_failure(),
            distribution.exit_if_a_worker_is_lost(self.strategy),
            self.strategy.scope(),
        ):
            yield

    def train(
        self,
        model,
        batches,
        *,
        epochs,
        steps_per_epoch=None,
        validation_data=None,
        validation_freq=1,
        callbacks=(),
        compiled_with=None,
        preprocess=None,
        config=None,
        finish=None,
        per_epoch=None,
        restore_best=False,
    ):
        """Trains a model, or resumes its training, and saves it.

        Args:
            model: built and compiled `keras.Model`, created within `scope`.
            batches: `tf.data.Dataset` of (inputs, labels) or (inputs, labels, weights), which is
                read from its beginning when a run is resumed; or a function of a step that returns
                an infinite data set, or `WorkerBatches`, beginning at that step.
            epochs: number of epochs.
            steps_per_epoch: number of steps; by default the number of batches of a finite data set.
            validation_data: finite data set or `WorkerBatches`.
            validation_freq: number of epochs from one validation to the next.
            callbacks: list of Keras callbacks.
            compiled_with: arguments of `Trainer.compile`, for a model that is not compiled.
            preprocess: see `zoo.training.trainer.Trainer`.
            config: dict of everything else that affects the result, such as a checksum of the data.
                It must be the same on all workers, and when the run is resumed.
            finish: function of (`RunFolder`, trained model) that the chief calls at the end, and
                that writes ``metrics.json`` last, which marks the run as finished; by default, it
                writes ``model.keras``, and the last metrics to ``metrics.json``.
            per_epoch: see `zoo.training.callbacks.EpochFigures`.
            restore_best: whether the trained model has the weights of the epoch with the lowest
                `val_loss`, instead of those of the last epoch.

        Returns:
            On the chief, the trained model on one device; None on other workers, and if the run was
            already finished.

        Raises:
            UserError: if a setting or the data cannot be used, or the run diverges.
        """
        with distribution.tell_failure():
            if not (callable(batches) and steps_per_epoch):
                batches = distribution.checked(batches, "batches", is_finite=not steps_per_epoch)
            if validation_data is not None:
                validation_data = distribution.checked(validation_data, "validation_data", True)
            if self.settings.remat:
                if not hasattr(model, "remat"):
                    raise UserError(f"remat is for zoo.models only. Received: {type(model)}.")
                model.remat = True
            with self.scope():
                trainer = Trainer(model, preprocess)
                compiled_with = compiled_with or _compiled_with(model)
                trainer.compile(**{"jit_compile": self.settings.jit_compile, **compiled_with})
            if finish is None or self.strategy.num_replicas_in_sync > 1:
                _check_saveable(model)
            lengths = {"epochs": epochs, "steps_per_epoch": steps_per_epoch or num_batches(batches)}
            check_at_least_1(**lengths, validation_freq=validation_freq)
            with contextlib.closing(self._open_folder(lengths, config or {})) as folder:
                if distribution.from_chief(self.strategy, folder.is_finished):
                    print(f"This run is already finished: {folder.path}")
                    return None
                checkpoint = self._fit(
                    trainer,
                    batches,
                    callbacks,
                    per_epoch,
                    validation_data=validation_data,
                    validation_freq=validation_freq,
                    **lengths,
                )
                best = checkpoint.folder / files.BEST
                if restore_best and files.paths(best):
                    files.load_weights(trainer, best)
                if not self.is_chief:
                    return None
                trained = trainer.trained_model()
                (finish or _save)(folder, trained)
                checkpoint.remove()
                return trained

    def _open_folder(self, lengths, config):
        """Creates the run directory, or opens that of the run to resume."""
        stored, may_change = self.settings.stored(), self.settings.may_change()
        fixed = {name: value for name, value in stored.items() if name not in may_change}
        distribution.check_same(self.strategy, {**lengths, **fixed, **config})
        exit_on_sigterm()
        return RunFolder(
            self.path,
            {**lengths, **stored, **config},
            self.settings.overwrite,
            self.settings.resume,
            self.is_chief,
            [*may_change, *(lengths.keys() - stored.keys())],
        )

    def _fit(self, trainer, batches, callbacks, per_epoch, **settings):
        """Resumes from the newest checkpoint, if there is one, and trains; returns the state."""
        own, steps = self.settings, settings["steps_per_epoch"]
        times = own.checkpoint_minutes, own.checkpoint_steps
        checkpoint = TrainingState(self.path, steps, *times, own.checkpoints_kept)
        done = checkpoint.restore(trainer, callbacks)
        distribution.check_same(self.strategy, {"the number of steps done": done})
        if checkpoint.stopped:  # without an epoch, `fit` only replaces the weights by their average
            settings["epochs"] = checkpoint.epoch
        every = [EpochFigures(steps, done, per_epoch), *callbacks]
        scaled = trainer.optimizer  # in float16 by a `keras.optimizers.LossScaleOptimizer`
        if getattr(scaled, "inner_optimizer", scaled).use_ema:
            every.insert(0, SwapEMAWeights())  # validation uses the averaged weights
        if self.is_chief:  # last, as the other callbacks add to the logs
            board = keras.callbacks.TensorBoard(self.path / "tensorboard", write_graph=False)
            every += [HistoryFile(self.path), board]
        if callable(batches):
            remaining = distribution.checked(batches(done), "batches")
        else:
            remaining = batches.repeat().skip(done)
        with distribution.exit_if_a_worker_is_lost(self.strategy):
            try:
                trainer.fit(
                    remaining,
                    initial_epoch=checkpoint.epoch,
                    callbacks=[*every, checkpoint],
                    verbose=1 if sys.stdout.isatty() else 2,
                    **settings,
                )
            finally:
                checkpoint.interruption.unwatch()
        return checkpoint


_NOT_USED = ("train_step", "test_step", "compute_loss", "compute_metrics")  # by `Trainer`


def _compiled_with(model):
    """The arguments of `Trainer.compile` with which a model is compiled."""
    if not model.compiled:
        raise ValueError(f"The model {model.name} must be compiled: call model.compile(...).")
    custom = [n for n in _NOT_USED if getattr(type(model), n) is not getattr(keras.Model, n)]
    if custom:
        raise UserError(
            f"{type(model).__name__} overrides {', '.join(custom)}, which "
            "zoo.training.trainer.Trainer does not call. Pass a loss to compile, or call add_loss "
            "in the model."
        )
    return compile_arguments(model)


def _check_saveable(model):
    """Checks that the model can be saved, which would otherwise fail after training."""
    check_not_quantized(model)
    try:
        keras.saving.serialize_keras_object(model)
    except NotImplementedError:
        raise UserError(
            f"{type(model).__name__} cannot be saved: it, or one of its layers, needs a get_config "
            "method that returns the arguments of its constructor."
        ) from None


def _save(folder, model):
    """Writes the model and the last value of each metric."""
    with atomic(folder / "model.keras") as path:
        model.save(path)
    last = {}
    for row in history_rows(folder.path):  # not every epoch has validation metrics
        last.update(row)
    folder.write_json("metrics.json", last)
