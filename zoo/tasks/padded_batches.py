"""Rows of tokens in batches of a few padded shapes, for which few functions are compiled.

Axes: B rows of a batch, T tokens.
"""

import math
from typing import NamedTuple

import numpy as np

from zoo.hardware import has_gpu

# Sequences, and buffers for hypotheses, are padded to the next of these lengths, and batches to the
# next of these numbers of rows.
LENGTHS = tuple(16 * 2**n for n in range(16))
BATCH_SIZES = (1, 8, 32)
TOKENS_IN_BATCH = 4096  # padded tokens; batches of long rows have fewer rows
GPU_FACTOR = 8  # of rows and tokens in the largest batches on GPUs


class Batch(NamedTuple):
    """Rows of tokens that are computed together.

    Fields:
        indices: places of the rows in the input. The arrays may have additional rows, of padding.
        lengths: the length of the longest sequence of each row.
        tokens: an array int32 [B, T] for each sequence of a row, such as source and target.
    """

    indices: list
    lengths: list
    tokens: tuple


def pad_and_batch(rows, special, max_length, buffer_length=0, hypotheses=1):
    """Batches rows of similar length; the longest rows come first.

    Args:
        rows: list of rows, each a list of sequences of tokens, such as source and target.
        special: `zoo.decoding.SpecialTokens`.
        max_length: maximum padded length, that of the model.
        buffer_length: minimum number of tokens to count per row when choosing the batch size, for
            the memory of new tokens.
        hypotheses: number of outputs of a row, each with new tokens of its own. Batches are sized
            for up to 8.

    Returns:
        A list of `Batch`.
    """
    batch_sizes = BATCH_SIZES
    tokens_in_batch = TOKENS_IN_BATCH
    if has_gpu():
        batch_sizes = (*batch_sizes, GPU_FACTOR * batch_sizes[-1])
        tokens_in_batch = GPU_FACTOR * tokens_in_batch

    lengths = [max(map(len, row)) for row in rows]
    by_width = {}
    for index in sorted(range(len(rows)), key=lengths.__getitem__, reverse=True):
        width = padded_length(lengths[index], max_length)
        by_width.setdefault(width, []).append(index)

    batches = []
    for width, indices in by_width.items():
        tokens = max(width, min(buffer_length, max_length))  # of a row
        tokens *= math.ceil(hypotheses / 8)
        most = max(n for n in batch_sizes if n == 1 or n * tokens <= tokens_in_batch)
        for start in range(0, len(indices), most):
            together = indices[start : start + most]
            batch_size = min(n for n in batch_sizes if n >= len(together))
            sequences = zip(*(rows[index] for index in together))
            batch = Batch(
                indices=together,
                lengths=[lengths[index] for index in together],
                tokens=tuple(_padded(each, (batch_size, width), special) for each in sequences),
            )
            batches.append(batch)
    return batches


def padded_length(length, limit):
    """The next of `LENGTHS`, but at most `limit`."""
    return min(limit, min(n for n in LENGTHS if n >= length))


def _padded(sequences, shape, special):
    """Lists of tokens -> int32 of a shape [B, T]."""
    array = np.full(shape, special.pad, np.int32)
    array[:, 0] = special.end  # so that no row is empty
    for row, sequence in zip(array, sequences):
        row[: len(sequence)] = sequence
    return array
