"""Input pipeline for text: batches of sentence pairs, or texts, with similar numbers of tokens.

A batch is a function of its step: no order of all pairs is kept in memory. Axes: B rows of a batch,
S source positions, T target positions, n pairs.
"""

import functools

import numpy as np
import tensorflow as tf

from zoo.data.batch_plan import longest_length, padded_lengths, pairs_of_update, plan_batches
from zoo.data.keyed_permutation import ROUNDS
from zoo.data.worker_batches import WorkerBatches, of_each_replica, worker_rows


def training_batches(
    pairs,
    tokens_per_batch,
    seed=0,
    first_step=0,
    accumulation=1,
    num_shapes=12,
):
    """Returns shuffled batches of similar numbers of tokens, without end.

    A batch contains pairs of similar length. Batches are padded to at most `num_shapes` lengths,
    chosen to minimise padding; all batches of a length have the same number of rows. Pairs that do
    not fill a batch join the next longer pairs, so every pair occurs once per epoch; empty rows
    fill the last batch. If the number of batches is not a multiple of `accumulation`, the fullest
    batches are split in two. So every epoch has the same number of updates. The order depends only
    on `seed` and the epoch, so a resumed run sees the same batches as an uninterrupted one, and any
    number of workers computes the same rows.

    The label weights of an update, over its `accumulation` batches, sum to one: the sum of the
    weighted losses is the mean over these labels.

    Args:
        pairs: `EncodedPairs`, or `EncodedTexts` with one label each.
        tokens_per_batch: maximum number of rows times padded length, for source and target each.
        seed: seed of the order.
        first_step: first update, counted from the beginning of the run.
        accumulation: number of batches per update of the weights.
        num_shapes: maximum number of shapes (B, S); a compiled model is compiled for each of them.

    Returns:
        `WorkerBatches` of the outputs of `pairs.batch`; of tuples of them if `accumulation` is
        greater than 1.

    Raises:
        UserError: if a pair is longer than `tokens_per_batch`.
    """
    plan = plan_batches(pairs, tokens_per_batch, accumulation, num_shapes)
    steps = len(plan.spans) // accumulation

    @functools.lru_cache(maxsize=2)
    def order_of(epoch):
        random = np.random.default_rng([seed, epoch])
        keys = random.integers(2**64, size=(ROUNDS, len(plan.shapes)), dtype=np.uint64)
        return random.permutation(len(plan.spans)).reshape(steps, accumulation), keys

    def update(step):
        groups, keys = order_of(step // steps)
        group = plan.spans[groups[step % steps]]
        chosen = pairs_of_update(pairs, plan, group, keys)
        weight = 1.0 / max(pairs.num_labels(np.concatenate(chosen)), 1)
        shapes = [plan.shapes[bucket] for bucket in group[:, 2]]
        return [(rows, shape, weight) for rows, shape in zip(chosen, shapes)]

    def parts(context):
        steps = tf.data.Dataset.counter(first_step)
        return _own_parts(steps, update, pairs, context, accumulation)

    return WorkerBatches(parts)


def evaluation_batches(pairs, tokens_per_batch, num_shapes=12):
    """Returns all pairs once, longest first, in batches with the same number of rows.

    The weight of a label is number of batches / number of labels: with a summed loss, the mean
    over the batches, which Keras reports, is then the mean over all labels. For arguments and
    return value see `training_batches`.
    """
    longest = longest_length(pairs, tokens_per_batch)
    count = -(-len(pairs) // (tokens_per_batch // longest))
    rows = -(-len(pairs) // count)
    count = -(-len(pairs) // rows)
    lengths = padded_lengths(pairs.length_counts, num_shapes)
    at_least = np.cumsum(pairs.length_counts[::-1])  # pairs of the i longest lengths

    def batch(step):
        length = longest - np.searchsorted(at_least, step * rows, side="right")
        length = lengths[np.searchsorted(lengths, length)]
        chosen = pairs.longest_first[step * rows : (step + 1) * rows]
        return [(chosen, (rows, length), count / pairs.num_tokens)]

    def parts(context):
        return _own_parts(tf.data.Dataset.range(count), batch, pairs, context)

    return WorkerBatches(parts, count)


def steps_per_epoch(pairs, tokens_per_batch, accumulation=1, num_shapes=12):
    """Returns the number of updates in an epoch, each of `accumulation` batches.

    Raises:
        UserError: if a pair is longer than `tokens_per_batch`.
    """
    return (
        len(plan_batches(pairs, tokens_per_batch, accumulation, num_shapes).spans) // accumulation
    )


def _own_parts(steps, update, pairs, context, accumulation=1):
    """Makes the batches of each step, of which a worker computes its own rows only.

    Args:
        steps: data set of int64.
        update: function of a step -> [(pairs of a batch, (B, S), weight of its labels)].
        context: `tf.distribute.InputContext` of the worker.

    Returns:
        Data set of the parts of each replica of the worker, in turn.
    """
    rows_of = functools.cache(lambda size: worker_rows(size, context))
    signature = tf.nest.flatten((pairs.signature,) * accumulation)

    def own(step):
        batches = [_own_rows(pairs, *batch, rows_of) for batch in update(int(step))]
        return tf.nest.flatten(batches)

    def parts(step):
        tensors = tf.numpy_function(own, [step], [spec.dtype for spec in signature], stateful=False)
        for tensor, spec in zip(tensors, signature):
            tensor.set_shape([None, *spec.shape])
        batches = tf.nest.pack_sequence_as((pairs.signature,) * accumulation, tensors)
        return batches[0] if accumulation == 1 else batches

    # A small buffer: Python cannot exit while a thread of it computes batches.
    return of_each_replica(steps.map(parts), rows_of(1)).prefetch(2)


def _own_rows(pairs, chosen, shape, weight, rows_of):
    """The part of a batch of each replica of a worker: arrays [replicas, rows of a replica, ...]"""
    rows = rows_of(shape[0])
    own = chosen[rows.numbers[: np.searchsorted(rows.numbers, len(chosen))]]
    batch = pairs.batch(own, (len(rows.numbers), shape[1]), weight)
    places = rows.places[:, 0]
    if places.size > len(rows.numbers):  # rows are repeated
        batch = tf.nest.map_structure(lambda array: array[places.reshape(-1)], batch)
    inputs, labels, weights = tf.nest.map_structure(
        lambda array: array.reshape(*places.shape, *array.shape[1:]), batch
    )
    real = rows.weights[:, 0]
    return inputs, labels, weights * real.reshape(real.shape + (1,) * (weights.ndim - 2))
