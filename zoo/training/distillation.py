"""Distillation: a student learns from labels and from what a teacher predicts.

Sources: Hinton et al. 2015, "Distilling the Knowledge in a Neural Network", section 2; Touvron et
al. 2020, "Training data-efficient image transformers & distillation through attention" (DeiT),
section 4, and its code, losses.py.

Axes: B images, K classes.
"""

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from zoo.compat import higher_is_better
from zoo.errors import UserError, check_choice
from zoo.tasks.classifier import ImageClassifier
from zoo.training.fine_tuning import load_model_of_flag


def load_teacher(path, channels):
    """Loads the model of ``--teacher``.

    Args:
        path: see `zoo.load`.
        channels: number of channels of the data's images.

    Returns:
        `zoo.tasks.classifier.ImageClassifier`.

    Raises:
        UserError: if there is no such model, if it is not a classifier of images of this number of
            channels, with one label each, or if its weights are not finite.
    """
    teacher = load_model_of_flag("--teacher", path)
    if not isinstance(teacher, ImageClassifier):
        raise UserError(
            "--teacher must be an image classifier, such as a run of recipes/vit_finetune.py. "
            f"{path} is: {type(teacher).__name__}."
        )
    if teacher.problem != "single_label":
        raise UserError(
            f"--teacher {path} predicts several labels per image. Pass a classifier that was "
            "trained with --problem single_label."
        )
    if teacher.preprocessing.channels != channels:
        raise UserError(
            f"--teacher {path} takes images with {teacher.preprocessing.channels} channels, and "
            f"the images of the data have {channels}. Pass a teacher for {channels} channels."
        )
    for weight in teacher.model.weights:
        if not np.isfinite(ops.convert_to_numpy(weight)).all():
            raise UserError(f"--teacher {path} has weights that are not finite: {weight.path}.")
    return teacher


def teacher_function(teacher, classes):
    """Returns a function from images to the logits of a teacher for the classes of its student.

    Args:
        teacher: result of `load_teacher`.
        classes: numbers of the student's classes among those of the teacher.

    Returns:
        Function of images [B, H, W, C] with values in 0..255 that returns logits [B, K]. It resizes
        and normalizes the images as the teacher needs them. H and W must be static.
    """
    preprocessing = teacher.preprocessing

    def logits(images):
        images = tf.cast(images, tf.float32)
        teacher_size = tuple(preprocessing.image_size)
        student_size = tuple(images.shape[1:3])
        if student_size != teacher_size:
            # `tf.image.resize` has no GPU kernel for bicubic or antialiased resizing.
            images = ops.image.scale_and_translate(
                images,
                (1, *teacher_size, 1),  # the axes that are not in `spatial_dims` are kept
                scale=[new / old for new, old in zip(teacher_size, student_size)],
                translation=[0.0, 0.0],
                spatial_dims=(1, 2),
                method=preprocessing.interpolation,
                antialias=preprocessing.antialias,
            )
            images = tf.clip_by_value(images, 0.0, 255.0)  # bicubic values may be outside
        predicted = teacher.model(preprocessing.normalize(images), training=False)
        return tf.gather(predicted, classes, axis=1)

    return logits


def with_teacher(batches, teacher_logits):
    """Adds the logits of a teacher to the labels of batches.

    The device that trains on a batch computes them, after the augmentation.

    Args:
        batches: `zoo.data.worker_batches.WorkerBatches` of (images, labels [B, K], weights).
        teacher_logits: function of images that returns [B, K], such as that of `teacher_function`.

    Returns:
        `WorkerBatches` whose labels are float32 [B, 2, K], for `DistillationLoss`.
    """

    def on_device(images, labels):
        if batches.on_device is not None:
            images, labels = batches.on_device(images, labels)
        logits = tf.cast(teacher_logits(images), tf.float32)
        return images, tf.stack([labels, logits], axis=1)

    return batches._replace(on_device=on_device)


