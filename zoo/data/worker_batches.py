"""Batches that are split between the replicas of any number of workers."""

from collections.abc import Callable
from typing import NamedTuple

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


def split_rows(size, context, accumulation=1):
    """Which rows of a batch each replica of a worker gets.

    The rows are split in order into an equal part for each replica; if they do not divide evenly,
    the last row is repeated. A batch whose gradients are accumulated is first split into parts, and
    each of these between the replicas.

    Args:
        size: number of rows of the batch, int or int32 tensor.
        context: `tf.distribute.InputContext` of the worker.
        accumulation: number of parts of a batch, which must divide `size`.

    Returns:
        (int32, float32), both [accumulation, replicas of the worker, rows of a replica]: the
        numbers of the rows; and 1 for each of them, or 0 if it is repeated.
    """
    replicas = context.num_replicas_in_sync
    own, size = replicas // context.num_input_pipelines, size // accumulation
    share = -(-size // replicas)
    rows = context.input_pipeline_id * own * share + tf.range(own * share)
    rows = tf.tile(tf.reshape(rows, [1, own, share]), [accumulation, 1, 1])
    parts = tf.range(accumulation)[:, None, None] * size
    return parts + tf.minimum(rows, size - 1), tf.cast(rows < size, tf.float32)


def split(batch, rows, real):
    """Splits a batch into the parts of each replica.

    Args:
        batch: (inputs, labels, weights), structures of tensors [B, ...]; weights are a tensor, or
            a NamedTuple with a field `real`.
        rows: int32, from `split_rows`; None for all rows in their order, which copies nothing.
        real: float32, from `split_rows`. Other rows get weight 0.

    Returns:
        list of batches, one for each of the `accumulation` parts, of tensors [replicas of the
        worker, rows of a replica, ...].
    """

    def own(tensor):
        if rows is None:
            return tf.reshape(tensor, tf.concat([real.shape, tf.shape(tensor)[1:]], axis=0))
        return tf.gather(tensor, rows)

    inputs, labels, weights = tf.nest.map_structure(own, batch)
    if isinstance(weights, tuple):
        weights = weights._replace(real=real)
    else:
        ones = tf.ones(tf.rank(weights) - 3, tf.int32)
        weights *= tf.reshape(real, tf.concat([tf.shape(real), ones], axis=0))
    batch = (inputs, labels, weights)
    return [
        tf.nest.map_structure(lambda tensor: tensor[part], batch)  # noqa: B023
        for part in range(real.shape[0])
    ]


def split_batches(batches, num_batches=None):
    """`WorkerBatches` of a data set of whole batches, which every worker computes.

    Args:
        batches: `tf.data.Dataset` of (inputs, labels, weights), or of tuples of these whose
            gradients are accumulated.
        num_batches: see `WorkerBatches`.
    """

    def parts(context):
        if context.num_replicas_in_sync == 1:
            return batches

        def own(*batch):
            parts = []
            for part in parts_of(batch):
                size = tf.shape(tf.nest.flatten(part)[0])[0]
                parts += split(part, *split_rows(size, context))
            return tuple(parts) if parts_of(batch) is batch else parts[0]

        return each_replica(batches.map(own, tf.data.AUTOTUNE), context)

    return WorkerBatches(parts, num_batches)


def each_replica(batches, context):
    """From a data set of what `split` gives to one of the part of each replica, in turn."""
    batches = without_autotuning(batches)
    if context.num_replicas_in_sync == context.num_input_pipelines:
        parts = batches.map(lambda *batch: tf.nest.map_structure(lambda part: part[0], batch))
    else:
        parts = batches.unbatch()
    return parts.prefetch(2)


def without_autotuning(batches):
    """A data set whose end does not have to be waited for.

    The thread that tunes a data set looks at it ever less often, at last once a minute, and the end
    of `fit` waits until it looks again. Without it, as many calls of a `map` run in parallel as
    there are threads, up to 16.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return batches.with_options(options)
