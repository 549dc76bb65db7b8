"""Validates batches, counts their rows, and splits them between replicas."""

from typing import NamedTuple

import tensorflow as tf

from zoo.data.worker_batches import WorkerBatches, split_batches
from zoo.errors import DataError


def checked(batches, name, is_finite=False):
    """Validates a data set and adds the counts of its rows; returns `WorkerBatches` unchanged."""
    if isinstance(batches, WorkerBatches):
        return batches
    if not isinstance(batches, tf.data.Dataset):
        raise DataError(
            f"{name} must be a tf.data.Dataset, such as tf.data.Dataset.from_tensor_slices((inputs,"
            f" labels)).batch(32). Received: {type(batches).__name__}."
        )
    element = batches.element_spec
    is_batch = isinstance(element, tuple) and len(element) in (2, 3)
    if not is_batch or not all(isinstance(weights, tf.TensorSpec) for weights in element[2:]):
        raise DataError(
            f"{name} must yield (inputs, labels) or (inputs, labels, weights), where the weights "
            f"are one tensor, for all outputs. Received: {element}."
        )
    if is_finite and batches.cardinality() < 1:
        raise DataError(
            f"{name} must have a known number of batches, at least one. See tf.data.Dataset.take "
            "and tf.data.experimental.assert_cardinality, or pass steps_per_epoch for training."
        )
    return batches.map(with_row_counts, tf.data.AUTOTUNE)


def distribute(batches, strategy):
    """Splits each batch between the replicas, for any number of rows.

    The rows are split in order into equal parts; if they do not divide evenly, the last row is
    repeated with weight 0. So the training data do not depend on the number of workers. Every
    worker computes all batches of a `tf.data.Dataset`.

    Args:
        batches: `WorkerBatches` or `tf.data.Dataset` of batches (inputs, labels, weights), or of
            tuples of these. Weights are [B], [B, ...] or `RowWeights`.
        strategy: `tf.distribute.Strategy`.

    Returns:
        An input for `fit`, which is infinite if there are several replicas.
    """
    if isinstance(batches, tf.distribute.DistributedDataset):
        return batches
    if not isinstance(batches, WorkerBatches):
        batches = split_batches(batches)
    if strategy.num_replicas_in_sync == 1:
        return batches.whole()
    # If it were finite, workers would communicate in every step to detect its end.
    return strategy.distribute_datasets_from_function(
        lambda context: batches.parts(context).repeat()
    )


class RowWeights(NamedTuple):
    """The weights of a batch, and the numbers of rows that Keras's means over rows need.

    Fields:
        weights: [B] or [B, ...].
        real: float32 [B], 1, or 0 for rows that are repeated to fill a replica.
        rows: float32 [B], the number of rows of the whole batch, the same in each row.
    """

    weights: tf.Tensor
    real: tf.Tensor
    rows: tf.Tensor

    def for_losses(self, are_means, replicas):
        """Returns weights with which the losses of the replicas sum to that of the whole batch."""
        factor = self.real
        if are_means:
            # Keras divides by the rows of this replica, including repeated ones, and by replicas.
            factor *= tf.cast(tf.shape(factor)[0] * replicas, tf.float32) / self.rows
        return self.weights * tf.reshape(factor, [-1] + [1] * (len(self.weights.shape) - 1))


def with_row_counts(inputs, labels, weights=None):
    """Converts the weights of a batch, [B] or [B, ...] and 1 by default, to `RowWeights`."""
    rows = tf.shape(tf.nest.flatten(inputs)[0])[0]
    ones = tf.ones([rows])
    weights = ones if weights is None else tf.cast(weights, tf.float32)
    return inputs, labels, RowWeights(weights, ones, ones * tf.cast(rows, tf.float32))
