"""Losses, token accuracy and class weights.

Axes: B batch, T tokens, V vocabulary.
"""

import keras
import numpy as np
from keras import ops

from zoo import compat, kernels


@keras.saving.register_keras_serializable("zoo")
class SmoothedCrossEntropy(keras.losses.Loss):
    """Cross-entropy of tokens with label smoothing over all V classes.

    Sources: Szegedy et al. 2015, "Rethinking the Inception Architecture", section 7; Vaswani et
    al. 2017, "Attention Is All You Need", section 5.4. The values are those of
    `keras.losses.CategoricalCrossentropy` with one-hot labels.

    Pass sample weights [B, T] that are 1, and 0 for padding: the loss is the mean over the real
    tokens.

    Args:
        label_smoothing: share of a label spread over all classes, at least 0 and less than 1.
        reduction: as in Keras; by default the weighted mean.
        name: name of the loss.

    Input: labels, int [B, T], each from 0 to V - 1, or else its loss is NaN; logits [B, T, V].
    Computes in float32, or in `keras.config.floatx` if that is wider.

    Output: [B, T] from `call`; a scalar from the loss itself, unless `reduction` is "none".
    """

    def __init__(
        self,
        label_smoothing=0.0,
        reduction="mean_with_sample_weight",
        name="smoothed_cross_entropy",
    ):
        # Keras also casts labels to this dtype: in 16 bits, most ids would be rounded.
        dtype = keras.backend.result_type(keras.config.floatx(), "float32")
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self.label_smoothing = label_smoothing

    def call(self, y_true, y_pred):
        logits = ops.cast(y_pred, self.dtype)
        labels = ops.cast(y_true, "int32")
        losses = smoothed_cross_entropy(labels, logits, self.label_smoothing)
        is_class = (labels >= 0) & (labels < logits.shape[-1])  # -1 would be the last class
        return ops.where(is_class, losses, float("nan"))

    def get_config(self):
        return {**super().get_config(), "label_smoothing": self.label_smoothing}


@kernels.accelerated_by(kernels.smoothed_cross_entropy)
def smoothed_cross_entropy(labels, logits, label_smoothing):
    """Computes the cross-entropy of smoothed labels: Szegedy et al. 2015, section 7.

    Args:
        labels: int32 [...].
        logits: float [..., V].
        label_smoothing: share of a label spread over all classes.

    Returns:
        The losses [...].
    """
    log_total = ops.logsumexp(logits, axis=-1)
    label_logit = ops.take_along_axis(logits, ops.expand_dims(labels, -1), axis=-1)[..., 0]
    mean_logit = ops.mean(logits, axis=-1)
    return log_total - (1.0 - label_smoothing) * label_logit - label_smoothing * mean_logit


def token_accuracy(name="accuracy"):
    """Creates a metric that computes `SparseCategoricalAccuracy` in less time."""
    return compat.higher_is_better(keras.metrics.MeanMetricWrapper(_is_correct, name))


@keras.saving.register_keras_serializable("zoo")
def _is_correct(labels, logits):
    import tensorflow as tf

    if len(labels.shape) == len(logits.shape):
        labels = ops.squeeze(labels, -1)
    # `ops.argmax` makes five more passes over the logits, to tell -0 from 0.
    best = tf.argmax(logits, axis=-1, output_type="int32")
    return ops.cast(ops.equal(ops.cast(labels, "int32"), best), "float32")


def several_labels(label_smoothing=0.0):
    """The sigmoid cross-entropy and the accuracy of any number of labels, 0 to 1 [B, classes]."""
    loss = keras.losses.BinaryCrossentropy(
        from_logits=True, label_smoothing=label_smoothing, reduction="mean_with_sample_weight"
    )
    return loss, compat.higher_is_better(
        keras.metrics.MeanMetricWrapper(_are_correct, name="accuracy")
    )


@keras.saving.register_keras_serializable("zoo")
def _are_correct(labels, logits):
    return ops.mean(ops.cast(ops.equal(labels > 0.5, logits > 0.0), "float32"), axis=-1)


class ClassWeighted(keras.losses.Loss):
    """A loss times the weight of the class of each item.

    Args:
        loss: `keras.losses.Loss` of labels [B], or of soft labels [B, classes].
        class_weights: float [classes].
        label_smoothing: that of the soft labels. An item has the weight of its labels before
            smoothing, also where labels are not smoothed, as in validation.
    """

    def __init__(self, loss, class_weights, label_smoothing=0.0):
        super().__init__(loss.name, loss.reduction, loss.dtype)
        self.loss = loss
        self.label_smoothing = label_smoothing
        self.class_weights = ops.convert_to_tensor(class_weights, loss.dtype)

    def call(self, y_true, y_pred):
        soft = y_true
        if len(y_true.shape) < len(y_pred.shape):
            soft = ops.one_hot(ops.cast(y_true, "int32"), len(self.class_weights), dtype=self.dtype)
        if self.label_smoothing:
            soft = ops.relu(soft - self.label_smoothing / len(self.class_weights))
            soft /= ops.maximum(ops.sum(soft, axis=-1, keepdims=True), 1e-6)  # of no class: 0
        return ops.sum(soft * self.class_weights, axis=-1) * self.loss.call(y_true, y_pred)


def balanced_class_weights(labels, num_classes):
    """Returns the weight n / (classes · items of the class) of each class, as in scikit-learn.

    `labels` are int [n]. Classes without items do not count and have the weight 0. Source: King and
    Zeng 2001, "Logistic Regression in Rare Events Data", section 4.2.
    """
    counts = np.bincount(labels, minlength=num_classes)
    return np.where(counts, len(labels) / (np.count_nonzero(counts) * np.maximum(counts, 1)), 0.0)
