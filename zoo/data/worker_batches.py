"""Batches that are split between the replicas of any number of workers.

The rows of a batch are divided in order. Here are 7 rows for two workers with two replicas each;
the last row is repeated, so that all replicas have the same number of rows::

    row of the batch   0  1 | 2  3 | 4  5 | 6  6
    replica            0    | 1    | 2    | 3
    worker             0           | 1
    `real`             1  1 | 1  1 | 1  1 | 1  0

If the gradients of several batches are accumulated, each of them is divided in this way. Two
batches of 4 and 3 rows are one update of 7 rows::

    batch of the update            0        |             1
    row of the batch   0 | 1 | 2 | 3        | 0 | 1 | 2 | 2
    replica            0 | 1 | 2 | 3        | 0 | 1 | 2 | 3
    `real`             1 | 1 | 1 | 1        | 1 | 1 | 1 | 0

The loss of an update is the loss that Keras computes for all of its rows as one batch, for each of
Keras's reductions. A part of the rows, such as those of a replica, cannot know what Keras divides
by, so each part is told two numbers of the whole update: `rows` and `total`, the sum of the weights
w. The losses l of the parts, and their gradients, then have to be summed only::

    reduction of the loss         loss of the update   a part adds, over its real rows
    "sum"                         sum(w l)             sum(w l)
    "sum_over_batch_size"         mean(w l)            sum(w l) / rows, l: mean over other axes
    "mean_with_sample_weight"     sum(w l) / sum(w)    sum(w l) / total
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

GROUP = 16  # consecutive rows of a batch that one worker augments together


class WorkerBatches(NamedTuple):
    """Batches that are the same for any number of workers.

    Fields:
        parts: function of a `tf.distribute.InputContext` that returns the data set of a worker,
            which yields the part of a batch for each of its replicas, then those of the next batch.
            The weights of a part are `RowWeights`.
        num_batches: number of batches; None if infinite or unknown.
    """

    parts: Callable
    num_batches: int | None = None

    def whole(self):
        """Returns a `tf.data.Dataset` of whole batches, with the weights as a tensor."""

        def plain(*update):
            batches = [
                (inputs, labels, weights.weights) for inputs, labels, weights in parts_of(update)
            ]
            return tuple(batches) if parts_of(update) is update else batches[0]

        return self.parts(tf.distribute.InputContext()).map(plain)


class RowWeights(NamedTuple):
    """The weights of the rows of a part, and the size of the update that the part belongs to.

    Fields:
        weights: float32 [B] or [B, ...], the weights of the data set.
        real: float32 [B], 1, or 0 for rows that are repeated to fill a replica.
        rows: float32 [B], the number of rows of the whole update, the same in each row.
        total: float32 [B], the sum of the weights of the whole update, the same in each row.
    """

    weights: tf.Tensor
    real: tf.Tensor
    rows: tf.Tensor
    total: tf.Tensor

    @classmethod
    def of_update(cls, weights, rows, total):
        """The weights of some real rows of an update that has `rows` and a `total` of weights."""
        count = tf.shape(weights)[:1]
        return cls(
            weights,
            real=tf.ones(count),
            rows=tf.fill(count, tf.cast(rows, tf.float32)),
            total=tf.fill(count, tf.cast(total, tf.float32)),
        )


class BatchRows(NamedTuple):
    """The rows of a batch that a worker augments; random draws depend on the number of a row alone.

    Fields:
        numbers: int32 [rows], ascending.
        count: number of rows of the whole batch.
    """

    numbers: tf.Tensor
    count: int


def parts_of(update):
    """Returns the batches of an update: a tuple whose gradients are accumulated, or `(batch,)`."""
    # The last part of a batch, its weights, is a tensor or a NamedTuple.
    return update if type(update[-1]) is tuple else (update,)


def split_rows(size, context):
    """Splits the rows of a batch of this size equally between replicas, in order.

    If they do not divide evenly, the last row is repeated.

    Args:
        size: number of rows.
        context: `tf.distribute.InputContext` of a worker.

    Returns:
        int32 [replicas of the worker, rows of a replica], the numbers of the rows; and float32 of
        the same shape, 1 for each row, or 0 if it is repeated.
    """
    replicas = context.num_replicas_in_sync
    own = replicas // context.num_input_pipelines
    share = -(-size // replicas)
    first = context.input_pipeline_id * own * share
    rows = tf.reshape(first + tf.range(own * share), [own, share])
    return tf.minimum(rows, size - 1), tf.cast(rows < size, tf.float32)


def split(batch, rows, real):
    """Splits a batch by the result of `split_rows`.

    Args:
        batch: (inputs, labels, `RowWeights`), structures of tensors [B, ...].
        rows: int32 [replicas of the worker, rows of a replica].
        real: float32, in the same shape.

    Returns:
        The same structures of tensors [replicas of the worker, rows of a replica, ...].
    """
    inputs, labels, weights = tf.nest.map_structure(lambda tensor: tf.gather(tensor, rows), batch)
    return inputs, labels, weights._replace(real=real)


def split_batches(updates, num_batches=None):
    """Makes `WorkerBatches` of a data set of whole batches, all of which every worker computes.

    Its elements are (inputs, labels, weights [B] or [B, ...]), or tuples of these whose gradients
    are accumulated.
    """

    def parts(context):
        counted = updates.map(_with_counts)
        if context.num_replicas_in_sync == 1:
            return counted

        def own(*update):
            parts = []
            for batch in parts_of(update):
                size = tf.shape(batch[2].real)[0]
                parts.append(split(batch, *split_rows(size, context)))
            return tuple(parts) if parts_of(update) is update else parts[0]

        return each_replica(counted.map(own, tf.data.AUTOTUNE))

    return WorkerBatches(parts, num_batches)


def _with_counts(*update):
    """Converts the weights of the batches of an update to `RowWeights`."""
    batches = parts_of(update)
    rows = tf.add_n([tf.shape(weights)[0] for *_, weights in batches])
    total = tf.add_n([tf.reduce_sum(tf.cast(weights, tf.float32)) for *_, weights in batches])
    counted = []
    for inputs, labels, weights in batches:
        weights = RowWeights.of_update(tf.cast(weights, tf.float32), rows, total)
        counted.append((inputs, labels, weights))
    return tuple(counted) if batches is update else counted[0]


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
