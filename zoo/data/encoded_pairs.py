"""Sentence pairs as token ids, encoded once in bounded memory and memory-mapped from files.

Axes: B rows of a batch, S source positions, T target positions, n pairs.
"""

import itertools
import json
import pathlib
import shutil

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from zoo.errors import DataError
from zoo.files import atomic
from zoo.text import PAD_ID
from zoo.text.special_tokens import SPECIAL_TOKENS

_BLOCK = 2000  # pairs to encode per call


class EncodedPairs:
    """Encoded sentence pairs, memory-mapped from the files that `encode_pairs` wrote.

    Args:
        folder: the subfolder that `encode_pairs` wrote.
        special: `zoo.decoding.SpecialTokens` of the model, as passed to `encode_pairs`.

    The length of a pair is that of its longer side, with the end token.

    Fields:
        longest_first: uint32 [n], the pairs by descending length, memory-mapped.
        length_counts: int64 [longest + 1], number of pairs of each length.
        skipped: number of pairs that were skipped because they were too long.
        num_tokens: number of labels in an epoch.
        signature: `tf.TensorSpec` of the outputs of `batch`.
    """

    _ids, _weights = (tf.TensorSpec((None, None), dtype) for dtype in (tf.int32, tf.float32))
    signature = ({"source": _ids, "target": _ids}, _ids, _weights)

    def __init__(self, folder, special=SPECIAL_TOKENS):
        folder, self._special = pathlib.Path(folder), special
        names = ("source", "source_offsets", "target", "target_offsets", "longest_first")
        (
            *(self._source, self._source_offsets, self._target, self._target_offsets),
            self.longest_first,
        ) = (
            # as ndarray, which is faster to index than memmap
            np.asarray(np.load(folder / f"{name}.npy", mmap_mode="r"))
            for name in names
        )
        self.length_counts = np.load(folder / "length_counts.npy")
        counts = json.loads((folder / "counts.json").read_text())
        self.skipped, self.num_tokens = counts["skipped"], counts["num_tokens"]

    def __len__(self):
        return len(self.longest_first)

    def num_labels(self, pairs):
        """Number of labels of some pairs, their end tokens included."""
        return int((self._target_offsets[pairs + 1] - self._target_offsets[pairs] + 1).sum())

    def batch(self, pairs, shape, weight):
        """Makes one batch.

        Args:
            pairs: int [up to B], indices of the pairs for the first rows; other rows are padding.
            shape: (B, S); T equals S.
            weight: weight of each real label.

        Returns:
            ({"source": int32 [B, S], "target": int32 [B, T]}, labels int32 [B, T],
            weights float32 [B, T]). Targets begin with the start token, labels end with the end
            token.
        """
        start, end, pad, _ = self._special
        source = padded(self._source, self._source_offsets, pairs, shape, pad)
        labels = padded(self._target, self._target_offsets, pairs, shape, pad)
        target = np.empty(shape, np.int32)
        target[:, 1:] = labels[:, :-1]
        target[: len(pairs), 0], target[len(pairs) :, 0] = start, pad
        lengths = self._target_offsets[pairs + 1] - self._target_offsets[pairs]
        labels[np.arange(len(pairs)), lengths] = end
        weights = np.where(labels == pad, np.float32(0), np.float32(weight))
        return {"source": source, "target": target}, labels, weights


def encode_pairs(
    pairs,
    source_tokenizer,
    target_tokenizer,
    folder,
    max_length,
    name,
    special=SPECIAL_TOKENS,
):
    """Encodes a stream of pairs in bounded memory and writes the ids to `folder`/`name`.

    An existing folder of this name is replaced once everything is written.

    Args:
        pairs: iterable of (source, target), two str.
        source_tokenizer, target_tokenizer: see `zoo.tasks.translator.Translator`.
        folder: parent folder, such as the run directory.
        max_length: maximum number of tokens of a source or target, control ids included; pairs
            with a longer side are skipped and counted.
        name: name of the split, such as "train".
        special: `zoo.decoding.SpecialTokens` of the model; its `first`, if any, is the first label
            of each pair.

    Returns:
        `EncodedPairs`.

    Raises:
        DataError: if there are no pairs, or all are too long.
    """
    path = pathlib.Path(folder) / name
    with atomic(path) as partial:
        partial.mkdir()
        _encode(pairs, (source_tokenizer, target_tokenizer), partial, max_length, name, special)
        shutil.rmtree(path, ignore_errors=True)
    return EncodedPairs(path, special)


