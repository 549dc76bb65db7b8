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


def token_batches(rows, special, max_length, buffer_length=0):
    """A list of `Batch` of rows, each a list of sequences of tokens; the longest rows come first.

    `max_length` is that of the model; memory is needed for `buffer_length` tokens, if that is more
    than the padded length.
    """
    lengths, by_width, batches = [max(map(len, row)) for row in rows], {}, []
    sizes, most = BATCH_SIZES, TOKENS_IN_BATCH
    if tf.config.list_logical_devices("GPU"):
        sizes, most = (*sizes, ON_GPUS * sizes[-1]), ON_GPUS * most
    for index in sorted(range(len(rows)), key=lengths.__getitem__, reverse=True):
        by_width.setdefault(padded(lengths[index], max_length), []).append(index)
    for width, indices in by_width.items():
        tokens = max(width, min(buffer_length, max_length))
        count = max(n for n in sizes if n == 1 or n * tokens <= most)
        for start in range(0, len(indices), count):
            together = indices[start : start + count]
            sequences = zip(*(rows[index] for index in together))
            size = next(n for n in sizes if n >= len(together))
            arrays = tuple(_array(sequence, (size, width), special) for sequence in sequences)
            batches.append(Batch(together, [lengths[index] for index in together], arrays))
    return batches


def padded(length, limit):
    """The next of `LENGTHS`, but at most `limit`."""
    return min(limit, next(n for n in LENGTHS if n >= length))


def _array(sequences, shape, special):
    """Lists of tokens -> int32 of a shape [B, T]."""
    array = np.full(shape, special.pad, np.int32)
    array[:, 0] = special.end  # of rows without a text
    for row, sequence in zip(array, sequences):
        row[: len(sequence)] = sequence
    return array
