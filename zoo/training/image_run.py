"""The images, the augmentation and the training run of an image classifier."""

import dataclasses

import keras

from zoo.data.image_batches import evaluation_batches, training_batches
from zoo.data.image_folder import image_folder
from zoo.data.images import digits, unreadable_images_named
from zoo.data.tfds_data import tfds_images
from zoo.tasks.classifier import ImageClassifier
from zoo.training.augmentation import Augmentation
from zoo.training.losses import ClassWeighted, balanced
from zoo.training.report import finish_classifier
from zoo.training.run_folder import fingerprint


def find_images(settings):
    """Finds the images that `zoo.training.settings.ImageSettings` select: `ImageDataset`."""
    if settings.is_folder:
        return image_folder(settings.data_dir, settings.seed)
    if settings.dataset == "digits":
        return digits(settings.seed)
    return tfds_images(settings.dataset, settings.data_dir)


def load_images(settings, source=None, **options):
    """Loads the images that settings select: `zoo.data.images.ImageDataset`.

    Args:
        settings: `zoo.training.settings.ImageSettings`.
        source: the result of `find_images`, if it was called before.
        **options: `preprocessing`, `train_examples` and `streamed` of `ImageDataset.loaded`; by
            default, images are resized to the `image_size` of the settings.
    """
    size = settings.image_size and (settings.image_size, settings.image_size)
    source = source or find_images(settings)
    data = source.loaded(size, seed=settings.seed, **options)
    return data.held_out(settings.validation_split, settings.seed)


def augmentation(settings, **others):
    """Creates the `Augmentation` of the settings with the names of its arguments, and `others`."""
    names = {field.name for field in dataclasses.fields(Augmentation)} & vars(settings).keys()
    return Augmentation(**{**{name: getattr(settings, name) for name in names}, **others})


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
        run: `zoo.training.run.Run` with `zoo.training.settings.ImageSettings` and a `batch_size`.
        classifier: `zoo.tasks.classifier.ImageClassifier` of the model to train.
        optimizer: `keras.optimizers.Optimizer`.
        data: `zoo.data.images.ImageDataset`.
        epochs, steps_per_epoch, validation_freq, callbacks: as in `fit`.
        **batches: `augment`, `label_smoothing`, `accumulation` and `min_crop_area` of
            `zoo.data.image_batches.training_batches`.
    """
    settings, names, preprocessing = run.settings, data.class_names, classifier.preprocessing
    validated = data.test if data.valid is None else data.valid
    for note in data.notes * run.is_chief:
        print(note)
    summary = f"{len(data.train):,} images, classes {fingerprint(names)}"
    config = {"data": summary, "preprocessing": preprocessing.to_dict()}
    if hasattr(settings, "weights"):
        config["model of weights"] = fingerprint(classifier.model, classifier.description())
    if settings.patience:
        callbacks = [*callbacks, keras.callbacks.EarlyStopping(patience=settings.patience)]

    def from_step(first_step):
        size, seed = settings.batch_size, settings.seed
        return training_batches(
            data.train, len(names), size, seed=seed, first_step=first_step, **batches
        )

    with unreadable_images_named(data.train, data.test, data.valid):
        run.train(
            classifier.model,
            from_step,
            epochs=epochs,
            steps_per_epoch=steps_per_epoch,
            validation_data=evaluation_batches(validated, len(names), 256),
            validation_freq=validation_freq,
            callbacks=callbacks,
            compiled_with={
                "optimizer": optimizer,
                "loss": _loss(settings, data, batches.get("label_smoothing", 0.0)),
                "weighted_metrics": [keras.metrics.CategoricalAccuracy(name="accuracy")],
            },
            preprocess=preprocessing.normalize,
            config=config,
            finish=lambda folder, model: finish_classifier(
                folder, ImageClassifier(model, preprocessing, names), data, bool(settings.patience)
            ),
            restore_best=bool(settings.patience),
            per_epoch={"images": steps_per_epoch * settings.batch_size},
        )


def _loss(settings, data, smoothing):
    """The loss of soft labels, weighted by class if the settings say so."""
    loss = keras.losses.CategoricalCrossentropy(from_logits=True, reduction="sum")
    if settings.class_weights is None:
        return loss
    weights = balanced(data.train.labels, len(data.class_names))
    # so that a smoothed label has the weight of the label before smoothing
    return ClassWeighted(loss, (weights - smoothing * weights.mean()) / (1.0 - smoothing))
