"""Batches that are split between the replicas of any number of workers."""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

GROUP = 16  # consecutive rows of a batch that one worker augments together


class WorkerBatches(NamedTuple):
    """Batches that are the same for any number of workers.

    Fields:
        parts: function of a `tf.distribute.InputContext` that returns the data set of a worker,
            which yields the part of a batch for each of its replicas, then those of the next batch.
        num_batches: number of batches; None if infinite.
    """

    parts: Callable
    num_batches: int | None = None

    def whole(self):
        """Returns a `tf.data.Dataset` of whole batches, for one device."""
        return self.parts(tf.distribute.InputContext())


class BatchRows(NamedTuple):
    """The rows of a batch that a worker augments; random draws depend on the number of a row alone.

    Fields:
        numbers: int32 [rows], ascending.
        count: number of rows of the whole batch.
    """

    numbers: tf.Tensor
    count: int


def parts_of(batch):
    """Returns the batches of an update: a tuple whose gradients are accumulated, or `(batch,)`."""
    # The last part of a batch, its weights, is a tensor or a NamedTuple.
    return batch if type(batch[-1]) is tuple else (batch,)


def split_rows(size, context):
    """Splits the rows of a batch of this size equally between replicas, in order.

    If they do not divide evenly, the last row is repeated. `context` is the
    `tf.distribute.InputContext` of a worker. Returns (int32, float32), both [replicas of the
    worker, rows of a replica]: the numbers of the rows, and 1 for each, or 0 if it is repeated.
    """
    replicas = context.num_replicas_in_sync
    own, share = replicas // context.num_input_pipelines, -(-size // replicas)
    rows = tf.reshape(context.input_pipeline_id * own * share + tf.range(own * share), [own, share])
    return tf.minimum(rows, size - 1), tf.cast(rows < size, tf.float32)


def split(batch, rows, real):
    """Splits a batch by `split_rows`: tensors [replicas of the worker, rows of a replica, ...].

    A batch is (inputs, labels, weights), structures of tensors [B, ...]; weights are a tensor, or a
    NamedTuple with a field `real`. Rows that are not real get weight 0.
    """
    inputs, labels, weights = tf.nest.map_structure(lambda tensor: tf.gather(tensor, rows), batch)
    if isinstance(weights, tuple):
        return inputs, labels, weights._replace(real=real)
    ones = tf.ones(tf.rank(weights) - 2, tf.int32)
    return inputs, labels, weights * tf.reshape(real, tf.concat([tf.shape(real), ones], axis=0))


def split_batches(batches, num_batches=None):
    """Makes `WorkerBatches` of a data set of whole batches, all of which every worker computes.

    Its elements are (inputs, labels, weights), or tuples of these whose gradients are accumulated.
    """

    def parts(context):
        if context.num_replicas_in_sync == 1:
            return batches

        def own(*batch):
            parts = []
            for part in parts_of(batch):
                size = tf.shape(tf.nest.flatten(part)[0])[0]
                parts.append(split(part, *split_rows(size, context)))
            return tuple(parts) if parts_of(batch) is batch else parts[0]

        return each_replica(batches.map(own, tf.data.AUTOTUNE))

    return WorkerBatches(parts, num_batches)


def each_replica(batches):
    """Converts a data set of results of `split` to one of the parts for single replicas."""
    return without_autotuning(batches).unbatch().prefetch(2)


def without_autotuning(batches):
    """Returns the data set without autotuning.

    The thread that tunes a data set wakes up ever less often, finally once a minute, and `fit` ends
    only when it has. Without tuning, a `map` runs as many calls in parallel as there are threads,
    up to 16.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return batches.with_options(options)
