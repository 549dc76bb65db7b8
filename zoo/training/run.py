"""One training run, from devices to report: what all recipes and users' own scripts share."""

import contextlib
import dataclasses
import json
import pathlib
import sys
import timeit
from numbers import Integral
from typing import get_args

from zoo.errors import UserError
from zoo.files import atomic
from zoo.training.run_settings import Precision, RunSettings


class Run:
    """Trains a Keras model on any number of devices and machines; it can be interrupted.

    A script is interrupted and run again as a recipe is: the same command resumes it exactly. See
    docs/training_your_model.md.

        run = zoo.training.Run(out="runs/mine")
        with run.scope():
            model = ...
            model.compile(...)
        run.train(model, batches, epochs=3)

    Create the run first: it selects the devices, which TensorFlow allows only before it computes
    anything, and sets the seed and the precision.

    Args:
        settings: `zoo.training.run_settings.RunSettings`, such as the config of a recipe; by
            default one with these fields: `out`, `resume`, `overwrite`, `seed`, `strategy`,
            `devices`, `precision`, ...
        name: name of the run directory in ``runs``, if the settings have no `out`.
        **fields: fields of `RunSettings`.

    Attributes:
        settings: the settings. The precision is never "auto": it is that of the run in the run
            directory, or else the one that was measured to be faster.
        path: path of the run directory.
        strategy: `tf.distribute.Strategy`.
        is_chief: whether this worker prints and writes the run directory.
    """

    def __init__(self, settings=None, name="model", **fields):
        import keras

        from zoo.training import distribution

        settings = settings or RunSettings(**fields)
        self.strategy = distribution.choose(settings.strategy, settings.devices)
        self.is_chief = distribution.is_chief(self.strategy)
        self.path = pathlib.Path(settings.out or f"runs/{name}")
        if settings.precision == "auto":
            precision = self._chosen_precision(settings.overwrite)
            settings = dataclasses.replace(settings, precision=precision)
            if self.is_chief:
                print(f"Precision: {precision}")
        self.settings = settings
        keras.utils.set_random_seed(self.settings.seed)
        keras.config.set_dtype_policy(self.settings.precision)

    @contextlib.contextmanager
    def scope(self):
        """The context in which the model is created and compiled."""
        from zoo.training import distribution

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
        may_change=(),
        finish=None,
        **per_epoch,
    ):
        """Trains a model, resuming if asked to, and saves it.

        The run directory gets the settings, the history of all epochs, TensorBoard's files,
        checkpoints, and at the end what `finish` writes.

        Args:
            model: built and compiled `keras.Model`, created within `scope`. It is trained by
                `zoo.training.trainer.Trainer`, so it cannot have a `train_step` of its own.
            batches: `tf.data.Dataset` of (inputs, labels) or (inputs, labels, weights), with or
                without end; or a function f(step) that returns an infinite data set, or
                `WorkerBatches`, that starts at that step. A data set is read again from its
                beginning when a run is resumed, to skip the steps that were done.
            epochs: number of epochs.
            steps_per_epoch: number of steps; by default those of a data set with an end.
            validation_data: data set or `WorkerBatches` with an end.
            validation_freq: number of epochs from one validation to the next, as in `fit`, from 1
                to `epochs`.
            callbacks: list of Keras callbacks, or a function of the run directory that returns it.
            compiled_with: arguments of `Trainer.compile`, for a model that is not compiled.
            preprocess: see `zoo.training.trainer.Trainer`.
            config: dict of the settings that affect the result, which must be the same when the run
                is resumed, in addition to the precision; by default the seed.
            may_change: names of settings in `config` that may change nevertheless, such as the
                number of epochs if the learning rate does not depend on it.
            finish: function of (`RunFolder`, trained model) that the chief calls at the end; by
                default it writes ``model.keras`` and, in ``metrics.json``, the last value of each
                metric.
            **per_epoch: see `zoo.training.callbacks.EpochFigures`.

        Returns:
            On the chief the trained model, on one device; None on other workers, and if the run had
            been finished before.

        Raises:
            UserError: if a setting or the data cannot be used, or the run diverges.
        """
        from zoo.training import distribution, run_batches
        from zoo.training.interruption import exit_on_sigterm
        from zoo.training.run_folder import RunFolder

        unknown = [name for name in per_epoch if not name.endswith("_per_epoch")]
        if unknown:
            raise TypeError(f"Run.train has no argument {', '.join(unknown)}.")
        if not isinstance(validation_freq, Integral) or not 1 <= validation_freq <= epochs:
            raise UserError(
                "validation_freq must be a number of epochs from 1 to the epochs of the run, "
                f"{epochs}. Received: {validation_freq!r}."
            )
        settings, steps = self.settings, run_batches.steps_per_epoch(batches, steps_per_epoch)
        with distribution.tell_failure():
            trainer, weigh = self._trainer(model, preprocess, compiled_with, steps)
            if finish is None or self.strategy.num_replicas_in_sync > 1:
                _check_saveable(model)
            folder = RunFolder(
                self.path,
                {"precision": settings.precision, **(config or {"seed": settings.seed})},
                settings.overwrite,
                settings.resume,
                self.is_chief,
                may_change,
            )
            with contextlib.closing(folder):
                exit_on_sigterm(folder.enable_auto_resume)
                if distribution.from_chief(self.strategy, folder.is_finished):
                    print(f"This run is already finished: {folder.path}")
                    return None
                if validation_data is not None:
                    validation_data = run_batches.with_an_end(validation_data)
                    validation_data = weigh(validation_data, "validation_data")
                callbacks = callbacks(folder.path) if callable(callbacks) else callbacks
                fit = {
                    "epochs": epochs,
                    "validation_data": validation_data,
                    "validation_freq": validation_freq,
                    "callbacks": callbacks,
                }
                checkpoint = self._fit(trainer, folder, batches, weigh, steps, fit, per_epoch)
                if not self.is_chief:
                    return None
                print(f"Peak memory: {_peak_memory() or 'unknown'}")
                trained = trainer.trained_model()
                (finish or _save)(folder, trained)
                checkpoint.remove()
                return trained

    def _chosen_precision(self, overwrite):
        """The precision for "auto": that of the run to resume, or else the faster one."""
        from zoo.training import distribution

        chosen = 0
        if self.is_chief:
            stored = None if overwrite else _stored_precision(self.path)
            faster = "mixed_bfloat16" if not stored and _is_faster_in_bfloat16() else "float32"
            chosen = _PRECISIONS.index(stored or faster)
        return _PRECISIONS[distribution.from_chief(self.strategy, chosen)]

    def _trainer(self, model, preprocess, compiled_with, steps):
        """A compiled `Trainer`, and a function that gives batches the weights that it needs."""
        from zoo.training import run_batches
        from zoo.training.trainer import Trainer

        own = compiled_with is None
        compiled_with = {"steps_per_execution": 1, **(compiled_with or _compiled_with(model))}
        several = max(compiled_with["steps_per_execution"], self.settings.steps_per_execution)
        if steps % several:
            raise UserError(
                f"--steps-per-execution must divide the {steps:,} steps of an epoch. Received: "
                f"{several}."
            )
        compiled_with["steps_per_execution"] = several
        with self.scope():
            trainer = Trainer(model, preprocess, counts_rows=own)
            trainer.compile(**compiled_with)
        return trainer, run_batches.counted_rows if own else lambda batches, name: batches

    def _fit(self, trainer, folder, batches, weigh, steps, settings, per_epoch):
        from zoo.training import distribution
        from zoo.training.callbacks import EarlyStopping, SwapEMAWeights, standard_callbacks
        from zoo.training.optimizers import without_loss_scale

        checkpoint = self.settings.checkpoint(folder.path, steps)
        callbacks = list(settings["callbacks"])
        done = checkpoint.restore(trainer, callbacks)
        standard = standard_callbacks(folder.path, steps, done, self.is_chief, **per_epoch)
        if without_loss_scale(trainer.optimizer).use_ema:
            # validation uses the averaged weights
            standard.insert(0, SwapEMAWeights())
        early = [callback for callback in callbacks if isinstance(callback, EarlyStopping)]
        stopped = checkpoint.stopped
        if early:  # with a patience that may have changed
            stopped = any(callback.has_stopped(checkpoint.epoch) for callback in early)
        is_pure = callable(batches)  # a data set may shuffle
        batches = batches(done) if is_pure else batches.repeat().skip(done)
        with distribution.exit_if_a_worker_is_lost(self.strategy, checkpoint.newest):
            try:
                trainer.fit(
                    weigh(batches, "batches"),
                    # no epoch, if it has stopped: `fit` only replaces the weights by their average
                    epochs=checkpoint.epoch if stopped else settings["epochs"],
                    initial_epoch=checkpoint.epoch,
                    steps_per_epoch=steps,
                    validation_data=settings["validation_data"],
                    validation_freq=settings["validation_freq"],
                    callbacks=[*standard, *callbacks, checkpoint],
                    is_pure=is_pure,
                    verbose=1 if sys.stdout.isatty() else 2,
                )
            finally:
                checkpoint.unwatch()
        return checkpoint


