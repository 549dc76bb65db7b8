"""Sequences of token ids: memory-mapped files, in folders that are cached by a key.

Axes: B rows of a batch, S tokens of a row, n examples.
"""

import array
import dataclasses
import hashlib
import json
import os
import pathlib

import numpy as np

from zoo.files import atomic, locked
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
        ids = array.array("i")
        offsets = array.array("q", [0])
        for sequence in sequences:
            ids.extend(sequence)
            offsets.append(len(ids))
        return cls(np.array(ids, np.int32), np.array(offsets, np.int64))

    def save(self, folder):
        """Writes two files to an existing folder."""
        np.save(folder / "ids.npy", self.ids)
        np.save(folder / "offsets.npy", self.offsets)

    @classmethod
    def load(cls, folder):
        """Memory-maps the files that `save` wrote."""
        ids = np.load(folder / "ids.npy", mmap_mode="r")
        offsets = np.load(folder / "offsets.npy", mmap_mode="r")
        return cls(np.asarray(ids), np.asarray(offsets))  # faster to index than `np.memmap`

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


class TokenExamples:
    """Base of tokenized examples, of which `zoo.data.token_batches` makes batches.

    A subclass has a method `batch(numbers, shape)`, which returns (inputs, labels, weights) of the
    `shape` (B, S) of up to B examples, given by their indices; the other rows are padding. Weights
    are 1 for each label. Its `signature` are the `tf.TensorSpec` of the outputs.

    Attributes:
        sequences: `Sequences`, one or more of each example.
        num_tokens: number of labels.
        shortest_first: uint32 [n], the examples by ascending length.
        length_counts: int64 [longest + 1], number of examples of each length.
    """

    def __init__(self, sequences, lengths, num_tokens):
        self.sequences = sequences
        self.num_tokens = num_tokens
        self.shortest_first = np.argsort(-lengths, kind="stable")[::-1].astype(np.uint32)
        self.length_counts = np.bincount(lengths)

    def __len__(self):
        return len(self.shortest_first)


def cached_folder(root, key, write):
    """Opens the folder of a key, and creates it if it does not exist.

    A process waits for another one that writes the same folder.

    Args:
        root: path of the folder that contains it.
        key: everything that the content depends on, which JSON can store.
        write: function of a path that writes the files into a new folder, which is then renamed, so
            that an incomplete one is never used.

    Returns:
        The path of the folder, and whether it existed.
    """
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
    path = pathlib.Path(root) / digest[:10]
    if path.is_dir():
        return path, True
    with locked(path):
        if path.is_dir():
            return path, True
        with atomic(path) as partial:
            partial.mkdir()
            write(partial)
    return path, False


def file_key(path):
    """Part of a key: path, size and modification time of a file; only the path if it is missing."""
    path = os.path.realpath(path)
    try:
        status = os.stat(path)
    except OSError:
        return [path]
    return [path, status.st_size, status.st_mtime_ns]
