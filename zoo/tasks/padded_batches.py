"""Rows of tokens in batches of a few padded shapes, for which few functions are compiled.

Axes: B rows of a batch, T tokens.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

# Sequences are padded to the next of these lengths, and batches to the next of these numbers of
# rows. Buffers for hypotheses have one of these lengths too, whatever `max_length` is.
LENGTHS = tuple(16 * 2**n for n in range(16))
BATCH_SIZES = (1, 8, 32)
TOKENS_IN_BATCH = 4096  # padded tokens; batches of long rows have fewer rows
ON_GPUS = 8  # times as many rows and tokens are in the largest batches on GPUs


class Batch(NamedTuple):
    """Rows of tokens that are computed together.

    Fields:
        indices: of the rows; the arrays have one of a few numbers of rows, the last without a text.
        lengths: of the rows: of each the number of tokens of its longest sequence.
        tokens: int32 [B, T] of each sequence of a row, such as source and target.
    """

    indices: list
    lengths: list
    tokens: tuple


def pad_and_batch(rows, special, max_length, buffer_length=0):
    """Batches rows of similar length; the longest rows come first.

    Args:
        rows: list of rows, each a list of sequences of tokens, such as source and target.
        special: `zoo.decoding.SpecialTokens`.
        max_length: that of the model, which limits the padded length.
        buffer_length: memory is needed for this number of tokens, if that is more than the padded
            length.

    Returns:
        A list of `Batch`.
    """
    batch_sizes = BATCH_SIZES
    tokens_in_batch = TOKENS_IN_BATCH
    if tf.config.list_logical_devices("GPU"):
        batch_sizes = (*batch_sizes, ON_GPUS * batch_sizes[-1])
        tokens_in_batch = ON_GPUS * tokens_in_batch

    lengths = [max(map(len, row)) for row in rows]
    by_width = {}
    for index in sorted(range(len(rows)), key=lengths.__getitem__, reverse=True):
        width = padded_length(lengths[index], max_length)
        by_width.setdefault(width, []).append(index)

    batches = []
    for width, indices in by_width.items():
        tokens = max(width, min(buffer_length, max_length))  # of a row
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
    array[:, 0] = special.end  # of rows without a text
    for row, sequence in zip(array, sequences):
        row[: len(sequence)] = sequence
    return array
