"""The images and the training run of an image classifier."""

import collections

import keras

from zoo.data.class_names import matched_classes
from zoo.data.image_batches import GROUP_SIZE, evaluation_batches, training_batches
from zoo.data.image_folder import image_folder
from zoo.data.image_table import image_table
from zoo.data.images import digits, unreadable_images_named
from zoo.data.tfds_data import tfds_images
from zoo.errors import DataError
from zoo.hardware import has_gpu
from zoo.models import ViT
from zoo.tasks.classifier import ImageClassifier
from zoo.training.distillation import (
    DistillationLoss,
    load_teacher,
    student_accuracy,
    teacher_function,
    with_teacher,
)
from zoo.training.fine_tuning import other_split
from zoo.training.losses import ClassWeighted, balanced_class_weights, several_labels
from zoo.training.report import finish_classifier
from zoo.training.run_folder import checksum_of_lines, fingerprint, task_fingerprint

_VALIDATION_BATCH = 256  # images
_TEACHER_ADVICE = (
    "Pass --teacher a model that was trained on these classes, such as a run of "
    "recipes/vit_finetune.py."
)


def find_images(settings):
    """Finds the images that `zoo.training.settings.ImageSettings` select: `ImageDataset`."""
    if settings.labels is not None:
        return image_table(settings.data_dir, settings.labels, settings.problem, settings.seed)
    if settings.is_folder:
        return image_folder(settings.data_dir, settings.seed)
    if settings.dataset == "digits":
        return digits(settings.seed)
    return tfds_images(settings.dataset, settings.data_dir, settings.seed)


def load_images(settings, source=None, preprocessing=None, train_examples=None, streamed=False):
    """Loads the images that `ImageSettings` select: `zoo.data.images.ImageDataset`.

    `source` is the result of `find_images`, if it was called before. For the other arguments see
    `ImageDataset.loaded`; by default, images are resized to the `image_size` of the settings.
    """
    if source is None:
        source = find_images(settings)
    image_size = None
    if settings.image_size is not None:
        image_size = (settings.image_size, settings.image_size)
    data = source.loaded(
        image_size,
        preprocessing=preprocessing,
        train_examples=train_examples,
        seed=settings.seed,
        streamed=streamed,
    )
    return data.held_out(settings.validation_split, settings.seed)


def train_classifier(
    run,
    classifier,
    data,
    *,
    optimizer,
    loss,
    weighted_metrics,
    epochs,
    steps_per_epoch,
    augment=None,
    label_smoothing=0.0,
    min_crop_area=None,
    validation_freq=1,
    callbacks=(),
):
    """Trains an image classifier, then tests it and writes the report.

    Args:
        run: `zoo.training.run.Run` with `zoo.training.settings.ImageSettings` and a `batch_size`.
        classifier: `zoo.tasks.classifier.ImageClassifier` of the model to train.
        data: `zoo.data.images.ImageDataset`.
        optimizer, loss, weighted_metrics: as in `compile`.
        epochs, steps_per_epoch, validation_freq, callbacks: as in `fit`.
        augment, label_smoothing, min_crop_area: see `zoo.data.image_batches.training_batches`.
    """
    settings = run.settings
    preprocessing = classifier.preprocessing
    class_names = data.class_names
    num_classes = len(class_names)
    stops_early = settings.patience is not None
    replicas = run.strategy.num_replicas_in_sync
    has_whole_groups = replicas == 1 or settings.batch_size % (replicas * GROUP_SIZE) == 0
    on_device = augment is not None and has_gpu() and has_whole_groups

    # 1. The teacher, if there is one.
    teacher = None
    notes = ()
    if settings.teacher:
        with run.scope():
            teacher = load_teacher(settings.teacher, preprocessing.channels)
        classes, notes = classes_of_teacher(settings.teacher, teacher, class_names)
        teacher_logits = teacher_function(teacher, classes)
        if isinstance(classifier.model, ViT):
            classifier.model.separate_heads = True
    notes += _split_notes(settings, classifier, teacher, data.seed)
    data = data._replace(notes=data.notes + notes)
    if run.is_chief:
        for note in data.notes:
            print(note)

    # 2. The batches, and the report at the end.
    def batches(first_step):
        without_teacher = training_batches(
            data.train,
            num_classes,
            settings.batch_size,
            augment=augment,
            label_smoothing=label_smoothing,
            seed=settings.seed,
            first_step=first_step,
            min_crop_area=min_crop_area,
            on_device=on_device,
        )
        if teacher is None:
            return without_teacher
        return with_teacher(without_teacher, teacher_logits)

    def finish(folder, model):
        trained = ImageClassifier(model, preprocessing, class_names, settings.problem)
        finish_classifier(folder, trained, data, restored=stops_early)

    # 3. What must be the same when the run is resumed.
    identity = {
        "data": f"{len(data.train):,} images, classes {fingerprint(class_names)}",
        "preprocessing": preprocessing.to_dict(),
    }
    if data.valid is not None:
        identity["validation images"] = fingerprint(data.valid.numbers.tolist())
    if settings.labels is not None:
        identity["checksum of labels"] = checksum_of_lines(settings.labels)
    if hasattr(settings, "weights"):
        identity["model of weights"] = fingerprint(classifier.model, classifier.description())
    if teacher is not None:
        identity["model of teacher"] = task_fingerprint(teacher)

    # 4. Training.
    if stops_early:
        callbacks = [*callbacks, keras.callbacks.EarlyStopping(patience=settings.patience)]
    validated = data.test if data.valid is None else data.valid

    with unreadable_images_named(data.train, data.test, data.valid):
        run.train(
            classifier.model,
            batches,
            epochs=epochs,
            steps_per_epoch=steps_per_epoch,
            validation_data=evaluation_batches(validated, num_classes, _VALIDATION_BATCH),
            validation_freq=validation_freq,
            callbacks=callbacks,
            optimizer=optimizer,
            loss=loss,
            weighted_metrics=weighted_metrics,
            preprocess=preprocessing.normalize,
            identity=identity,
            finish=finish,
            restore_best=stops_early,
            per_epoch={"images": steps_per_epoch * settings.batch_size},
        )


