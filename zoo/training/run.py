"""Training runs that can be interrupted and resumed, for recipes and users' own scripts."""

import contextlib
import dataclasses
import sys
import typing

import keras
import tensorflow as tf

from zoo.compat import SwapEMAWeights, compile_arguments
from zoo.errors import UserError, check_at_least_1, check_tensorflow
from zoo.files import as_new_path, atomic, stored_config
from zoo.hardware import device_names, faster_precision, has_gpu, unused_gpu
from zoo.layers.quantization import check_not_quantized
from zoo.training import distribution, state_file
from zoo.training.accumulation import lacks_memory, parts_that_fit
from zoo.training.callbacks import HistoryFile, LearningRateAndSpeed, Norms, history_rows
from zoo.training.interruption import exit_on_sigterm
from zoo.training.run_folder import RunFolder, check_folder, check_same_settings
from zoo.training.settings import Precision, RunSettings
from zoo.training.trainer import Trainer
from zoo.training.training_state import TrainingState

_FIRST_PROFILED = 10  # step: the first ones trace and compile


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
        **fields: replace fields of `settings`: `out`, `resume`, `seed`, ...

    Attributes:
        settings: the settings. Their precision "auto" is resolved: to the precision of the resumed
            run, or else to the one that was measured to be faster.
        path: path of the run directory.
        strategy: `tf.distribute.Strategy`.
        is_chief: whether this worker prints and writes the run directory.
    """

    def __init__(self, settings=None, name="model", **fields):
        check_tensorflow()
        settings = dataclasses.replace(settings or RunSettings(), **fields)
        self.strategy = distribution.choose(settings.strategy, settings.devices)
        self.is_chief = distribution.is_chief(self.strategy)
        self.path = as_new_path(settings.out or f"runs/{name}")
        self._absolute_path = self.path.absolute()
        if self.is_chief:
            with distribution.tell_failure():
                check_folder(self.path, settings.overwrite, settings.resume)
                if settings.overwrite:
                    settings.check_not_read(self.path)
        precision = _resolved_precision(settings, self.path, self.strategy)
        if self.is_chief:
            print(f"Devices: {'; '.join(device_names())}. Precision: {precision}.")
            advice = unused_gpu()
            if advice:
                print(f"warning: {advice}", file=sys.stderr)
        self.settings = dataclasses.replace(settings, precision=precision)
        if self.is_chief:
            with distribution.tell_failure():
                self.check_same_settings(self.settings.stored())
        keras.utils.set_random_seed(self.settings.seed)
        keras.config.set_dtype_policy(precision)

    def check_same_settings(self, config):
        """Raises `UserError` if the run to resume was started with other values of these settings.

        `train` compares all settings. Call this for some of them before long work on the data.
        """
        stored = _config_to_resume(self.settings, self.path)
        if stored is not None:
            stored = {name: stored.get(name) for name in config}
            check_same_settings(self.path, stored, config, self.settings.MAY_CHANGE)

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
        optimizer=None,
        loss=None,
        weighted_metrics=(),
        preprocess=None,
        identity=None,
        finish=None,
        per_epoch=None,
        restore_best=False,
    ):
        """Trains a model, or resumes its training, and saves it.

        Args:
            model: built `keras.Model`, created within `scope`. It must be compiled, unless
                `optimizer` and `loss` are given.
            batches: `tf.data.Dataset` of (inputs, labels) or (inputs, labels, weights), which is
                read from its beginning when a run is resumed; or a function of a step that returns
                an infinite data set, or `WorkerBatches`, beginning at that step.
            epochs: number of epochs.
            steps_per_epoch: number of steps; by default the number of batches of a finite data set.
            validation_data: finite data set or `WorkerBatches`.
            validation_freq: number of epochs from one validation to the next.
            callbacks: list of Keras callbacks.
            optimizer, loss, weighted_metrics: arguments of `Trainer.compile`, for a model that is
                not compiled; it is saved without the optimizer.
            preprocess: see `zoo.training.trainer.Trainer`.
            identity: dict of what identifies the data and the initial model, such as a checksum of
                the data. It must be the same on all workers, and when the run is resumed.
            finish: function of (`RunFolder`, trained model) that the chief calls at the end. It
                must write ``metrics.json`` last, which marks the run as finished. By default, the
                model is written to ``model.keras``, and its last metrics to ``metrics.json``.
            per_epoch: see `zoo.training.callbacks.LearningRateAndSpeed`.
            restore_best: whether the trained model has the weights of the epoch with the lowest
                `val_loss`; by default, it has the weights of the last epoch.

        Returns:
            On the chief, the trained model on one device; None on other workers, and if the run was
            already finished.

        Raises:
            UserError: if a setting or the data cannot be used, or the run diverges.
        """
        with distribution.tell_failure():
            # 1. Check the data, before anything is written.
            _check_settings_of_keras()
            if self.path.absolute() != self._absolute_path:  # the working directory has changed
                self.path = self._absolute_path
            has_length = steps_per_epoch is not None
            if not (has_length and callable(batches)):  # a function is called in step 4
                batches = distribution.as_batches(batches, "batches", is_finite=not has_length)
            if validation_data is not None:
                validation_data = distribution.as_batches(
                    validation_data, "validation_data", is_finite=True
                )
            if not has_length:
                steps_per_epoch = distribution.as_worker_batches(batches).num_batches
            check_at_least_1(
                epochs=epochs, steps_per_epoch=steps_per_epoch, validation_freq=validation_freq
            )
            steps = epochs * steps_per_epoch
            if self.settings.profile and steps < _FIRST_PROFILED:
                raise UserError(f"profile begins at step {_FIRST_PROFILED}. The run has {steps}.")

            # 2. Compile the step.
            if self.settings.remat:
                if not hasattr(model, "remat"):
                    raise UserError(f"remat is for zoo.models only. Received: {type(model)}.")
                model.remat = True
            with self.scope():
                trainer = Trainer(model, preprocess)
                jit_compile = self.settings.jit_compile
                if optimizer is None:
                    trainer.compile(**_arguments_of_compile(model), jit_compile=jit_compile)
                else:
                    trainer.compile(
                        optimizer,
                        loss,
                        weighted_metrics=weighted_metrics,
                        jit_compile=jit_compile,
                    )
            # At the end, `_save` serializes the model, and so does the copy from several devices.
            if finish is None or self.strategy.num_replicas_in_sync > 1:
                _check_saveable(model)

            # 3. Open the run directory, which no other process can use until it is closed.
            with contextlib.closing(
                self._open_folder(epochs, steps_per_epoch, identity or {})
            ) as folder:
                if distribution.from_chief(self.strategy, folder.is_finished):
                    print(f"This run is already finished: {folder.path}")
                    return None

                accumulation = self._accumulation(trainer, batches)

                # 4. Restore the newest checkpoint, if there is one.
                norms = Norms(steps_per_epoch)
                state = TrainingState(
                    self.path,
                    steps_per_epoch,
                    minutes=self.settings.checkpoint_minutes,
                    steps=self.settings.checkpoint_steps,
                    keep=self.settings.checkpoints_kept,
                    norms=norms,
                )
                done = state.restore(trainer, callbacks)
                distribution.check_same(self.strategy, {"the number of steps done": done})
                if callable(batches):
                    remaining = distribution.as_batches(batches(done), "batches")
                else:
                    remaining = batches.repeat().skip(done)

                # 5. Train from there to the end.
                speed = LearningRateAndSpeed(steps_per_epoch, done, per_epoch)
                all_callbacks = [speed, norms, *callbacks]
                # in float16, `trainer.optimizer` is a `keras.optimizers.LossScaleOptimizer`
                inner_optimizer = getattr(trainer.optimizer, "inner_optimizer", trainer.optimizer)
                if inner_optimizer.use_ema:  # validation uses the averaged weights
                    all_callbacks.insert(0, SwapEMAWeights())
                if self.is_chief:  # after all callbacks that add to the logs
                    all_callbacks.append(HistoryFile(self.path))
                    profiled = 0  # none
                    if self.settings.profile:
                        profiled = (_FIRST_PROFILED, _FIRST_PROFILED + self.settings.profile - 1)
                    board = keras.callbacks.TensorBoard(
                        self.path / "tensorboard", write_graph=False, profile_batch=profiled
                    )
                    all_callbacks.append(board)
                all_callbacks.append(state)  # last: its checkpoint marks the epoch as done
                # After early stopping, a resumed run trains no more epochs: `fit` only replaces
                # the weights by their moving average, if there is one, and calls the callbacks.
                last_epoch = state.epoch if state.stopped else epochs
                with (
                    state.watching(),
                    distribution.exit_if_a_worker_is_lost(self.strategy),
                    _report_lack_of_memory(_less_memory(self.settings, model, accumulation)),
                ):
                    trainer.fit(
                        remaining,
                        epochs=last_epoch,
                        initial_epoch=state.epoch,
                        steps_per_epoch=steps_per_epoch,
                        validation_data=validation_data,
                        validation_freq=validation_freq,
                        callbacks=all_callbacks,
                        verbose=1 if sys.stdout.isatty() else 2,
                        accumulation=accumulation,
                    )
                best = state.folder / state_file.BEST
                if restore_best and state_file.paths(best):
                    state_file.load_weights(trainer, best)

                # 6. Save the model and the report; then no checkpoint is needed any more.
                if not self.is_chief:
                    return None
                trained = trainer.trained_model()
                if finish is None:
                    _save(folder, trained)
                else:
                    finish(folder, trained)
                state.remove()
                return trained

    def _accumulation(self, trainer, batches):
        """The number of parts of a batch: that of the settings, or for "auto" one that fits."""
        if self.settings.accumulation != "auto":
            return self.settings.accumulation
        if not has_gpu():
            return 1
        if distribution.num_workers(self.strategy) > 1:  # one that fails would stop the others
            return 1
        if callable(batches):
            first = distribution.as_worker_batches(distribution.as_batches(batches(0), "batches"))
            batches = first if first.largest_step is None else batches(first.largest_step)
        parts = parts_that_fit(trainer, batches)
        print(f"Accumulation: {parts}, the fewest parts in which a batch fits into memory")
        return parts

    def _open_folder(self, epochs, steps_per_epoch, identity):
        """Creates the run directory, or opens it to resume the run."""
        lengths = {"epochs": epochs, "steps_per_epoch": steps_per_epoch}
        stored = self.settings.stored()
        may_change = self.settings.MAY_CHANGE
        fixed = {name: value for name, value in stored.items() if name not in may_change}
        distribution.check_same(self.strategy, {**lengths, **fixed, **identity})
        exit_on_sigterm()
        return RunFolder(
            self.path,
            {**lengths, **stored, **identity},
            overwrite=self.settings.overwrite,
            resume=self.settings.resume,
            writable=self.is_chief,
            # A length that is a setting, as `epochs` of the recipes, may change if `MAY_CHANGE`
            # contains it; one that is only an argument of `train` may always change.
            may_change=may_change | (lengths.keys() - stored.keys()),
        )


def _config_to_resume(settings, folder):
    """The stored settings of the run in `folder`, which is resumed; None for a new run."""
    return None if settings.overwrite else stored_config(folder)


def _resolved_precision(settings, folder, strategy):
    """Returns the precision of a run, the same on all workers.

    "auto" is the precision of the run in `folder` if it is resumed, or else the faster one.
    """
    if settings.precision != "auto":
        return settings.precision
    names = typing.get_args(Precision)
    index = 0
    if distribution.is_chief(strategy):
        stored = _config_to_resume(settings, folder)
        precision = faster_precision() if stored is None else stored.get("precision", "float32")
        index = names.index(precision)
    return names[distribution.from_chief(strategy, index)]


@contextlib.contextmanager
def _report_lack_of_memory(advice):
    """Context in which TensorFlow's error for lack of memory becomes a `UserError`."""
    try:
        yield
    except tf.errors.ResourceExhaustedError as error:
        if not lacks_memory(error):
            raise
        raise UserError(f"A step needs more memory than there is. {advice}") from error