_PRECISIONS = [name for name in get_args(Precision) if name != "auto"]


def _stored_precision(path):
    """The precision of the run in a run directory; None if there is none."""
    try:
        stored = json.loads((path / "config.json").read_text())["config"]["precision"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return stored if stored in _PRECISIONS else None


def _is_faster_in_bfloat16():
    """Whether training is on a CPU that multiplies matrices much faster in bfloat16 than in
    float32: in less than 0.8 of the time.
    """
    import tensorflow as tf

    if tf.config.get_visible_devices("GPU"):
        return False
    # what is not a product takes about as long in both: a small gain would not pay for the casts
    return _seconds_of_product("float32") > 1.25 * _seconds_of_product("bfloat16")


def _seconds_of_product(dtype):
    """The time of a matrix product on this CPU."""
    import tensorflow as tf

    matrix = tf.ones([1024, 1024], dtype)  # of 512, oneDNN computes bfloat16 in one thread only
    return min(timeit.repeat(lambda: tf.matmul(matrix, matrix), number=1, repeat=8))


_OWN = ("train_step", "test_step", "compute_loss", "compute_metrics")  # not used by `Trainer`


def _compiled_with(model):
    """What a model is compiled with, as arguments of `Trainer.compile`."""
    import keras

    if not model.compiled:
        raise ValueError(f"The model {model.name} must be compiled: call model.compile(...).")
    own = [name for name in _OWN if getattr(type(model), name) is not getattr(keras.Model, name)]
    if own:
        raise UserError(
            f"{type(model).__name__} has its own {', '.join(own)}, which would not be used: "
            "zoo.training.trainer.Trainer has its own steps. Pass a loss to compile, or call "
            "add_loss in the model."
        )
    metrics = model._compile_metrics
    return {
        "optimizer": model.optimizer,
        "loss": model.loss,
        "loss_weights": model._compile_loss and model._compile_loss._user_loss_weights,
        "metrics": (metrics and metrics._user_metrics) or (),
        "weighted_metrics": (metrics and metrics._user_weighted_metrics) or (),
        "steps_per_execution": model.steps_per_execution,
    }


def _check_saveable(model):
    """Checks before training what else would fail at its end."""
    import keras

    try:
        keras.saving.serialize_keras_object(model)
    except NotImplementedError:
        raise UserError(
            f"{type(model).__name__} cannot be saved: it, or a layer in it, needs a get_config "
            "method that returns the arguments of its constructor."
        ) from None


def _peak_memory():
    """The most memory that this process has used so far, on the host and on each GPU."""
    import tensorflow as tf

    used = {}
    with contextlib.suppress(ImportError):  # on Windows
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        used["host"] = unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for gpu in tf.config.list_logical_devices("GPU"):
        used[gpu.name] = tf.config.experimental.get_memory_info(gpu.name)["peak"]
    return ", ".join(f"{count / 1e9:.2f} GB ({name})" for name, count in used.items())


def _save(folder, model):
    """Writes the model and the last value of each metric."""
    from zoo.training.callbacks import history_rows

    with atomic(folder / "model.keras") as path:
        model.save(path)
    last = {}
    for row in history_rows(folder.path):  # an epoch without validation has no values of it
        last.update(row)
    folder.write_json("metrics.json", last)
