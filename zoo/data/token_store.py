"""Sequences of token ids, one after the other in memory."""

import array
import dataclasses

import numpy as np

from zoo.text import PAD_ID


@dataclasses.dataclass(frozen=True, eq=False)
class Sequences:
    """Concatenated sequences of token ids.

    Args:
        ids: int32 [tokens of all n sequences].
        offsets: int64 [n + 1], the start of each sequence in `ids`, and the end of the last one.
    """

    ids: np.ndarray
    offsets: np.ndarray

    @classmethod
    def concatenated(cls, sequences):
        """Concatenates an iterable of lists of ids, which may be a stream."""
        ids, offsets = array.array("i"), array.array("q", [0])
        for sequence in sequences:
            ids.extend(sequence)
            offsets.append(len(ids))
        return cls(np.array(ids, np.int32), np.array(offsets, np.int64))

    def lengths(self, rows):
        """Returns the number of tokens of the sequences with these indices, int64 [rows]."""
        return self.offsets[rows + 1] - self.offsets[rows]

    def padded(self, rows, shape, pad=PAD_ID):
        """Pads the sequences with the indices `rows` to int32 `shape`; other rows are padding."""
        columns = np.arange(shape[1])
        batch = np.empty(shape, np.int32)
        batch[len(rows) :] = pad
        used = batch[: len(rows)]
        # Reads beyond the end of sequences and overwrites it, which is faster than a selection.
        self.ids.take(self.offsets[rows, None] + columns, mode="clip", out=used)
        used[columns >= self.lengths(rows)[:, None]] = pad
        return batch


def by_length(lengths):
    """Returns the indices of lengths, longest first, uint32 [n], and the count of each length."""
    return np.argsort(-lengths, kind="stable").astype(np.uint32), np.bincount(lengths)
