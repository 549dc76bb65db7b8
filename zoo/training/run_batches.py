"""Validates the batches that are passed to `zoo.training.Run`, and adds the counts of rows."""

import tensorflow as tf

from zoo.data.worker_batches import WorkerBatches
from zoo.errors import DataError
from zoo.training.distribution import with_row_counts


def steps_per_epoch(batches, steps):
    """Returns `steps`, or the number of batches of a finite data set."""
    if not callable(batches):
        checked(batches, "batches")
    steps = steps or (-1 if callable(batches) else int(batches.cardinality()))
    if steps < 1:
        raise DataError(
            "batches is empty or of unknown length. Pass steps_per_epoch, or a tf.data.Dataset "
            "with a known number of batches; see tf.data.experimental.assert_cardinality."
        )
    return steps


def training_batches(batches, first_step):
    """Returns infinite batches from a step on; `batches` is a data set or a function of a step."""
    batches = batches(first_step) if callable(batches) else batches.repeat().skip(first_step)
    return checked(batches, "batches")


def validation_batches(batches):
    """Validates validation data, which may be None."""
    if batches is None:
        return None
    counted = checked(batches, "validation_data")
    if isinstance(batches, tf.data.Dataset) and batches.cardinality() < 1:
        raise DataError(
            "validation_data must have a known number of batches, at least one; see "
            "tf.data.Dataset.take and tf.data.experimental.assert_cardinality."
        )
    return counted


def checked(batches, name):
    """Validates a data set and adds the counts of its rows; returns `WorkerBatches` unchanged."""
    if isinstance(batches, WorkerBatches):
        return batches
    if not isinstance(batches, tf.data.Dataset):
        raise DataError(
            f"{name} must be a tf.data.Dataset, such as tf.data.Dataset.from_tensor_slices((inputs,"
            f" labels)).batch(32). Received: {type(batches).__name__}."
        )
    element = batches.element_spec
    if not isinstance(element, tuple) or len(element) not in (2, 3):
        raise DataError(
            f"{name} must yield (inputs, labels) or (inputs, labels, weights). Received: {element}."
        )
    if len(element) == 3 and not isinstance(element[2], tf.TensorSpec):
        raise DataError(
            f"The weights of {name} must be one tensor, for all outputs. Received: {element[2]}."
        )
    return batches.map(with_row_counts, tf.data.AUTOTUNE)
