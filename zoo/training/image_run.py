"""A run of a recipe for image classifiers, from start to report."""

import contextlib
import sys

from zoo.training.command import settings_of


class ImageRun:
    """Trains an image classifier on any number of devices, from start to report.

    Args:
        config: `zoo.training.image_settings.ImageSettings`, with a field `batch_size`.
    """

    def __init__(self, config):
        import keras

        from zoo.training import distribution

        self.config = config
        self.strategy = distribution.choose(config.strategy, config.devices)
        self.is_chief = distribution.is_chief(self.strategy)
        keras.utils.set_random_seed(config.seed)
        keras.config.set_dtype_policy(config.precision)

    @contextlib.contextmanager
    def scope(self):
        """The context in which model and optimizer are created."""
        from zoo.training import distribution

        with distribution.exit_if_a_worker_is_lost(self.strategy), self.strategy.scope():
            yield

    def train(self, classifier, optimizer, data, name, epochs, steps_per_epoch, **batches):
        """Trains, resuming if asked to; then tests the model and writes the report.

        Args:
            classifier: `zoo.classifier.ImageClassifier` of the model to train.
            optimizer: `keras.optimizers.Optimizer`.
            data: `zoo.data.images.ImageDataset`.
            name: of the run directory in ``runs``, if the config has none.
            epochs, steps_per_epoch: as in `fit`.
            **batches: `augment`, `label_smoothing`, `repeats`, `accumulation` and `min_crop_area`
                of `zoo.data.pipeline.training_batches`.
        """
        from zoo.classifier import ImageClassifier
        from zoo.training import distribution
        from zoo.training.interruption import exit_on_sigterm
        from zoo.training.report import finish_classifier
        from zoo.training.run_folder import RunFolder, fingerprint

        config = self.config
        for line in data.skipped if self.is_chief else ():
            print(f"skipped: {line}")
        trainer = self._trainer(classifier, optimizer)
        out, settings = config.out or f"runs/{name}", settings_of(config)
        if "weights" in settings:
            settings["model of weights"] = fingerprint(classifier.model, classifier.description())
        run = RunFolder(out, settings, config.overwrite, config.resume, self.is_chief)
        exit_on_sigterm(run.enable_auto_resume)
        if distribution.from_chief(self.strategy, run.is_finished):
            print(f"This run is already finished: {run.path}")
            return
        checkpoint = self._fit(trainer, run, classifier, data, epochs, steps_per_epoch, batches)
        if self.is_chief:
            model = trainer.trained_model()
            trained = ImageClassifier(model, classifier.preprocessing, data.class_names)
            finish_classifier(run, trained, data)
            checkpoint.remove()

    def _trainer(self, classifier, optimizer):
        import keras

        from zoo.training.trainer import Trainer

        with self.scope():
            trainer = Trainer(classifier.model, classifier.preprocessing.normalise)
            trainer.compile(
                optimizer,
                keras.losses.CategoricalCrossentropy(from_logits=True, reduction="sum"),
                [keras.metrics.CategoricalAccuracy(name="accuracy")],
            )
        return trainer

    def _fit(self, trainer, run, classifier, data, epochs, steps, batches):
        import keras

        import zoo.data.pipeline as pipeline
        from zoo.training import distribution
        from zoo.training.callbacks import standard_callbacks

        config, classes = self.config, len(data.class_names)
        checkpoint = config.checkpoint(run.path, steps)
        done, images = checkpoint.restore(trainer), steps * config.batch_size
        callbacks = standard_callbacks(
            run.path, steps, done, self.is_chief, images_per_epoch=images
        )
        if getattr(trainer.optimizer, "inner_optimizer", trainer.optimizer).use_ema:
            # validation uses the averaged weights
            callbacks.insert(0, keras.callbacks.SwapEMAWeights())
        with (
            _unreadable_images_named(data),
            distribution.exit_if_a_worker_is_lost(self.strategy, checkpoint.newest),
        ):
            trainer.fit(
                pipeline.training_batches(
                    data.train,
                    classes,
                    config.batch_size,
                    seed=config.seed,
                    first_step=done,
                    **batches,
                ),
                epochs=epochs,
                initial_epoch=checkpoint.epoch,
                steps_per_epoch=steps,
                validation_data=pipeline.test_batches(data.test, classes, 256),
                callbacks=[*callbacks, checkpoint],
                verbose=1 if sys.stdout.isatty() else 2,
            )
        return checkpoint


@contextlib.contextmanager
def _unreadable_images_named(data):
    """In place of TensorFlow's error about the input, raises ours if too many images are broken."""
    import tensorflow as tf

    from zoo.data.images import StreamedImages

    try:
        yield
    except tf.errors.OpError:
        for part in (data.train, data.test):
            if isinstance(part, StreamedImages):
                part.check()
        raise