def classes_of_teacher(path, teacher, class_names):
    """Finds the classes of the data among those of a teacher; see `matched_classes`.

    Raises:
        DataError: if the teacher lacks a class, or has the same for several classes of the data.
    """
    try:
        numbers, notes = matched_classes(class_names, teacher.class_names, _TEACHER_ADVICE)
        check_distinct(class_names, numbers)
    except DataError as error:
        raise DataError(f"--teacher {path}: {error}") from None
    return numbers, notes


def check_distinct(class_names, numbers):
    """Raises `DataError` if classes of the data have the same number among those of a model."""
    names_by_number = collections.defaultdict(list)
    for name, number in zip(class_names, numbers):
        names_by_number[number].append(name)
    for names in names_by_number.values():
        if len(names) > 1:
            raise DataError(
                f"The model has one class for {len(names)} classes of the data: "
                f"{', '.join(names[:5])}. It cannot teach how they differ. {_TEACHER_ADVICE}"
            )


def _split_notes(settings, classifier, teacher, seed):
    """Lines about models that may have been trained on images that `seed` holds out."""
    if seed is None:
        return ()
    split_settings = ["seed"]
    if settings.validation_split:
        split_settings += ["validation_split", "train_examples"]
    notes = ()
    if teacher is not None:
        names = [*split_settings, "dataset"]
        if settings.is_folder:
            names = [*split_settings, "data_dir", "labels"]
        notes += other_split("--teacher", settings.teacher, teacher, settings, names)
    # A model of --weights was usually trained on other data, which is no reason for a note.
    weights = getattr(settings, "weights", None)
    if weights and not settings.from_scratch:
        notes += other_split("--weights", weights, classifier, settings, split_settings)
    return notes


def loss_and_accuracy(settings, data):
    """The loss and the accuracy of soft labels, as Mixup, CutMix and smoothing make them."""
    if settings.problem == "multi_label":
        return several_labels()
    loss = keras.losses.CategoricalCrossentropy(
        from_logits=True, reduction="mean_with_sample_weight"
    )
    if settings.class_weights == "balanced":
        weights = balanced_class_weights(data.train.labels, len(data.class_names))
        loss = ClassWeighted(loss, weights, settings.label_smoothing)
    if not settings.teacher:
        return loss, keras.metrics.CategoricalAccuracy(name="accuracy")
    loss = DistillationLoss(
        loss, settings.distillation, settings.temperature, settings.distillation_weight
    )
    return loss, student_accuracy()
