"""What feeds `fit` and `evaluate` of translation models: batches of about as many tokens each.

Axes: B rows of a batch, S source positions, T target positions, n pairs.
"""

import itertools
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from zoo.errors import UserError


def training_batches(
    pairs,
    tokens_per_batch,
    seed=0,
    first_step=0,
    accumulation=1,
    num_shapes=12,
):
    """Shuffled batches of about as many tokens each, of one epoch after the other, without end.

    A batch holds pairs of similar length. There are at most `num_shapes` lengths to which batches
    are padded, chosen so that `pairs` are padded least; each has one number of rows. What does not
    fill a batch goes with the next longer pairs, so every pair occurs once in every epoch; empty
    rows fill the last batch. If the number of batches is no multiple of `accumulation`, the
    fullest ones are dealt out to two. So every epoch has the same number of updates. Its order
    follows from `seed` and its number alone: a run that starts again at a step sees what it would
    have seen.

    The weights of the labels of an update, of `accumulation` batches, sum to one: the sum of the
    weighted losses is the mean over these labels.

    Args:
        pairs: `EncodedPairs`.
        tokens_per_batch: largest number of rows times padded length, of source and of target each.
        seed: of the order.
        first_step: number of the first update, counted from the beginning of the run.
        accumulation: number of batches to an update of the weights.
        num_shapes: largest number of shapes (B, S), for each of which a compiled model compiles.

    Returns:
        `tf.data.Dataset` of what `EncodedPairs.batch` returns; with more than one to an update, of
        tuples of as many of these.

    Raises:
        UserError: if a pair is longer than `tokens_per_batch`.
    """
    plan = _plan(pairs, tokens_per_batch, accumulation, num_shapes)
    first_epoch, skipped = divmod(first_step, len(plan.spans) // accumulation)

    def updates():
        for epoch in itertools.count(first_epoch):
            random = np.random.default_rng([seed, epoch])
            order = random.permutation(len(pairs))
            # Radix sort, in which pairs of one length stay shuffled.
            order = order[np.argsort(plan.bucket[order], kind="stable")]
            groups = plan.spans[random.permutation(len(plan.spans))].reshape(-1, accumulation, 3)
            labels = np.concatenate([[0], np.cumsum(pairs.target_lengths[order])])
            for group in groups[skipped if epoch == first_epoch else 0 :]:
                weight = 1.0 / max((labels[group[:, 1]] - labels[group[:, 0]]).sum(), 1)
                yield tuple(
                    pairs.batch(order[start:end], plan.shapes[bucket], weight)
                    for start, end, bucket in group
                )

    return _dataset(updates, accumulation)


def evaluation_batches(pairs, tokens_per_batch, num_shapes=12):
    """All pairs once, the longest first, in batches of the same number of rows.

    The weight of a label is number of batches / number of labels: with a summed loss, the mean
    over the batches, which Keras reports, is the mean over all labels. For the arguments and what
    is returned see `training_batches`.
    """
    lengths = _lengths(pairs, tokens_per_batch)
    order = np.argsort(-lengths, kind="stable")
    count = -(-len(pairs) // (tokens_per_batch // lengths.max()))
    rows = -(-len(pairs) // count)
    count = -(-len(pairs) // rows)
    ladder = _ladder(lengths, num_shapes)

    def batches():
        for start in range(0, len(pairs), rows):
            length = ladder[np.searchsorted(ladder, lengths[order[start]])]
            chosen = order[start : start + rows]
            yield (pairs.batch(chosen, (rows, length), count / pairs.num_tokens),)

    return _dataset(batches).apply(tf.data.experimental.assert_cardinality(count))


def steps_per_epoch(pairs, tokens_per_batch, accumulation=1, num_shapes=12):
    """Number of updates of the weights in an epoch, each by `accumulation` batches.

    Raises:
        UserError: if a pair is longer than `tokens_per_batch`.
    """
    return len(_plan(pairs, tokens_per_batch, accumulation, num_shapes).spans) // accumulation


class _Plan(NamedTuple):
    """What is the same in every epoch.

    Fields:
        bucket: int16 [n], number of the length to which each pair is padded, or less.
        shapes: (B, S) of each bucket.
        spans: int64 [batches, 3], of each batch the first and the one past the last of its pairs,
            counted in the order of buckets, and the bucket whose shape it has.
    """

    bucket: np.ndarray
    shapes: list[tuple[int, int]]
    spans: np.ndarray


def _plan(pairs, tokens_per_batch, accumulation, num_shapes):
    lengths = _lengths(pairs, tokens_per_batch)
    ladder = _ladder(lengths, num_shapes)
    bucket = np.searchsorted(ladder, lengths).astype(np.int16)
    shapes = [(_rows(tokens_per_batch, length), length) for length in ladder.tolist()]
    ends = np.cumsum(np.bincount(bucket))
    spans, start = [], 0
    for index, ((rows, _), end) in enumerate(zip(shapes, ends.tolist())):
        while start + rows <= end or (index == len(shapes) - 1 and start < end):
            spans.append((start, min(start + rows, end), index))
            start = spans[-1][1]
    while len(spans) % accumulation:
        fullest = max(range(len(spans)), key=lambda i: spans[i][1] - spans[i][0])
        start, end, index = spans[fullest]
        middle = (start + end + 1) // 2
        spans[fullest : fullest + 1] = [(start, middle, index), (middle, end, index)]
    return _Plan(bucket, shapes, np.array(spans))


def _rows(tokens_per_batch, length):
    """Rows of a batch; in eights they split evenly between devices and suit 16-bit products."""
    rows = tokens_per_batch // length
    return rows - rows % 8 if rows > 8 else rows


def _lengths(pairs, tokens_per_batch):
    """The longer side of each pair, int64 [n]."""
    lengths = np.maximum(pairs.source_lengths, pairs.target_lengths)
    if lengths.max() > tokens_per_batch:
        raise UserError(
            f"The longest pair has {lengths.max():,} tokens on a side, more than the "
            f"{tokens_per_batch:,} tokens of a batch. Make batches bigger, or leave out long pairs."
        )
    return lengths


def _ladder(lengths, count):
    """The `count` lengths, or fewer, to which `lengths` can be padded with least padding.

    Exact, by dynamic programming over the lengths that occur; where these exceed 1,000, over
    lengths in steps. Ends with the longest.
    """
    longest = lengths.max()
    step = 1 + longest // 1000
    steps, numbers = np.unique(-(-lengths // step), return_counts=True)
    rungs = np.minimum(steps * step, longest)
    before = np.concatenate([[0], np.cumsum(numbers)])
    # cost[i, j]: tokens of the lengths from rung i to rung j, when all are padded to rung j
    cost = ((before[1:] - before[:-1, None]) * rungs).astype(np.float64)
    cost[np.tril_indices(len(rungs), -1)] = np.inf
    least, splits = cost[0], []
    for _ in range(min(count, len(rungs)) - 1):
        # one rung more: the one below j ends at i
        totals = least[:-1, None] + cost[1:]
        splits.append(totals.argmin(axis=0))
        least = totals.min(axis=0)
    chosen = [len(rungs) - 1]
    for split in reversed(splits):
        chosen.append(split[chosen[-1]])
    return rungs[chosen[::-1]]


def _dataset(updates, accumulation=1):
    """Data set of what the generator yields: tuples of batches; a single one is unpacked."""
    ids, weights = (tf.TensorSpec((None, None), dtype) for dtype in (tf.int32, tf.float32))
    signature = (({"source": ids, "target": ids}, ids, weights),) * accumulation
    dataset = tf.data.Dataset.from_generator(updates, output_signature=signature)
    if accumulation == 1:
        dataset = dataset.map(lambda batch: batch)
    return dataset.prefetch(tf.data.AUTOTUNE)
