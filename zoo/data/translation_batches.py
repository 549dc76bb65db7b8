"""Input pipeline for text: batches of sentence pairs, or texts, with similar numbers of tokens.

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
    """Returns an infinite data set of shuffled batches of similar numbers of tokens.

    A batch contains pairs of similar length. Batches are padded to at most `num_shapes` lengths,
    chosen to minimise padding; all batches of a length have the same number of rows. Pairs that do
    not fill a batch join the next longer pairs, so every pair occurs once per epoch; empty rows
    fill the last batch. If the number of batches is not a multiple of `accumulation`, the fullest
    batches are split in two. So every epoch has the same number of updates. The order depends only
    on `seed` and the epoch, so a resumed run sees the same batches as an uninterrupted one.

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
        `tf.data.Dataset` of the outputs of `pairs.batch`; of tuples of them if
        `accumulation` is greater than 1.

    Raises:
        UserError: if a pair is longer than `tokens_per_batch`.
    """
    plan = _plan(pairs, tokens_per_batch, accumulation, num_shapes)
    first_epoch, skipped = divmod(first_step, len(plan.spans) // accumulation)

    def updates():
        for epoch in itertools.count(first_epoch):
            random = np.random.default_rng([seed, epoch])
            order = random.permutation(len(pairs))
            # A stable sort: pairs within a bucket stay shuffled.
            order = order[np.argsort(plan.bucket[order], kind="stable")]
            groups = plan.spans[random.permutation(len(plan.spans))].reshape(-1, accumulation, 3)
            labels = np.concatenate([[0], np.cumsum(pairs.target_lengths[order])])
            for group in groups[skipped if epoch == first_epoch else 0 :]:
                weight = 1.0 / max((labels[group[:, 1]] - labels[group[:, 0]]).sum(), 1)
                yield tuple(
                    pairs.batch(order[start:end], plan.shapes[bucket], weight)
                    for start, end, bucket in group
                )

    return _dataset(updates, pairs.signature, accumulation)


def evaluation_batches(pairs, tokens_per_batch, num_shapes=12):
    """Returns all pairs once, longest first, in batches with the same number of rows.

    The weight of a label is number of batches / number of labels: with a summed loss, the mean
    over the batches, which Keras reports, is then the mean over all labels. For arguments and
    return value see `training_batches`.
    """
    lengths = _lengths(pairs, tokens_per_batch)
    order = np.argsort(-lengths, kind="stable")
    count = -(-len(pairs) // (tokens_per_batch // lengths.max()))
    rows = -(-len(pairs) // count)
    count = -(-len(pairs) // rows)
    padded_lengths = _padded_lengths(lengths, num_shapes)

    def batches():
        for start in range(0, len(pairs), rows):
            length = padded_lengths[np.searchsorted(padded_lengths, lengths[order[start]])]
            chosen = order[start : start + rows]
            yield (pairs.batch(chosen, (rows, length), count / pairs.num_tokens),)

    return _dataset(batches, pairs.signature).apply(tf.data.experimental.assert_cardinality(count))


def steps_per_epoch(pairs, tokens_per_batch, accumulation=1, num_shapes=12):
    """Returns the number of updates in an epoch, each of `accumulation` batches.

    Raises:
        UserError: if a pair is longer than `tokens_per_batch`.
    """
    return len(_plan(pairs, tokens_per_batch, accumulation, num_shapes).spans) // accumulation


class _Plan(NamedTuple):
    """The parts of the schedule that are the same in every epoch.

    Fields:
        bucket: int16 [n], index of the smallest padded length that fits each pair.
        shapes: (B, S) of each bucket.
        spans: int64 [batches, 3], (start, end, bucket) of each batch: the range of its pairs,
            sorted by bucket, and the bucket that gives its shape.
    """

    bucket: np.ndarray
    shapes: list[tuple[int, int]]
    spans: np.ndarray


def _plan(pairs, tokens_per_batch, accumulation, num_shapes):
    lengths = _lengths(pairs, tokens_per_batch)
    padded_lengths = _padded_lengths(lengths, num_shapes)
    bucket = np.searchsorted(padded_lengths, lengths).astype(np.int16)
    shapes = [(_rows(tokens_per_batch, length), length) for length in padded_lengths.tolist()]
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
    """Rows of a batch; multiples of 8 split evenly between devices and suit tensor cores."""
    rows = tokens_per_batch // length
    return rows - rows % 8 if rows > 8 else rows


def _lengths(pairs, tokens_per_batch):
    """Length of the longer side of each pair, int64 [n]."""
    lengths = np.maximum(pairs.source_lengths, pairs.target_lengths)
    if lengths.max() > tokens_per_batch:
        raise UserError(
            f"The longest pair has {lengths.max():,} tokens on a side, more than the "
            f"{tokens_per_batch:,} tokens of a batch. Increase --tokens-per-batch, or decrease "
            "--max-length to skip long pairs."
        )
    return lengths


def _padded_lengths(lengths, count):
    """Chooses up to `count` padded lengths that minimise padding, in ascending order.

    Dynamic programming over all lengths that occur; if the longest exceeds 1,000, lengths are
    rounded up first. The last padded length is the longest length.
    """
    longest = lengths.max()
    step = 1 + longest // 1000
    steps, numbers = np.unique(-(-lengths // step), return_counts=True)
    candidates = np.minimum(steps * step, longest)
    before = np.concatenate([[0], np.cumsum(numbers)])
    # cost[i, j]: tokens of the lengths from candidate i to candidate j, all padded to candidate j
    cost = ((before[1:] - before[:-1, None]) * candidates).astype(np.float64)
    cost[np.tril_indices(len(candidates), -1)] = np.inf
    least, splits = cost[0], []
    for _ in range(min(count, len(candidates)) - 1):
        # one more padded length: the one below j ends at i
        totals = least[:-1, None] + cost[1:]
        splits.append(totals.argmin(axis=0))
        least = totals.min(axis=0)
    chosen = [len(candidates) - 1]
    for split in reversed(splits):
        chosen.append(split[chosen[-1]])
    return candidates[chosen[::-1]]


def _dataset(updates, signature, accumulation=1):
    """Makes a data set of the tuples of batches that `updates` yields; unpacks single batches."""
    dataset = tf.data.Dataset.from_generator(updates, output_signature=(signature,) * accumulation)
    if accumulation == 1:
        dataset = dataset.map(lambda batch: batch)
    return dataset.prefetch(tf.data.AUTOTUNE)