@keras.saving.register_keras_serializable("zoo")
class DistillationLoss(keras.losses.Loss):
    """(1 - α) · loss of the labels + α · distillation loss: DeiT, section 4, equations 2 and 3.

    - "hard": the cross-entropy of the class that the teacher predicts.
    - "soft": the Kullback-Leibler divergence of both distributions at temperature τ, times τ² and
      divided by K, as in DeiT's code.

    Args:
        loss: `keras.losses.Loss` of soft labels [B, K] and logits.
        kind: "hard" or "soft".
        temperature: τ of "soft".
        weight: α, the weight of the distillation loss; from 0 to 1.

    Input:
        y_true: [B, 2, K], the labels and the logits of the teacher, see `with_teacher`. Or [B, K],
            labels only, as in validation: then the result is `loss`.
        y_pred: logits [B, K]; or [B, 2, K] of two heads, the first of which learns from the labels,
            the second from the teacher.

    Output: [B] from `call`.

    Raises:
        ValueError: if `kind` is unknown, or a number is out of range.
    """

    def __init__(self, loss, kind="hard", temperature=1.0, weight=0.5):
        super().__init__(loss.name, loss.reduction, loss.dtype)
        check_choice("kind", kind, ("hard", "soft"))
        if not (temperature > 0 and 0 <= weight <= 1):
            raise ValueError(
                "temperature must be above 0, and weight from 0 to 1. Received: "
                f"temperature={temperature}, weight={weight}."
            )
        self.loss = loss
        self.kind = kind
        self.temperature = temperature
        self.weight = weight

    def call(self, y_true, y_pred):
        if len(y_true.shape) == 2:
            return self.loss.call(y_true, y_pred)
        labels = y_true[:, 0]
        teacher_logits = y_true[:, 1]
        label_logits = y_pred
        student_logits = y_pred
        if len(y_pred.shape) == 3:
            label_logits = y_pred[:, 0]
            student_logits = y_pred[:, 1]
        label_loss = self.loss.call(labels, label_logits)
        if self.kind == "hard":
            distillation_loss = hard_loss(teacher_logits, student_logits)
        else:
            distillation_loss = soft_loss(teacher_logits, student_logits, self.temperature)
        return (1.0 - self.weight) * label_loss + self.weight * distillation_loss

    def get_config(self):
        return {
            "loss": keras.losses.serialize(self.loss),
            "kind": self.kind,
            "temperature": self.temperature,
            "weight": self.weight,
        }

    @classmethod
    def from_config(cls, config):
        loss = keras.losses.deserialize(config["loss"])
        return cls(**{**config, "loss": loss})


def hard_loss(teacher_logits, student_logits):
    """The cross-entropy [B] of the teacher's classes; logits are [B, K]."""
    classes = ops.argmax(teacher_logits, axis=-1)
    return ops.sparse_categorical_crossentropy(classes, student_logits, from_logits=True)


def soft_loss(teacher_logits, student_logits, temperature):
    """τ²/K · KL(teacher, student) at temperature τ: [B]; logits are [B, K]."""
    teacher = ops.log_softmax(teacher_logits / temperature)
    student = ops.log_softmax(student_logits / temperature)
    divergence = ops.sum(ops.exp(teacher) * (teacher - student), axis=-1)
    return divergence * temperature**2 / teacher.shape[-1]


def student_accuracy():
    """Creates the accuracy of a student on the labels.

    Its inputs have the shapes of those of `DistillationLoss`. The prediction of two heads is the
    mean of their logits.
    """
    return higher_is_better(keras.metrics.MeanMetricWrapper(_student_is_correct, name="accuracy"))


@keras.saving.register_keras_serializable("zoo")
def _student_is_correct(labels, logits):
    if len(labels.shape) == 3:
        labels = labels[:, 0]
    if len(logits.shape) == 3:
        logits = ops.mean(logits, axis=1)  # as the student predicts
    return keras.metrics.categorical_accuracy(labels, logits)
