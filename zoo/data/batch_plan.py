"""Which pairs a batch has: pairs of similar length, in another order in each epoch.

Only the order of the batches is in memory; which pairs a batch has is computed when it is made.
Axes: B rows of a batch, S positions, n pairs.
"""

from typing import NamedTuple

import numpy as np

from zoo.data.keyed_permutation import permuted
from zoo.errors import UserError


class Plan(NamedTuple):
    """The parts of the schedule that are the same in every epoch.

    A bucket holds the pairs that are padded to the same length. A place is a number below n:
    shorter buckets come first; within a bucket, each epoch has the pairs in another order.

    Fields:
        ends: int64 [buckets], the place after the last one of each bucket.
        shapes: (B, S) of each bucket.
        spans: int64 [batches, 3], (start, end, bucket) of each batch: the places of its pairs, and
            the bucket that gives its shape.
    """

    ends: np.ndarray
    shapes: list[tuple[int, int]]
    spans: np.ndarray


def plan_batches(pairs, tokens_per_batch, accumulation, num_shapes):
    """Returns the `Plan` of the batches that `training_batches` describes."""
    longest_length(pairs, tokens_per_batch)
    lengths = padded_lengths(pairs.length_counts, num_shapes)
    ends = np.cumsum(pairs.length_counts)[lengths]
    shapes = [(_rows(tokens_per_batch, length), length) for length in lengths.tolist()]
    spans, start = [], 0
    for bucket, ((rows, _), end) in enumerate(zip(shapes, ends.tolist())):
        stops = np.arange(start + rows, end + 1, rows)
        if bucket == len(shapes) - 1 and start + rows * len(stops) < end:
            stops = np.append(stops, end)
        starts = start + rows * np.arange(len(stops))
        spans.append(np.stack([starts, stops, np.full(len(stops), bucket)], axis=1))
        start += rows * len(stops)
    spans = np.concatenate(spans)
    while len(spans) % accumulation:
        fullest = np.argmax(spans[:, 1] - spans[:, 0])
        start, end, bucket = spans[fullest]
        middle = (start + end + 1) // 2
        halves = [(start, middle, bucket), (middle, end, bucket)]
        spans = np.concatenate([spans[:fullest], halves, spans[fullest + 1 :]])
    return Plan(ends, shapes, spans)


def pairs_of_update(pairs, plan, group, keys):
    """Returns the pairs of each batch of an update.

    Args:
        pairs: `EncodedPairs` or `EncodedTexts`.
        plan: `Plan`.
        group: int64 [accumulation, 3], as in `Plan.spans`.
        keys: of the epoch, uint64 [ROUNDS, buckets].

    Returns:
        list of uint32 [up to B].
    """
    places = np.concatenate([np.arange(start, end) for start, end, _ in group])
    bucket = np.searchsorted(plan.ends, places, side="right")
    sizes = np.diff(plan.ends, prepend=0)[bucket]
    starts = plan.ends[bucket] - sizes
    places = starts + permuted(places - starts, sizes, keys[:, bucket])
    numbers = pairs.longest_first[len(pairs) - 1 - places]
    return np.split(numbers, np.cumsum(group[:-1, 1] - group[:-1, 0]))


def _rows(tokens_per_batch, length):
    """Rows of a batch; multiples of 8 split evenly between devices and suit tensor cores."""
    rows = tokens_per_batch // length
    return rows - rows % 8 if rows > 8 else rows


def longest_length(pairs, tokens_per_batch):
    """The length of the longer side of the longest pair; checks that it fits in a batch."""
    longest = len(pairs.length_counts) - 1
    if longest > tokens_per_batch:
        raise UserError(
            f"The longest pair has {longest:,} tokens on a side, more than the "
            f"{tokens_per_batch:,} tokens of a batch. Increase --tokens-per-batch, or decrease "
            "--max-length to skip long pairs."
        )
    return longest


def padded_lengths(counts, number):
    """Chooses up to `number` padded lengths that minimise padding, in ascending order.

    Dynamic programming over all lengths that occur; if the longest exceeds 1,000, lengths are
    rounded up first. The last padded length is the longest length.

    Args:
        counts: int64 [longest + 1], number of pairs of each length.
        number: maximum number of padded lengths.
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
    least, splits = cost[0], []
    for _ in range(min(number, len(candidates)) - 1):
        # one more padded length: the one below j ends at i
        totals = least[:-1, None] + cost[1:]
        splits.append(totals.argmin(axis=0))
        least = totals.min(axis=0)
    chosen = [len(candidates) - 1]
    for split in reversed(splits):
        chosen.append(split[chosen[-1]])
    return candidates[chosen[::-1]]
