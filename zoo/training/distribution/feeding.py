"""Validates data sets of batches and splits the batches between replicas."""

import tensorflow as tf

from zoo.data.worker_batches import WorkerBatches, split_batches
from zoo.errors import DataError


def as_batches(batches, name, is_finite=False):
    """Returns a data set of batches (inputs, labels, weights), with the weights None by default.

    Args:
        batches: `tf.data.Dataset` of (inputs, labels) or (inputs, labels, weights), or
            `WorkerBatches`, which are returned unchanged.
        name: name of the argument, for messages.
        is_finite: whether the number of batches must be known.

    Raises:
        DataError: if `batches` is something else.
    """
    if isinstance(batches, WorkerBatches):
        return batches
    if not isinstance(batches, tf.data.Dataset):
        raise DataError(
            f"{name} must be a tf.data.Dataset, such as tf.data.Dataset.from_tensor_slices((inputs,"
            f" labels)).batch(32). Received: {type(batches).__name__}."
        )
    element = batches.element_spec
    is_batch = isinstance(element, tuple) and len(element) in (2, 3)
    kinds = (tf.TensorSpec, tf.NoneTensorSpec)
    if not is_batch or not all(isinstance(weights, kinds) for weights in element[2:]):
        raise DataError(
            f"{name} must yield (inputs, labels) or (inputs, labels, weights), where the weights "
            f"are one tensor, for all outputs. Received: {element}."
        )
    if is_finite and batches.cardinality() < 1:
        raise DataError(
            f"{name} must have a known number of batches, at least one. See tf.data.Dataset.take "
            "and tf.data.experimental.assert_cardinality, or pass steps_per_epoch for training."
        )
    if len(element) == 3:
        return batches
    return batches.map(lambda inputs, labels: (inputs, labels, None), tf.data.AUTOTUNE)


def as_worker_batches(batches):
    """Returns `WorkerBatches`, of which every worker computes all batches of a data set.

    Args:
        batches: `tf.data.Dataset` of batches (inputs, labels, weights), with weights [B] or
            [B, ...], or None; or `WorkerBatches`, which are returned unchanged.
    """
    if isinstance(batches, WorkerBatches):
        return batches
    count = int(batches.cardinality())
    return split_batches(batches, count if count >= 0 else None)


def distribute(batches, strategy):
    """Splits `WorkerBatches` between the replicas of a `tf.distribute.Strategy`.

    Returns an input for `fit`, whose elements are shares. It is infinite if there are several
    replicas.
    """
    if strategy.num_replicas_in_sync == 1:
        return batches.shares(tf.distribute.InputContext())
    # If it were finite, workers would communicate in every step to detect its end.
    return strategy.distribute_datasets_from_function(
        lambda context: batches.shares(context).repeat()
    )
