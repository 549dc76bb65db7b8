"""Batches of which each worker computes the rows of its own replicas only."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf


class WorkerBatches(NamedTuple):
    """Batches whose rows do not depend on the number of workers that compute them.

    Fields:
        parts: function of a `tf.distribute.InputContext` that returns the data set of a worker: of
            each batch the part of each of its replicas, in turn.
        num_batches: number of batches; None if there is no end.
    """

    parts: Callable
    num_batches: int | None = None

    def whole(self):
        """`tf.data.Dataset` of whole batches, for one device."""
        return self.parts(tf.distribute.InputContext())


class Rows(NamedTuple):
    """The rows of a batch that are augmented: what is drawn for a row depends on its number alone.

    Fields:
        numbers: int32 [batch], the numbers of the rows, ascending.
        count: number of rows of the whole batch.
    """

    numbers: tf.Tensor
    count: int


def parts_of(batch):
    """The batches of an update: those whose gradients are accumulated, or the batch itself."""
    # Inputs and labels may be tuples, too, but weights are a tensor or a NamedTuple.
    return batch if type(batch[-1]) is tuple else (batch,)


class WorkerRows(NamedTuple):
    """The rows of a batch that a worker computes, and where they go.

    The rows are split in order into an equal part for each replica; if they do not divide evenly,
    the last row is repeated with weight 0. A batch whose gradients are accumulated is first split
    into parts, and each of these between the replicas.

    Fields:
        numbers: int32 [c], the rows to compute, ascending.
        places: int32 [replicas of the worker, accumulation, rows of a replica], indices in
            `numbers`.
        weights: float32, like `places`: 1 for rows of the batch and 0 for repeated ones.
    """

    numbers: np.ndarray
    places: np.ndarray
    weights: np.ndarray

    def split(self, inputs, labels, weights):
        """Splits tensors of the computed rows, [c, ...], into the parts of the replicas.

        Returns:
            (inputs, labels, weights) of tensors [replicas, rows of a replica, ...]; with
            accumulation, a tuple of such tuples. Repeated rows have weight 0.
        """
        tensors = inputs, labels, weights
        if np.array_equal(self.places.reshape(-1), np.arange(len(self.numbers))):
            # without a copy, as one device has all rows
            tensors = [self._reshaped(tensor) for tensor in tensors]
        else:
            tensors = [tf.gather(tensor, self.places) for tensor in tensors]
        tensors[-1] *= self.weights
        count = self.places.shape[1]
        parts = [tuple(tensor[:, part] for tensor in tensors) for part in range(count)]
        return parts[0] if count == 1 else tuple(parts)

    def _reshaped(self, tensor):
        return tf.reshape(tensor, tf.concat([self.places.shape, tf.shape(tensor)[1:]], axis=0))


def worker_rows(batch_size, context, accumulation=1, group=1):
    """Which rows of a batch a worker computes.

    Args:
        batch_size: number of rows of a batch.
        context: `tf.distribute.InputContext` of the worker.
        accumulation: number of parts of a batch, which must divide `batch_size`.
        group: number of consecutive rows that must be computed together.

    Returns:
        `WorkerRows`.
    """
    replicas = context.num_replicas_in_sync
    own = replicas // context.num_input_pipelines
    size = batch_size // accumulation
    share = -(-size // replicas)
    replica = own * context.input_pipeline_id + np.arange(own)[:, None, None]
    within = replica * share + np.arange(share)
    rows = np.arange(accumulation)[:, None] * size + np.minimum(within, size - 1)
    groups = np.unique(rows // group)
    numbers = (groups[:, None] * group + np.arange(group)).reshape(-1)
    numbers = numbers[numbers < batch_size].astype(np.int32)
    weights = np.broadcast_to(within < size, rows.shape).astype(np.float32)
    return WorkerRows(numbers, np.searchsorted(numbers, rows).astype(np.int32), weights)


def not_tuned(batches):
    """A data set whose end does not have to be waited for.

    The thread that tunes a data set looks at it ever less often, at last once a minute, and the end
    of `fit` waits until it looks again. Without it, as many calls of a `map` run in parallel as
    there are threads, up to 16.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return batches.with_options(options)


def of_each_replica(batches, rows):
    """Data set of what `WorkerRows.split` gives -> of the parts of each replica, in turn."""
    batches = not_tuned(batches)
    if len(rows.places) == 1:
        return batches.map(lambda *batch: tf.nest.map_structure(lambda part: part[0], batch))
    return batches.unbatch()
