"""Sentence pairs as ids: encoded once, in bounded memory, and read from files when needed.

Axes: B rows of a batch, S source positions, T target positions, n pairs.
"""

import itertools
import json
import os
import pathlib
import shutil

import numpy as np
from tqdm import tqdm

from zoo.errors import DataError
from zoo.text import BOS_ID, EOS_ID, PAD_ID

_BLOCK = 2000  # pairs that are encoded at once


class EncodedPairs:
    """Sentence pairs as ids, read from the folder that `encode_pairs` wrote when needed.

    Args:
        folder: the folder, named like the pairs.

    Fields:
        source_lengths: int64 [n], tokens of each source and its EOS.
        target_lengths: int64 [n], tokens of each target and its EOS; or BOS and its tokens.
        skipped: number of pairs that were too long and were left out.
        num_tokens: target tokens, EOS included: what is learned from in one epoch.
    """

    def __init__(self, folder):
        folder = pathlib.Path(folder)
        self._source, self._source_offsets, self._target, self._target_offsets = (
            # as plain arrays, which are indexed faster
            np.asarray(np.load(folder / f"{name}.npy", mmap_mode="r"))
            for name in ("source", "source_offsets", "target", "target_offsets")
        )
        self.source_lengths = np.diff(self._source_offsets)
        self.target_lengths = np.diff(self._target_offsets) + 1
        self.skipped = json.loads((folder / "skipped.json").read_text())
        self.num_tokens = int(self.target_lengths.sum())

    def __len__(self):
        return len(self.source_lengths)

    def batch(self, pairs, shape, weight):
        """One batch.

        Args:
            pairs: int [up to B], numbers of the pairs in its first rows; other rows are empty.
            shape: (B, S), and T is S.
            weight: of each real label.

        Returns:
            ({"source": int32 [B, S], "target": int32 [B, T]}, labels int32 [B, T],
            weights float32 [B, T]). The target begins with BOS, the labels end with EOS.
        """
        source = _padded(self._source, self._source_offsets, pairs, shape)
        labels = _padded(self._target, self._target_offsets, pairs, shape)
        target = np.full(shape, PAD_ID, np.int32)
        target[: len(pairs), 0] = BOS_ID
        target[:, 1:] = labels[:, :-1]
        labels[np.arange(len(pairs)), self.target_lengths[pairs] - 1] = EOS_ID
        weights = np.where(labels == PAD_ID, np.float32(0), np.float32(weight))
        return {"source": source, "target": target}, labels, weights


def encode_pairs(pairs, source_tokenizer, target_tokenizer, folder, max_length, name):
    """Encodes a stream of pairs, once and in bounded memory, into files of `folder`/`name`.

    What the folder held under this name is replaced when all is written.

    Args:
        pairs: iterable of (source, target), two str.
        source_tokenizer, target_tokenizer: `zoo.text.tokenizer.Tokenizer`.
        folder: of the run, for example.
        max_length: tokens that a source or target may have, control ids included; pairs with a
            longer side are left out and counted.
        name: of the part, such as "train".

    Returns:
        `EncodedPairs`.

    Raises:
        DataError: if no pair is left.
    """
    path = pathlib.Path(folder) / name
    partial = path.with_name(f"partial.{name}")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    skipped = 0
    with (
        _IdWriter(partial, "source") as sources,
        _IdWriter(partial, "target") as targets,
        tqdm(desc=f"encoding {name}", unit="pair", leave=False, disable=None) as progress,
    ):
        pairs = iter(pairs)
        while block := list(itertools.islice(pairs, _BLOCK)):
            source_ids, target_ids = (
                tokenizer.encode(list(texts))
                for tokenizer, texts in zip((source_tokenizer, target_tokenizer), zip(*block))
            )
            fitting = [
                (source, target)
                for source, target in zip(source_ids, target_ids)
                if max(len(source), len(target)) < max_length
            ]
            sources.write([(*source, EOS_ID) for source, _ in fitting])
            targets.write([target for _, target in fitting])
            skipped += len(block) - len(fitting)
            progress.update(len(block))
    (partial / "skipped.json").write_text(json.dumps(skipped))
    if not sources.count:
        shutil.rmtree(partial)
        reason = f"{skipped:,} are longer than {max_length} tokens" if skipped else "it is empty"
        raise DataError(f"There are no sentence pairs for {name}: {reason}.")
    shutil.rmtree(path, ignore_errors=True)
    os.replace(partial, path)
    return EncodedPairs(path)


class _IdWriter:
    """Writes sequences of ids end to end: `name`.npy, int32, and `name`_offsets.npy, int64."""

    def __init__(self, folder, name):
        self.count, self._size = 0, 0
        self._ids = open(folder / f"{name}.npy", "wb")  # noqa: SIM115
        self._offsets = open(folder / f"{name}_offsets.npy", "wb")  # noqa: SIM115

    def __enter__(self):
        self._write_headers()
        self._offsets.write(np.zeros(1, np.int64).tobytes())
        return self

    def write(self, sequences):
        lengths = np.fromiter(map(len, sequences), np.int64, len(sequences))
        ids = np.fromiter(itertools.chain.from_iterable(sequences), np.int32, lengths.sum())
        self._ids.write(ids.tobytes())
        self._offsets.write((self._size + np.cumsum(lengths)).tobytes())
        self.count += len(sequences)
        self._size += len(ids)

    def __exit__(self, *error):
        self._write_headers()
        self._ids.close()
        self._offsets.close()

    def _write_headers(self):
        # NumPy leaves room in a header for its array to grow.
        for file, dtype, size in (
            (self._ids, np.int32, self._size),
            (self._offsets, np.int64, self.count + 1),
        ):
            header = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": (size,)}
            file.seek(0)
            np.lib.format.write_array_header_1_0(file, header)


def _padded(ids, offsets, chosen, shape):
    """The chosen sequences as the first rows of an int32 array of `shape`."""
    starts, ends = offsets[chosen], offsets[chosen + 1]
    columns = np.arange(shape[1])
    real = columns < (ends - starts)[:, None]
    padded = np.full(shape, PAD_ID, np.int32)
    padded[: len(chosen)][real] = ids[(starts[:, None] + columns)[real]]
    return padded
