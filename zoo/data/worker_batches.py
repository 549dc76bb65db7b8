"""Batches that are split between the replicas of any number of workers.

These words have the same meaning in all files that train:

- An *update* changes the weights of the model once. It consists of one or more batches, whose
  gradients are summed.
- A *batch* is (inputs, labels, weights), structures of tensors whose first axis are the rows.
- A *share* is the rows of a batch that one replica computes. Its weights are `ShareWeights`.

The rows of a batch are divided in order. Here are 7 rows for two workers with two replicas each;
the last row is repeated, so that all replicas have the same number of rows::

    row of the batch   0  1 | 2  3 | 4  5 | 6  6
    replica            0    | 1    | 2    | 3
    worker             0           | 1
    `is_real`          1  1 | 1  1 | 1  1 | 1  0

Each batch of an update is divided in this way. Here is an update of 7 rows for the same replicas,
in batches of 4 and 3 rows::

    batch of the update   0             | 1
    row of the batch      0 | 1 | 2 | 3 | 0 | 1 | 2 | 2
    replica               0 | 1 | 2 | 3 | 0 | 1 | 2 | 3
    `is_real`             1 | 1 | 1 | 1 | 1 | 1 | 1 | 0

To need less memory, a replica may compute its share in parts, one after the other. `in_parts`
divides it in the same way; each part is then a share of its own.

The loss of an update is the loss that Keras computes for all of its rows as one batch. It is the
sum of the losses of the shares, if each share divides by what Keras divides by: the number of rows
or the total weight of the whole update. Therefore `ShareWeights` has these two numbers. With the
losses l and the weights w::

    reduction of the loss         loss of the update   loss of a share, over its real rows
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
            An element is what one replica computes in one update: a tuple with its share of each
            batch. The elements come update by update, in each update one for each replica of the
            worker.
        num_batches: number of updates, or of batches for validation; None if infinite or unknown.
        largest_step: a step whose update takes the most memory, counted from the beginning of the
            run; None if they all take the same, or if it is unknown.
        on_device: function of the (inputs, labels) of a share that returns those to train on. The
            device that trains on them computes it, such as an augmentation.
    """

    shares: Callable
    num_batches: int | None = None
    largest_step: int | None = None
    on_device: Callable | None = None

    def whole(self):
        """Returns a `tf.data.Dataset` of whole batches, with the weights as a tensor.

        If an update has several batches, the elements are tuples of batches.
        """

        def without_totals(*shares):
            batches = []
            for inputs, labels, share_weights in shares:
                if self.on_device is not None:
                    inputs, labels = self.on_device(inputs, labels)
                batches.append((inputs, labels, share_weights.weights))
            return batches[0] if len(batches) == 1 else tuple(batches)

        return self.shares(tf.distribute.InputContext()).map(without_totals)


class ShareWeights(NamedTuple):
    """The weights of the rows of a share, and the size of the update that it belongs to.

    Fields:
        weights: float32 [B] or [B, ...], the weights of the data set; None if it has none.
        is_real: float32 [B], 1, or 0 for rows that are repeated to fill a replica.
        num_rows: float32 [B], the number of rows of the whole update, the same in each row.
        total_weight: float32 [B], the sum of the weights of the whole update, the same in each row.
    """

    weights: tf.Tensor | None
    is_real: tf.Tensor
    num_rows: tf.Tensor
    total_weight: tf.Tensor

    @classmethod
    def of_update(cls, weights, num_rows, total_weight):
        """Creates the weights of some real rows of an update; both numbers are scalars."""
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


def split_batches(updates, num_batches=None, largest_step=None):
    """Makes `WorkerBatches` of a data set of whole batches.

    Every worker reads all of it and keeps its own rows. The elements are batches (inputs, labels,
    weights [B] or [B, ...], or None), or tuples of batches whose gradients are summed.
    """

    def shares(context):
        batches = updates.map(_with_totals)
        if context.num_replicas_in_sync == 1:
            return batches

        def split_update(*batches):
            by_replica = []
            for batch in batches:
                size = tf.shape(batch[2].is_real)[0]
                by_replica.append(split(batch, *split_rows(size, context)))
            return tuple(by_replica)

        return unbatch_replicas(batches.map(split_update, tf.data.AUTOTUNE))

    return WorkerBatches(shares, num_batches, largest_step)


def in_parts(share, number):
    """Divides a share into parts that are shares of the same update.

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


def _with_totals(*update):
    """Converts an element of a data set to a tuple of batches with `ShareWeights`."""
    is_batch = not isinstance(update[-1], tuple)  # it ends with the weights
    batches = (update,) if is_batch else update
    all_weights = [_weights_or_ones(batch) for batch in batches]
    num_rows = tf.add_n([tf.shape(weights)[0] for weights in all_weights])
    total = tf.add_n([tf.reduce_sum(weights) for weights in all_weights])
    converted = []
    for (inputs, labels, given), weights in zip(batches, all_weights):
        share_weights = ShareWeights.of_update(weights, num_rows, total)
        if given is None:
            share_weights = share_weights._replace(weights=None)
        converted.append((inputs, labels, share_weights))
    return tuple(converted)


def _weights_or_ones(batch):
    inputs, _, weights = batch
    if weights is None:
        return tf.ones(tf.shape(tf.nest.flatten(inputs)[0])[:1])
    return tf.cast(weights, tf.float32)


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
