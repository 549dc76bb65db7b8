"""Sequences of token ids that are written once, found again by a key, and memory-mapped."""

import dataclasses
import hashlib
import itertools
import json
import os
import pathlib

import numpy as np

from zoo.files import atomic, locked
from zoo.text import PAD_ID


@dataclasses.dataclass(frozen=True, eq=False)
class Sequences:
    """Sequences of token ids, one after the other.

    Args:
        ids: int32 [tokens of all sequences].
        offsets: int64 [n + 1], where in `ids` each sequence begins, and the end.
    """

    ids: np.ndarray
    offsets: np.ndarray

    @classmethod
    def concatenated(cls, sequences):
        """From a list of lists of ids."""
        ids = np.fromiter(itertools.chain.from_iterable(sequences), np.int32)
        return cls(ids, offsets([*map(len, sequences)]))

    @classmethod
    def memory_mapped(cls, folder, name):
        """From `folder`/`name`.ids, the bytes of the ids, and `name`_offsets.npy."""
        ids = np.memmap(folder / f"{name}.ids", np.int32, "r")
        offsets = np.load(folder / f"{name}_offsets.npy", mmap_mode="r")
        return cls(np.asarray(ids), np.asarray(offsets))  # faster to index than `np.memmap`

    def lengths(self, rows):
        """Number of tokens of these sequences, int64."""
        return self.offsets[rows + 1] - self.offsets[rows]

    def padded(self, rows, shape, pad=PAD_ID):
        """Pads these sequences to an int32 array of `shape`; the remaining rows are padding."""
        columns = np.arange(shape[1])
        batch = np.empty(shape, np.int32)
        batch[len(rows) :] = pad
        used = batch[: len(rows)]
        # Reads on where a sequence has ended: selecting what to read would take longer.
        self.ids.take(self.offsets[rows, None] + columns, mode="clip", out=used)
        used[columns >= self.lengths(rows)[:, None]] = pad
        return batch


def offsets(lengths):
    """The `offsets` of `Sequences` of these lengths."""
    return np.cumsum(np.concatenate([[0], lengths]), dtype=np.int64)


def by_length(lengths):
    """(uint32 [n], the numbers of these lengths, longest first; int64 [longest + 1], how often each
    length occurs)."""
    return np.argsort(-lengths, kind="stable").astype(np.uint32), np.bincount(lengths)


def cached_folder(root, key, write):
    """Opens the folder in `root` of a key; if it is missing, `write` writes its files.

    The key is all that the content depends on, as JSON can hold it. The folder is written under
    another name and then renamed, so one that is incomplete is never used. A process waits for
    another one that writes the same folder. Returns (`pathlib.Path`, whether it was there).
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
    """Part of a key: path, size and modification time of a file; [path] if it is missing."""
    path = os.path.realpath(path)
    try:
        status = os.stat(path)
    except OSError:
        return [path]
    return [path, status.st_size, status.st_mtime_ns]
