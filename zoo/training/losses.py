"""Losses and the accuracy of tokens, class weights, and losses of parts of an update.

Axes: B batch, T tokens, V vocabulary.
"""

import keras
import numpy as np
from keras import ops

from zoo import compat, kernels
from zoo.errors import UserError


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

    Input: labels, int [B, T], each from 0 to V - 1; logits [B, T, V]. Computes in float32, or in
    `keras.config.floatx` if that is wider.

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
        return smoothed_cross_entropy(ops.cast(y_true, "int32"), logits, self.label_smoothing)

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
    """Creates a `keras.metrics.Metric` like SparseCategoricalAccuracy, which takes less time."""
    return compat.higher_is_better(keras.metrics.MeanMetricWrapper(_is_correct, name))


@keras.saving.register_keras_serializable("zoo")
def _is_correct(labels, logits):
    import tensorflow as tf

    if len(labels.shape) == len(logits.shape):
        labels = ops.squeeze(labels, -1)
    # `ops.argmax` makes five more passes over the logits, to tell -0 from 0.
    best = tf.argmax(logits, axis=-1, output_type="int32")
    return ops.cast(ops.equal(ops.cast(labels, "int32"), best), "float32")


class ClassWeighted(keras.losses.Loss):
    """A loss times the weight of the class of each item.

    Args:
        loss: `keras.losses.Loss` of labels [B], or of soft labels [B, classes].
        class_weights: float [classes].
    """

    def __init__(self, loss, class_weights):
        super().__init__(loss.name, loss.reduction, loss.dtype)
        self.loss = loss
        self.class_weights = ops.convert_to_tensor(class_weights, loss.dtype)

    def call(self, y_true, y_pred):
        soft = y_true
        if len(y_true.shape) < len(y_pred.shape):
            soft = ops.one_hot(ops.cast(y_true, "int32"), len(self.class_weights), dtype=self.dtype)
        return ops.sum(soft * self.class_weights, axis=-1) * self.loss.call(y_true, y_pred)


def balanced(labels, num_classes):
    """Returns the weight n / (classes · items of the class) of each class, as in scikit-learn.

    `labels` are int [n]. Classes without items do not count and have the weight 0. Source: King and
    Zeng 2001, "Logistic Regression in Rare Events Data", section 4.2.
    """
    counts = np.bincount(labels, minlength=num_classes)
    return np.where(counts, len(labels) / (np.count_nonzero(counts) * np.maximum(counts, 1)), 0.0)


_SUM = "sum"
_MEANS = ("sum_over_batch_size", "mean")
_WEIGHTED_MEAN = "mean_with_sample_weight"


def reduction_of(losses):
    """Returns the reduction that all losses of a model share.

    Args:
        losses: what the model is compiled with: None, a loss, or a structure with one per output.

    Returns:
        "sum", "sum_over_batch_size" or "mean_with_sample_weight".

    Raises:
        UserError: if they have different reductions, or none.
    """
    reductions = set()
    for loss in keras.tree.flatten(losses):
        reduction = getattr(loss, "reduction", _MEANS[0])
        reductions.add(_MEANS[0] if reduction in _MEANS else reduction)
    [reduction, *others] = reductions or {_MEANS[0]}
    if others or reduction not in (_SUM, _MEANS[0], _WEIGHTED_MEAN):
        raise UserError(
            "All losses of a model must have the same reduction: "
            f'"{_MEANS[0]}", which is Keras\'s default, "{_SUM}" or "{_WEIGHTED_MEAN}". '
            f"Received: {', '.join(sorted(map(repr, reductions)))}."
        )
    return reduction


def weights_of_part(rows, reduction, replicas):
    """Computes weights with which the losses of the parts of an update sum to its loss.

    See `zoo.data.worker_batches`.

    Args:
        rows: `RowWeights` of a part of B rows.
        reduction: that of the loss.
        replicas: number of replicas.

    Returns:
        float32 [B] or [B, ...], weights for `PartLoss`.
    """
    if reduction == _SUM:
        factor = rows.real
    elif reduction == _WEIGHTED_MEAN:
        factor = ops.divide_no_nan(rows.real, rows.total)
    else:
        # Keras divides by the rows of this part, including repeated ones, and by the replicas.
        divisor = ops.cast(ops.shape(rows.real)[0] * replicas, "float32")
        factor = rows.real * divisor / rows.rows
    return rows.weights * _with_axes(factor, len(rows.weights.shape))


class PartLoss(keras.losses.Loss):
    """A loss of a part of the rows of an update, such as those of a replica.

    It takes the weights of `weights_of_part`, [B] or [B, ...], for values of any shape: Keras
    accepts weights [B] only if the values are [B]. Masks are Keras's: if the loss ignores a class,
    or the outputs have a mask, the mean of a part is over its other values.

    Args:
        loss: `keras.losses.Loss`, or function of (labels, outputs).
        replicas: number of replicas.

    Raises:
        UserError: when it is called, if the values are one number for the whole batch and there are
            several replicas; or if there is a mask and the reduction is "mean_with_sample_weight".
    """

    def __init__(self, loss, replicas=1):
        if not isinstance(loss, keras.losses.Loss):
            loss = compat.loss_of_function(loss)
        # The weights of a part are already divided by their sum.
        reduction = _SUM if loss.reduction == _WEIGHTED_MEAN else loss.reduction
        super().__init__(loss.name, reduction, loss.dtype)
        self.loss = loss
        self.replicas = replicas

    def __call__(self, y_true, y_pred, sample_weight):
        self._check_mask(y_pred)
        self._weights = sample_weight
        return super().__call__(y_true, y_pred)

    def call(self, y_true, y_pred):
        values = self.loss.call(y_true, y_pred)  # [B, ...]
        self._check_mask(values)
        mask = compat.get_keras_mask(values)
        weights = ops.cast(self._weights, values.dtype)
        rank = len(values.shape)
        if rank == 0:
            self._check_one_part()
            return values * ops.mean(weights)
        while len(weights.shape) > rank:
            weights = ops.squeeze(weights, -1)
        if self.loss.reduction == _WEIGHTED_MEAN and rank > len(weights.shape):
            values = ops.mean(values, tuple(range(len(weights.shape), rank)))
        values = values * _with_axes(weights, len(values.shape))
        if mask is not None:
            compat.set_keras_mask(values, mask)
        return values

    def _check_mask(self, tensor):
        if self.loss.reduction == _WEIGHTED_MEAN and compat.get_keras_mask(tensor) is not None:
            raise UserError(
                f"The loss {self.name} has a mask, which is not supported with the reduction "
                f'"{_WEIGHTED_MEAN}". Use weights of 0 instead, or Keras\'s default reduction.'
            )

    def _check_one_part(self):
        if self.replicas > 1:
            raise UserError(
                f"The loss {self.name} returns one number for a batch, so it cannot be split "
                f"between {self.replicas} devices. Return a value for each row, or train on one "
                "device."
            )


def _with_axes(tensor, rank):
    """Appends axes of size 1."""
    while len(tensor.shape) < rank:
        tensor = ops.expand_dims(tensor, -1)
    return tensor


def part_losses(losses, replicas):
    """Converts the losses that a model is compiled with, one or one per output, to `PartLoss`."""

    def convert(loss):
        return None if loss is None else PartLoss(keras.losses.get(loss), replicas)

    return keras.tree.map_structure(convert, losses)
