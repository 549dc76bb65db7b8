"""A tokenized corpus of sentence pairs in a folder: token ids, tokenizers and the test pairs.

Axes: B rows of a batch, S source positions, T target positions, n pairs.
"""

import itertools
import json
import pathlib

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from zoo.data.token_store import Sequences, by_length, offsets
from zoo.errors import DataError
from zoo.text.saved_tokenizers import load_tokenizer, save_tokenizer
from zoo.text.sentencepiece import train_tokenizer
from zoo.text.special_tokens import SPECIAL_TOKENS

VERSION = 5  # of the files, and of reading, splitting and encoding pairs
_MAX_PAIRS = 2_000_000  # to train a tokenizer on: more take long and change little
_BLOCK = 2000  # pairs to encode per call
_SIDES = ("source", "target")


class EncodedPairs:
    """Tokenized sentence pairs, memory-mapped from the files that `encode_pairs` wrote.

    The length of a pair is that of its longer side, including the end token.

    Args:
        folder: the subfolder that `encode_pairs` wrote.
        special: `zoo.decoding.SpecialTokens` of the model, as passed to `encode_pairs`.

    Attributes:
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
        self._source, self._target = (Sequences.memory_mapped(folder, side) for side in _SIDES)
        self.longest_first = np.asarray(np.load(folder / "longest_first.npy", mmap_mode="r"))
        counts = json.loads((folder / "counts.json").read_text())
        self.length_counts, self.skipped = np.array(counts["lengths"]), counts["skipped"]
        self.num_tokens = len(self._target.ids)

    def __len__(self):
        return len(self.longest_first)

    def batch(self, pairs, shape):
        """Builds a batch of the `shape` (B, S) of up to B pairs, given by their indices.

        Returns ({"source": int32 [B, S], "target": int32 [B, T]}, labels int32 [B, T], weights
        float32 [B, T], 1 for each label), where T is S. Targets begin with the start token, labels
        end with the end token; the other rows are padding.
        """
        pad = self._special.pad
        source = self._source.padded(pairs, shape, pad)
        target = self._target.padded(pairs, shape, pad)
        labels, lengths = np.full(shape, pad, np.int32), self._target.lengths(pairs)
        labels[:, :-1] = target[:, 1:]
        labels[np.arange(len(pairs)), lengths - 1] = self._special.end
        weights = np.zeros(shape, np.float32)
        weights[: len(pairs)] = np.arange(shape[1]) < lengths[:, None]
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
    """Tokenizes a stream of pairs in bounded memory and writes the ids to `folder`/`name`.

    Args:
        pairs: iterable of (source, target), two str.
        source_tokenizer, target_tokenizer: see `zoo.tasks.translator.Translator`.
        folder: parent folder.
        max_length: maximum number of tokens of a source or target, including control ids; pairs
            with a longer side are skipped and counted.
        name: name of the split, such as "train".
        special: `zoo.decoding.SpecialTokens` of the model; its `first`, if any, is the first label
            of each pair.

    Returns `EncodedPairs`; raises `DataError` if there are no pairs, or all are too long.
    """
    pairs, path = iter(pairs), pathlib.Path(folder) / name
    start = [special.start] + ([] if special.first is None else [special.first])
    skipped, lengths = 0, [np.zeros((0, 2), np.int32)]
    path.mkdir(parents=True, exist_ok=True)
    with (
        open(path / "source.ids", "wb") as source_file,
        open(path / "target.ids", "wb") as target_file,
        tqdm(desc=f"encoding {name}", unit="pair", leave=False, disable=None) as progress,
    ):
        while block := list(itertools.islice(pairs, _BLOCK)):
            sources, targets = map(list, zip(*block))
            ids = zip(source_tokenizer.encode(sources), target_tokenizer.encode(targets))
            rows = (([*source, special.end], [*start, *target]) for source, target in ids)
            fitting = [row for row in rows if max(map(len, row)) <= max_length]
            for file, side in zip((source_file, target_file), zip(*fitting)):
                np.fromiter(itertools.chain.from_iterable(side), np.int32).tofile(file)
            lengths.append(np.array([[*map(len, row)] for row in fitting], np.int32).reshape(-1, 2))
            skipped += len(block) - len(fitting)
            progress.update(len(block))
    lengths = np.concatenate(lengths)
    for side, column in zip(_SIDES, lengths.T):
        np.save(path / f"{side}_offsets.npy", offsets(column))
    order, counts = by_length(lengths.max(axis=1))
    if not len(order):
        reason = f"all {skipped:,} exceed {max_length} tokens" if skipped else "it is empty"
        raise DataError(f"The {name} split has no sentence pairs: {reason}.")
    np.save(path / "longest_first.npy", order)
    counts = {"skipped": skipped, "lengths": counts.tolist()}
    (path / "counts.json").write_text(json.dumps(counts))
    return EncodedPairs(path, special)


class TokenizedCorpus:
    """The content of a folder that `write_corpus` wrote with the same `special`.

    Attributes:
        train, valid: `EncodedPairs`.
        test: list of (source, target), two str.
        skipped: list of str, a line for each reason why pairs were skipped.
        tokenizers: (source, target), see `zoo.tasks.translator.Translator`.
    """

    def __init__(self, folder, special):
        texts = json.loads((folder / "texts.json").read_text())
        self.train, self.valid = (EncodedPairs(folder / n, special) for n in ("train", "valid"))
        self.test = [tuple(pair) for pair in texts["test"]]
        self.skipped = texts["skipped"]
        self.tokenizers = tuple(load_tokenizer(folder, side) for side in _SIDES)


def write_corpus(folder, text, tokenizers, max_length, special):
    """Tokenizes `zoo.data.parallel_text.ParallelText` and writes it to a folder.

    The tokenizers are (source, target), or a dict of the arguments of `train_tokenizers`.
    """
    if isinstance(tokenizers, dict):
        tokenizers = train_tokenizers(text, **tokenizers)
    for side, tokenizer in zip(_SIDES, tokenizers):
        save_tokenizer(tokenizer, folder, side)
    train, valid = (
        encode_pairs(pairs, *tokenizers, folder, max_length, name, special)
        for name, pairs in (("train", text.train), ("valid", text.valid))
    )
    test = list(text.test)
    skipped = {
        "training pairs that are validation or test pairs, or have the translation of one that was "
        "held out": text.train.left_out,
        "pairs without a source or a target": sum(part.empty for part in text[:3]),
        f"training pairs with more than {max_length} tokens": train.skipped,
        f"validation pairs with more than {max_length} tokens": valid.skipped,
    }
    skipped = [f"{count:,} {reason}." for reason, count in skipped.items() if count]
    texts = {"test": test, "skipped": skipped}
    (folder / "texts.json").write_text(json.dumps(texts))


def train_tokenizers(text, tokenizer, vocab_size, normalization, vocabulary):
    """Trains tokenizers, (source, target), on up to 2 million evenly spaced training pairs.

    The vocabulary is "joint" for one tokenizer of both languages, or "separate" for one of each.
    """
    every = max(1, -(-text.count // _MAX_PAIRS))

    def texts(*sides):
        pairs = itertools.islice(text.train, 0, None, every)
        return (pair[side] for pair in pairs for side in sides)

    settings = (tokenizer, vocab_size, normalization)
    if vocabulary == "joint":
        return (train_tokenizer(texts(0, 1), *settings),) * 2
    return tuple(train_tokenizer(texts(side), *settings) for side in (0, 1))
