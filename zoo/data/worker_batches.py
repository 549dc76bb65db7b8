"""Batches that are split between the replicas of any number of workers."""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

GROUP = 16  # consecutive rows of a batch that one worker augments together


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


def split_rows(size, context):
    """Which rows of a batch of this size each replica gets, for the worker of an `InputContext`.

    The rows are split in order into an equal part for each replica; if they do not divide evenly,
    the last row is repeated. Returns (int32, float32), both [replicas of the worker, rows of a
    replica]: the numbers of the rows; and 1 for each of them, or 0 if it is repeated.
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
    """`WorkerBatches` of a data set of whole batches, which every worker computes.

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
    """From a data set of what `split` gives to one of the part of each replica, in turn."""
    return without_autotuning(batches).unbatch().prefetch(2)


def without_autotuning(batches):
    """A data set whose end does not have to be waited for.

    The thread that tunes a data set looks at it ever less often, at last once a minute, and the end
    of `fit` waits until it looks again. Without it, as many calls of a `map` run in parallel as
    there are threads, up to 16.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return batches.with_options(options)
