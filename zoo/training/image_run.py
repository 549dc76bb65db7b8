"""What the recipes for image classifiers share: settings, data, and a run from start to report."""

import contextlib
import dataclasses
import pathlib
import sys
from typing import Literal

from zoo.errors import UserError
from zoo.training.command import check_limits, settings_of


@dataclasses.dataclass(frozen=True)
class ImageRunSettings:
    """Settings of a run that do not concern the model or its training."""

    dataset: str = "cifar10"
    """digits (built in), or an image classification data set by its TensorFlow Datasets name."""
    data_dir: str | None = None
    """Folder of prepared TFDS data, or of images: train/<class>/*.jpg, test/<class>/*.jpg."""
    image_size: int | None = None
    """Side in pixels to resize images to; required if they differ in size."""
    out: str | None = None
    """Run directory; by default runs/, the model and the name of the data set or folder."""
    overwrite: bool = False
    """Delete an existing run in the run directory."""
    resume: bool = False
    """Resume the run in the run directory, started with the same settings."""
    seed: int = 0
    """Seed of weights, order, augmentation and dropout."""
    strategy: Literal["auto", "one", "mirrored", "multiworker"] = "auto"
    """Train on one device, all devices of this machine, or several workers; auto uses all."""
    devices: int | None = None
    """Number of devices to use, all GPUs by default; without GPUs, splits the CPU."""
    precision: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    """Mixed precision computes in 16 bits and keeps the weights in float32."""
    checkpoint_minutes: float = 10.0
    """Minutes between checkpoints; one is also written at the end of each epoch."""
    checkpoint_steps: int = 0
    """Steps between additional checkpoints; 0 to disable."""
    checkpoints_kept: int = 3
    """Number of checkpoints to keep; the best one is also kept."""

    def __post_init__(self):
        least = {"seed": 0, "checkpoint_minutes": 0, "checkpoint_steps": 0}
        check_limits(self, {**least, "checkpoints_kept": 1, "image_size": 1})

    @property
    def data_name(self):
        """The name of the data set or folder."""
        return pathlib.Path(self.data_dir).name if self._is_folder else self.dataset

    def class_names(self):
        """The class names of the data set or folder, without reading any image."""
        from zoo.data import images

        if self._is_folder:
            return images.folder_classes(self.data_dir)
        if self.dataset == "digits":
            return images.DIGITS
        return images.tfds_classes(self.dataset, self.data_dir)

    def load_data(self, preprocessing=None, train_examples=None):
        """Reads the images: `zoo.data.images.ImageDataset`.

        Args:
            preprocessing: `zoo.data.preprocessing.ImagePreprocessing` that resizes and crops them;
                by default they are resized to `image_size`.
            train_examples: number of training images to draw; all by default.
        """
        from zoo.data import images

        size = self.image_size and (self.image_size, self.image_size)
        settings = {"preprocessing": preprocessing, "train_examples": train_examples}
        if self.dataset == "digits" and not self._is_folder:
            return images.digits(self.seed, **settings)
        if not self._is_folder:
            return images.tfds_images(self.dataset, self.data_dir, size, self.seed, **settings)
        if not size and not preprocessing:
            raise UserError(f"Pass --image-size, such as 64, for the image folder {self.data_dir}.")
        return images.image_folder(self.data_dir, size, self.seed, **settings)

    @property
    def _is_folder(self):
        return self.data_dir is not None and pathlib.Path(self.data_dir, "train").is_dir()


def augmentation(config, **settings):
    """`Augmentation` with the settings of a recipe that have the names of its arguments.

    `settings` override those of the recipe.
    """
    from zoo.training.augmentation import Augmentation

    names = [
        field.name for field in dataclasses.fields(Augmentation) if hasattr(config, field.name)
    ]
    try:
        return Augmentation(**{**{name: getattr(config, name) for name in names}, **settings})
    except ValueError as error:
        raise UserError(str(error)) from None


class ImageRun:
    """Trains an image classifier on any number of devices, from start to report.

    Args:
        config: `ImageRunSettings`, with a field `batch_size`.
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
            **batches: `augment`, `label_smoothing`, `repeats` and `accumulation` of
                `zoo.data.pipeline.training_batches`.
        """
        from zoo.classifier import ImageClassifier
        from zoo.training import distribution
        from zoo.training.interruption import exit_on_sigterm
        from zoo.training.report import finish_classifier
        from zoo.training.run_folder import RunFolder

        config = self.config
        for line in data.skipped if self.is_chief else ():
            print(f"skipped: {line}")
        trainer = self._trainer(classifier.model, optimizer)
        out, settings = config.out or f"runs/{name}", settings_of(config)
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

    def _trainer(self, model, optimizer):
        import keras

        from zoo.training.trainer import Trainer

        with self.scope():
            trainer = Trainer(model)
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
        from zoo.training.checkpoint import Checkpoint

        config, classes = self.config, len(data.class_names)
        checkpoint = Checkpoint(
            run.path,
            steps,
            config.checkpoint_minutes,
            config.checkpoint_steps,
            config.checkpoints_kept,
        )
        done, images = checkpoint.restore(trainer), steps * config.batch_size
        callbacks = standard_callbacks(
            run.path, steps, done, self.is_chief, images_per_epoch=images
        )
        if trainer.optimizer.use_ema:
            # validation uses the averaged weights
            callbacks.insert(0, keras.callbacks.SwapEMAWeights())
        with distribution.exit_if_a_worker_is_lost(self.strategy, checkpoint.newest):
            trainer.fit(
                pipeline.training_batches(
                    data.train,
                    classifier.preprocessing,
                    classes,
                    config.batch_size,
                    seed=config.seed,
                    first_step=done,
                    **batches,
                ),
                epochs=epochs,
                initial_epoch=checkpoint.epoch,
                steps_per_epoch=steps,
                validation_data=pipeline.test_batches(
                    data.test, classifier.preprocessing, classes, 256
                ),
                callbacks=[*callbacks, checkpoint],
                verbose=1 if sys.stdout.isatty() else 2,
            )
        return checkpoint
