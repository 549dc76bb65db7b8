"""Batches of sentence pairs or texts of similar lengths, shuffled by a seed.

A batch is a pure function of seed and step: no permutation of all pairs is kept in memory, and a
resumed run or another worker computes the same batches.

Pairs are sorted by length. A bucket is the pairs that are padded to the same length, a place is a
number in that order, and a span is the places of a batch. Here are 11 pairs of at most 4 tokens and
2 of at most 8, in batches of 32 tokens, 8 rows of length 4 or 4 rows of length 8::

    place    0  1  2  3  4  5  6  7    8  9 10    11 12
    bucket   0  0  0  0  0  0  0  0    0  0  0     1  1
    span     (0, 8, bucket 0)          (8, 12, bucket 1), (12, 13, bucket 1)
    shape    8 x 4                     4 x 8,             4 x 8, three rows are empty

An epoch permutes the spans, which gives the order of the batches, and the places within each
bucket, which gives the pairs of a batch. Each batch is then split between the replicas, see
`zoo.data.worker_batches`. Axes: B rows of a batch, S tokens of a row, n pairs.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from zoo.data.worker_batches import split_batches, without_autotuning
from zoo.errors import UserError

MAX_SHAPES = 12  # of batches; XLA compiles a model for each of them


def training_batches(pairs, tokens_per_batch, seed=0, first_step=0):
    """Returns an infinite data set of shuffled batches with similar numbers of tokens.

    A batch contains pairs of similar length. Batches are padded to at most `MAX_SHAPES` lengths,
    chosen to minimize padding; all batches of a length have the same number of rows. Pairs that do
    not fill a batch join the next longer pairs, so every pair occurs once per epoch; empty rows
    fill the last batch.

    The weights are 1 for labels and 0 for padding. The loss must have the reduction
    "mean_with_sample_weight", the mean over the labels of a batch.

    Args:
        pairs: `zoo.data.token_store.TokenExamples`.
        tokens_per_batch: maximum number of rows times padded length, for source and target each.
        seed: seed of the order.
        first_step: step of the first batch, counted from the beginning of the run.

    Returns:
        `WorkerBatches` of the outputs of `pairs.batch`.

    Raises:
        UserError: if a pair is longer than `tokens_per_batch`.
    """
    plan = _plan(pairs, tokens_per_batch)
    steps = len(plan.spans)

    def places(step):
        """The bucket of a batch, and the places of its pairs."""
        epoch = step // steps
        span = tf.gather(plan.spans, shuffled(step % steps, steps, seed, epoch))
        start, end, bucket_of_batch = tf.unstack(span)
        places = tf.range(start, end)
        bucket = tf.searchsorted(plan.ends, places, side="right")
        sizes = tf.gather(np.diff(plan.ends, prepend=0), bucket)
        starts = tf.gather(plan.ends, bucket) - sizes
        return bucket_of_batch, starts + shuffled(places - starts, sizes, seed, epoch)

    def batch(bucket, places):
        return pairs.batch(pairs.shortest_first[places], plan.shapes[bucket])

    # Attention takes the most memory for the longest pairs, which are in the last span.
    order = shuffled(tf.range(steps, dtype=tf.int64), steps, seed, epoch=0)
    largest_step = int(tf.argmax(order))
    batches = computed(tf.data.Dataset.counter(first_step).map(places), batch, pairs.signature)
    return split_batches(batches, largest_step=largest_step)


def evaluation_batches(pairs, tokens_per_batch):
    """Returns a data set of all pairs, shortest first, in batches like those of `training_batches`.

    For arguments and return value see there.
    """
    plan = _plan(pairs, tokens_per_batch)
    count = len(plan.spans)

    def batch(step):
        start, end, bucket = plan.spans[step]
        return pairs.batch(pairs.shortest_first[start:end], plan.shapes[bucket])

    return split_batches(computed(tf.data.Dataset.range(count), batch, pairs.signature), count)


def steps_per_epoch(pairs, tokens_per_batch):
    """Returns the number of batches in an epoch.

    Raises:
        UserError: if a pair is longer than `tokens_per_batch`.
    """
    return len(_plan(pairs, tokens_per_batch).spans)


def shuffled(numbers, sizes, seed, epoch):
    """Permutes each number, int64 [] or [n], among those below its size, an int or int64 [n]."""
    seeds = tf.stack([tf.constant(seed, tf.int64), tf.cast(epoch, tf.int64)])
    return tf.random.experimental.index_shuffle(numbers, seeds, tf.cast(sizes, tf.int64) - 1)


def computed(steps, batch_of, signature):
    """Maps a data set by `batch_of`, a function of the NumPy arrays of an element.

    It returns a structure of arrays like `signature`, and must not call TensorFlow, as Python could
    not exit in the meantime.
    """
    specs = tf.nest.flatten(signature)

    def batch(*step):
        tensors = tf.numpy_function(
            lambda *arrays: tf.nest.flatten(batch_of(*arrays)),
            step,
            [spec.dtype for spec in specs],
            stateful=False,
        )
        for tensor, spec in zip(tensors, specs):
            tensor.set_shape(spec.shape)
        return tf.nest.pack_sequence_as(signature, tensors)

    # A small buffer, as Python cannot exit while batches are computed.
    return without_autotuning(steps.map(batch)).prefetch(2)


class _Plan(NamedTuple):
    """The batches of an epoch, which are the same in every epoch but for the order of pairs.

    Fields:
        ends: int64 [buckets], the place after the last one of each bucket.
        shapes: the shape (B, S) of the batches of each bucket.
        spans: int64 [batches, 3], (start, end, bucket) of each batch.
    """

    ends: np.ndarray
    shapes: list
    spans: np.ndarray


def _plan(pairs, tokens_per_batch):
    longest = len(pairs.length_counts) - 1
    if longest > tokens_per_batch:
        raise UserError(
            f"The longest pair has {longest:,} tokens on a side, more than the "
            f"{tokens_per_batch:,} tokens of a batch. Increase --tokens-per-batch, or decrease "
            "--max-length to skip long pairs."
        )
    lengths = padded_lengths(pairs.length_counts, MAX_SHAPES)
    ends = np.cumsum(pairs.length_counts)[lengths]
    rows = tokens_per_batch // lengths
    rows -= np.where(rows > 8, rows % 8, 0)  # for several devices and tensor cores
    shapes = list(zip(rows.tolist(), lengths.tolist()))
    spans = []
    start = 0
    for bucket, ((rows, _), end) in enumerate(zip(shapes, ends.tolist())):
        while start + rows <= end:
            spans.append((start, start + rows, bucket))
            start += rows
    if start < len(pairs):
        spans.append((start, len(pairs), bucket))
    return _Plan(ends, shapes, np.array(spans))


def padded_lengths(counts, number):
    """Chooses up to `number` padded lengths that minimize padding, in ascending order.

    By dynamic programming over all lengths that occur; `counts` is the number of pairs of each. If
    the longest exceeds 1,000, they are rounded up first. The last padded length is the longest.
    """
    longest = len(counts) - 1
    step = 1 + longest // 1000
    lengths = np.flatnonzero(counts)
    steps, group = np.unique(-(-lengths // step), return_inverse=True)
    candidates = np.minimum(steps * step, longest)
    before = np.cumsum(np.bincount(group + 1, counts[lengths]).astype(np.int64))
    # cost[i, j]: tokens of the lengths from candidate i to candidate j, all padded to candidate j
    cost = ((before[1:] - before[:-1, None]) * candidates).astype(np.float64)
    cost[np.tril_indices(len(candidates), -1)] = np.inf
    least = cost[0]
    splits = []
    for _ in range(min(number, len(candidates)) - 1):
        # one more padded length: candidate i is the next below candidate j
        totals = least[:-1, None] + cost[1:]
        splits.append(totals.argmin(axis=0))
        least = totals.min(axis=0)
    best = [len(candidates) - 1]
    for split in reversed(splits):
        best.append(split[best[-1]])
    return candidates[best[::-1]]
