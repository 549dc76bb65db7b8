"""The training run of an image classifier: its images, their augmentation, and the training."""

import contextlib
import dataclasses

import keras
import tensorflow as tf

from zoo.data import images
from zoo.data.image_folder import folder_classes, image_folder
from zoo.data.pipeline import test_batches, training_batches
from zoo.data.preprocessing import ImagePreprocessing
from zoo.data.tfds_images import tfds_classes, tfds_images
from zoo.errors import UserError
from zoo.tasks.classifier import ImageClassifier
from zoo.training.augmentation import Augmentation
from zoo.training.report import finish_classifier
from zoo.training.run_folder import fingerprint


def load_images(settings, preprocessing=None, train_examples=None, streamed=False):
    """Finds the images that settings select: `zoo.data.images.ImageDataset`.

    Args:
        settings: `zoo.training.settings.ImageSettings`.
        preprocessing: `zoo.data.preprocessing.ImagePreprocessing` that resizes and crops them; by
            default they are resized to `image_size`.
        train_examples: number of training images to draw; all by default.
        streamed: whether the training images keep their sizes until they are needed, for random
            crops.
    """
    size = settings.image_size and (settings.image_size, settings.image_size)
    options = {"preprocessing": preprocessing, "train_examples": train_examples}
    if settings.dataset == "digits" and not settings.is_folder:
        options["preprocessing"] = preprocessing or (size and ImagePreprocessing(tuple(size), 1))
        data = images.digits(settings.seed, **options)
    elif not settings.is_folder:
        source = settings.dataset, settings.data_dir
        data = tfds_images(*source, size, settings.seed, streamed=streamed, **options)
    elif size or preprocessing:
        data = image_folder(settings.data_dir, size, settings.seed, streamed=streamed, **options)
    else:
        raise UserError(f"Pass --image-size, such as 64, for the image folder {settings.data_dir}.")
    return data.held_out(settings.validation_split, settings.seed)


def class_names(settings):
    """The class names of the images that settings select, without reading any image."""
    if settings.is_folder:
        return folder_classes(settings.data_dir)
    if settings.dataset == "digits":
        return images.DIGITS
    return tfds_classes(settings.dataset, settings.data_dir)


def augmentation(settings, **others):
    """`Augmentation` with the settings that have the names of its arguments, and `others`."""
    names = {field.name for field in dataclasses.fields(Augmentation)} & vars(settings).keys()
    try:
        return Augmentation(**{**{name: getattr(settings, name) for name in names}, **others})
    except ValueError as error:
        raise UserError(str(error)) from None


def train_classifier(
    run,
    classifier,
    optimizer,
    data,
    epochs,
    steps_per_epoch,
    validation_freq=1,
    callbacks=(),
    **batches,
):
    """Trains an image classifier, then tests it and writes the report.

    Args:
        run: `zoo.training.run.Run`; its settings have a `batch_size`.
        classifier: `zoo.tasks.classifier.ImageClassifier` of the model to train.
        optimizer: `keras.optimizers.Optimizer`.
        data: `zoo.data.images.ImageDataset`.
        epochs, steps_per_epoch, validation_freq, callbacks: as in `fit`.
        **batches: `augment`, `label_smoothing`, `repeats`, `accumulation` and `min_crop_area` of
            `zoo.data.pipeline.training_batches`.
    """
    settings, names, preprocessing = run.settings, data.class_names, classifier.preprocessing
    for line in data.skipped if run.is_chief else ():
        print(f"skipped: {line}")
    config = {"preprocessing": preprocessing.to_dict()}
    if hasattr(settings, "weights"):
        config["model of weights"] = fingerprint(classifier.model, classifier.description())

    def from_step(first_step):
        size, seed = settings.batch_size, settings.seed
        return training_batches(
            data.train, len(names), size, seed=seed, first_step=first_step, **batches
        )

    with _unreadable_images_named(data):
        run.train(
            classifier.model,
            from_step,
            epochs=epochs,
            steps_per_epoch=steps_per_epoch,
            validation_data=test_batches(data.test, len(names), 256),
            validation_freq=validation_freq,
            callbacks=callbacks,
            compiled_with={
                "optimizer": optimizer,
                "loss": keras.losses.CategoricalCrossentropy(from_logits=True, reduction="sum"),
                "weighted_metrics": [keras.metrics.CategoricalAccuracy(name="accuracy")],
            },
            preprocess=preprocessing.normalize,
            config=config,
            finish=lambda folder, model: finish_classifier(
                folder, ImageClassifier(model, preprocessing, names), data
            ),
            images_per_epoch=steps_per_epoch * settings.batch_size,
        )


@contextlib.contextmanager
def _unreadable_images_named(data):
    """In place of TensorFlow's error about the input, raises ours if too many images are broken."""
    try:
        yield
    except tf.errors.OpError:
        for part in (data.train, data.test):
            if isinstance(part, images.StreamedImages):
                part.check()
        raise