def _encode(pairs, tokenizers, folder, max_length, name, special):
    """Writes the files of `encode_pairs` to an empty folder."""
    pairs, lengths, skipped = iter(pairs), [], 0
    first = [] if special.first is None else [special.first]
    with (
        _IdWriter(folder, "source") as sources,
        _IdWriter(folder, "target") as targets,
        tqdm(desc=f"encoding {name}", unit="pair", leave=False, disable=None) as progress,
    ):
        while block := list(itertools.islice(pairs, _BLOCK)):
            source_ids, target_ids = (
                tokenizer.encode(list(texts)) for tokenizer, texts in zip(tokenizers, zip(*block))
            )
            fitting = [
                ([*source, special.end], [*first, *target])
                for source, target in zip(source_ids, target_ids)
                if max(len(source), len(first) + len(target)) < max_length
            ]
            source_lengths = sources.write([source for source, _ in fitting])
            target_lengths = targets.write([target for _, target in fitting])
            lengths.append(np.maximum(source_lengths, target_lengths + 1))
            skipped += len(block) - len(fitting)
            progress.update(len(block))
    if not sources.count:
        reason = f"all {skipped:,} exceed {max_length} tokens" if skipped else "it is empty"
        raise DataError(f"The {name} split has no sentence pairs: {reason}.")
    counts = {"skipped": skipped, "num_tokens": targets.size + targets.count}
    (folder / "counts.json").write_text(json.dumps(counts))
    for file, array in zip(("longest_first", "length_counts"), by_length(np.concatenate(lengths))):
        np.save(folder / f"{file}.npy", array)


class _IdWriter:
    """Writes concatenated ids to `name`.npy, int32, and offsets to `name`_offsets.npy, int64."""

    def __init__(self, folder, name):
        self.count, self.size = 0, 0
        self._ids = open(folder / f"{name}.npy", "wb")  # noqa: SIM115
        self._offsets = open(folder / f"{name}_offsets.npy", "wb")  # noqa: SIM115

    def __enter__(self):
        self._write_headers()
        self._offsets.write(np.zeros(1, np.int64).tobytes())
        return self

    def write(self, sequences):
        """Returns their lengths, int32."""
        lengths = np.fromiter(map(len, sequences), np.int64, len(sequences))
        ids = np.fromiter(itertools.chain.from_iterable(sequences), np.int32, lengths.sum())
        self._ids.write(ids.tobytes())
        self._offsets.write((self.size + np.cumsum(lengths)).tobytes())
        self.count += len(sequences)
        self.size += len(ids)
        return lengths.astype(np.int32)

    def __exit__(self, *error):
        self._write_headers()
        self._ids.close()
        self._offsets.close()

    def _write_headers(self):
        # NumPy pads .npy headers, so the final header fits in place of the first one.
        for file, dtype, size in (
            (self._ids, np.int32, self.size),
            (self._offsets, np.int64, self.count + 1),
        ):
            header = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": (size,)}
            file.seek(0)
            np.lib.format.write_array_header_1_0(file, header)


def by_length(lengths):
    """Sorts by length.

    Args:
        lengths: int [n].

    Returns:
        (uint32 [n], the numbers of all lengths, longest first; int64 [longest + 1], how often each
        length occurs).
    """
    counts = np.bincount(lengths)
    # NumPy sorts integers of 8 and 16 bits in linear time.
    shortness = (len(counts) - 1 - lengths).astype(np.min_scalar_type(len(counts)))
    return np.argsort(shortness, kind="stable").astype(np.uint32), counts


def padded(ids, offsets, chosen, shape, pad=PAD_ID):
    """Pads the chosen sequences to an int32 array of `shape`; the remaining rows are padding."""
    starts, ends = offsets[chosen], offsets[chosen + 1]
    columns = np.arange(shape[1])
    padded = np.empty(shape, np.int32)
    padded[len(chosen) :] = pad
    rows = padded[: len(chosen)]
    # Reads on where a sequence has ended, which takes less time than to choose what is read.
    ids.take(starts[:, None] + columns, mode="clip", out=rows)
    rows[columns >= (ends - starts)[:, None]] = pad
    return padded