def _less_memory(settings, model, accumulation):
    """A sentence that says how a step takes less memory."""
    advice = f"Pass --accumulation {2 * accumulation}, which computes a batch in more parts"
    if "accumulation" in settings.stored():  # of a model whose weights depend on it
        advice += ", with --overwrite"
    if hasattr(model, "remat"):
        advice += ", or --remat, which stores less"
    return f"{advice}."


def _check_settings_of_keras():
    """Raises UserError if Keras would end training early, or sum metrics in bfloat16."""
    if keras.config.floatx() == "bfloat16":
        raise UserError(
            "keras.config.floatx() is bfloat16, which is too coarse for sums of metrics. Set it to "
            'float32, and pass precision="mixed_bfloat16" to Run.'
        )
    if keras.config.max_epochs() or keras.config.max_steps_per_epoch():
        raise UserError(
            f"Keras limits training: keras.config.max_epochs() is {keras.config.max_epochs()}, "
            f"max_steps_per_epoch() is {keras.config.max_steps_per_epoch()}. Remove the limits, "
            "also the environment variable KERAS_MAX_EPOCHS, and pass epochs and steps_per_epoch."
        )


_METHODS_NOT_CALLED = (
    "make_train_function",
    "make_test_function",
    "train_step",
    "test_step",
    "compute_loss",
    "compute_metrics",
)


def _arguments_of_compile(model):
    """The arguments with which a model is compiled, by name."""
    if not model.compiled:
        raise ValueError(f"The model {model.name} must be compiled: call model.compile(...).")
    overridden = [
        name
        for name in _METHODS_NOT_CALLED
        if getattr(type(model), name) is not getattr(keras.Model, name)
    ]
    if overridden:
        raise UserError(
            f"{type(model).__name__} overrides {', '.join(overridden)}, which "
            "zoo.training.trainer.Trainer does not call. Pass a loss to compile, or call add_loss "
            "in the model."
        )
    if model.run_eagerly or model.steps_per_execution > 1:
        raise UserError("Compile the model without run_eagerly and steps_per_execution.")
    return compile_arguments(model)


def _check_saveable(model):
    """Checks that the model can be saved, which would otherwise fail after training."""
    check_not_quantized(model)
    try:
        model.get_compile_config()
    except OSError:  # Keras reads the source of a lambda; there is none in `python -c`
        print("The model will be saved without its loss: the source of a lambda is unknown.")
        model.get_compile_config = lambda: None
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
