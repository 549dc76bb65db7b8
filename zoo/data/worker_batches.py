"""Batches that are split between the replicas of any number of workers.

These words have the same meaning in all files that train:

- A *batch* is (inputs, labels, weights), structures of tensors whose first axis are the rows. An
  *update* changes the weights of the model once, with the gradient of a batch.
- A *share* is the rows of a batch that one replica computes. Its weights are `ShareWeights`.
- A *part* is some rows of a share. To need less memory, a replica may compute its share in parts,
  one after the other. Each part is a share of its own.

The rows of a batch are divided in order. Here are 7 rows for two workers with two replicas each;
the last row is repeated, so that all replicas have the same number of rows::

    row of the batch   0  1 | 2  3 | 4  5 | 6  6
    replica            0    | 1    | 2    | 3
    worker             0           | 1
    `is_real`          1  1 | 1  1 | 1  1 | 1  0

`in_parts` divides a share in the same way.

The loss of a batch is the sum of the losses of its shares, if each share divides by what Keras
divides by: the number of rows or the total weight of the whole batch. Therefore `ShareWeights` has
these two numbers. With the losses l and the weights w::

    reduction of the loss         loss of the batch    loss of a share, over its real rows
    "sum"                         sum(w l)             sum(w l)
    "sum_over_batch_size"         mean(w l)            sum(w l) / num_rows
    "mean_with_sample_weight"     sum(w l) / sum(w)    sum(w l) / total_weight

In the second line, l is the mean over all axes but the first.
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf


class WorkerBatches(NamedTuple):
    """A data set that can be divided between any number of workers.

    Fields:
        shares: function of a `tf.distribute.InputContext` that returns the data set of a worker.
            An element is a share, (inputs, labels, `ShareWeights`). They come batch by batch, of
            each batch one for each replica of the worker.
        num_batches: None if infinite or unknown.
        largest_step: a step whose batch takes the most memory, counted from the beginning of the
            run; None if they all take the same, or if it is unknown.
        on_device: function of the (inputs, labels) of a share that returns those to train on. The
            device that trains on them computes it, such as an augmentation.
    """

    shares: Callable
    num_batches: int | None = None
    largest_step: int | None = None
    on_device: Callable | None = None

    def whole(self):
        """Returns a `tf.data.Dataset` of whole batches, with the weights as a tensor."""

        def without_totals(inputs, labels, share_weights):
            if self.on_device is not None:
                inputs, labels = self.on_device(inputs, labels)
            return inputs, labels, share_weights.weights

        return self.shares(tf.distribute.InputContext()).map(without_totals)


class ShareWeights(NamedTuple):
    """The weights of the rows of a share, and the size of the batch that it belongs to.

    Fields:
        weights: float32 [B] or [B, ...], the weights of the data set; None if it has none.
        is_real: float32 [B], 1, or 0 for rows that are repeated to fill a replica.
        num_rows: float32 [B], the number of rows of the whole batch, the same in each row.
        total_weight: float32 [B], the sum of the weights of the whole batch, the same in each row.
    """

    weights: tf.Tensor | None
    is_real: tf.Tensor
    num_rows: tf.Tensor
    total_weight: tf.Tensor

    @classmethod
    def of_batch(cls, weights, num_rows, total_weight):
        """Creates the weights of some real rows of a batch; both numbers are scalars."""
        shape = tf.shape(weights)[:1]
        return cls(
            weights,
            is_real=tf.ones(shape),
            num_rows=tf.fill(shape, tf.cast(num_rows, tf.float32)),
            total_weight=tf.fill(shape, tf.cast(total_weight, tf.float32)),
        )


def split_rows(size, context):
    """Splits the rows of a batch of this size equally between replicas, in order.

    If they do not divide evenly, the last row is repeated.

    Args:
        size: number of rows.
        context: `tf.distribute.InputContext` of a worker.

    Returns:
        int32 [replicas of the worker, rows of a replica], the indices of the rows; and float32 of
        the same shape, 1 for each row, or 0 if it is repeated.
    """
    replicas = context.num_replicas_in_sync
    own_replicas = replicas // context.num_input_pipelines
    rows_per_replica = -(-size // replicas)
    first = context.input_pipeline_id * own_replicas * rows_per_replica
    indices = first + tf.range(own_replicas * rows_per_replica)
    indices = tf.reshape(indices, [own_replicas, rows_per_replica])
    return tf.minimum(indices, size - 1), tf.cast(indices < size, tf.float32)


def split(batch, indices, is_real):
    """Selects rows of a batch, such as those of each replica by the result of `split_rows`.

    Args:
        batch: (inputs, labels, `ShareWeights`), structures of tensors [B, ...].
        indices: int32 of any shape, such as [replicas of the worker, rows of a replica].
        is_real: float32, in the same shape.

    Returns:
        The same structures of tensors [*shape of `indices`, ...].
    """
    inputs, labels, share_weights = tf.nest.map_structure(
        lambda tensor: None if tensor is None else tf.gather(tensor, indices), batch
    )
    return inputs, labels, share_weights._replace(is_real=is_real)


def split_batches(batches, num_batches=None, largest_step=None):
    """Makes `WorkerBatches` of a data set of whole batches.

    Every worker reads all of it and keeps its own rows. The elements are batches (inputs, labels,
    weights [B] or [B, ...], or None).
    """

    def shares(context):
        whole = batches.map(_with_totals)
        if context.num_replicas_in_sync == 1:
            return whole

        def by_replica(inputs, labels, share_weights):
            size = tf.shape(share_weights.is_real)[0]
            return split((inputs, labels, share_weights), *split_rows(size, context))

        return unbatch_replicas(whole.map(by_replica, tf.data.AUTOTUNE))

    return WorkerBatches(shares, num_batches, largest_step)


def in_parts(share, number):
    """Divides a share into parts.

    Args:
        share: (inputs, labels, `ShareWeights`).
        number: number of parts, which may be greater than the number of rows.

    Returns:
        A list of shares with the same number of rows, of which the last may be repeated.
    """
    _, _, share_weights = share
    is_real = share_weights.is_real
    size = is_real.shape[0]
    if size is None:
        size = tf.shape(is_real)[0]
    rows_per_part = -(-size // number)
    parts = []
    for index in range(number):
        rows = index * rows_per_part + tf.range(rows_per_part)
        is_in_share = tf.cast(rows < size, tf.float32)
        rows = tf.minimum(rows, size - 1)  # the last row is repeated
        parts.append(split(share, rows, is_in_share * tf.gather(is_real, rows)))
    return parts


def _with_totals(inputs, labels, weights):
    """Converts a batch to a share of all its rows."""
    if weights is None:
        num_rows = tf.shape(tf.nest.flatten(inputs)[0])[0]
        share_weights = ShareWeights.of_batch(tf.ones(num_rows), num_rows, num_rows)
        return inputs, labels, share_weights._replace(weights=None)
    weights = tf.cast(weights, tf.float32)
    total_weight = tf.reduce_sum(weights)
    return inputs, labels, ShareWeights.of_batch(weights, tf.shape(weights)[0], total_weight)


def unbatch_replicas(batches):
    """Converts a data set of results of `split` to one of the shares of single replicas."""
    return without_autotuning(batches).unbatch().prefetch(2)


def without_autotuning(batches):
    """Returns the data set without autotuning, so that `fit` returns without delay.

    Otherwise, `fit` waits for the thread that tunes the data set, which sleeps for up to a minute.
    Without autotuning, a `map` runs as many calls in parallel as there are threads, up to 16.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return batches.with_options(options)
