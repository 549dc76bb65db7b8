"""Tokenized sentence pairs.

Axes: B rows of a batch, S source positions, T target positions, n pairs.
"""

import json
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from zoo.data.token_store import Sequences, by_length
from zoo.errors import DataError
from zoo.text.saved_tokenizers import load_tokenizer, save_tokenizer
from zoo.text.sentencepiece import train_tokenizer
from zoo.text.special_tokens import SPECIAL_TOKENS

VERSION = 6  # of the files, and of reading, dividing and encoding pairs
_MAX_PAIRS = 2_000_000  # to train a tokenizer on: more take long and change little
_BLOCK = 2000  # pairs to encode per call


class EncodedPairs:
    """Tokenized sentence pairs.

    The length of a pair is that of its longer side, including the end token.

    Args:
        sides: `zoo.data.token_store.Sequences`, the source and target of each pair; a source ends
            with the end token, a target begins with the start token.
        special: `zoo.decoding.SpecialTokens` of the model.
        skipped: number of pairs that were skipped because they were too long.

    Attributes:
        sides, skipped: as given.
        longest_first: uint32 [n], the pairs by descending length.
        length_counts: int64 [longest + 1], number of pairs of each length.
        num_tokens: number of labels in an epoch.
        signature: `tf.TensorSpec` of the outputs of `batch`.
    """

    _ids, _weights = (tf.TensorSpec((None, None), dtype) for dtype in (tf.int32, tf.float32))
    signature = ({"source": _ids, "target": _ids}, _ids, _weights)

    def __init__(self, sides, special=SPECIAL_TOKENS, skipped=0):
        self.sides, self._special, self.skipped = sides, special, skipped
        lengths = np.diff(sides.offsets).reshape(-1, 2)
        self.longest_first, self.length_counts = by_length(lengths.max(axis=1))
        self.num_tokens = int(lengths[:, 1].sum())

    def __len__(self):
        return len(self.longest_first)

    def batch(self, pairs, shape):
        """Builds a batch of the `shape` (B, S) of up to B pairs, given by their indices.

        Returns ({"source": int32 [B, S], "target": int32 [B, T]}, labels int32 [B, T], weights
        float32 [B, T], 1 for each label), where T is S. Targets begin with the start token, labels
        end with the end token; the other rows are padding.
        """
        pairs, pad = pairs.astype(np.int64), self._special.pad
        source, target = (self.sides.padded(2 * pairs + side, shape, pad) for side in (0, 1))
        labels, lengths = np.full(shape, pad, np.int32), self.sides.lengths(2 * pairs + 1)
        labels[:, :-1] = target[:, 1:]
        labels[np.arange(len(pairs)), lengths - 1] = self._special.end
        weights = np.zeros(shape, np.float32)
        weights[: len(pairs)] = np.arange(shape[1]) < lengths[:, None]
        return {"source": source, "target": target}, labels, weights


def encode_pairs(
    pairs, source_tokenizer, target_tokenizer, max_length, name, special=SPECIAL_TOKENS
):
    """Tokenizes sentence pairs.

    Args:
        pairs: list of (source, target), two str.
        source_tokenizer, target_tokenizer: see `zoo.tasks.translator.Translator`.
        max_length: maximum number of tokens of a source or target, including control ids; pairs
            with a longer side are skipped and counted.
        name: name of the split, such as "train".
        special: `zoo.decoding.SpecialTokens` of the model; its `first`, if any, is the first label
            of each pair.

    Returns:
        `EncodedPairs`.

    Raises:
        DataError: if there are no pairs, or all are too long.
    """
    first = [special.start] + ([] if special.first is None else [special.first])

    def encoded():
        """Yields the source and the target of each pair that is not too long."""
        starts = range(0, len(pairs), _BLOCK)
        for start in tqdm(starts, f"encoding {name}", leave=False, disable=None):
            sources, targets = map(list, zip(*pairs[start : start + _BLOCK]))
            for source, target in zip(
                source_tokenizer.encode(sources), target_tokenizer.encode(targets)
            ):
                pair = [*source, special.end], [*first, *target]
                if max(map(len, pair)) <= max_length:
                    yield from pair

    sides = Sequences.concatenated(encoded())
    if len(sides.offsets) == 1:
        raise DataError(
            f"The {name} split has {len(pairs):,} sentence pairs, none of at most {max_length} "
            "tokens. Increase --max-length."
        )
    return EncodedPairs(sides, special, len(pairs) - len(sides.offsets) // 2)


class TokenizedCorpus(NamedTuple):
    """Tokenized training and validation pairs, and the test pairs.

    Fields:
        train, valid: `EncodedPairs`.
        test: list of (source, target), two str.
        skipped: list of str, a line for each reason why pairs were skipped.
        tokenizers: (source, target), see `zoo.tasks.translator.Translator`.
    """

    train: EncodedPairs
    valid: EncodedPairs
    test: list
    skipped: list[str]
    tokenizers: tuple

    @classmethod
    def load(cls, folder, special):
        """Opens a folder that `write_corpus` wrote; the token ids are memory-mapped."""
        texts = json.loads((folder / "texts.json").read_text())
        parts = (
            EncodedPairs(Sequences.load(folder / name), special, texts["too_long"][name])
            for name in ("train", "valid")
        )
        tokenizers = tuple(load_tokenizer(folder, side) for side in ("source", "target"))
        return cls(*parts, [tuple(pair) for pair in texts["test"]], texts["skipped"], tokenizers)


def write_corpus(folder, text, tokenizers, max_length, special):
    """Tokenizes sentence pairs, `zoo.data.text_rows.Divided`, and writes them to a folder.

    The tokenizers are (source, target), or a dict of the arguments of `train_tokenizers`. For
    `max_length` and `special` see `encode_pairs`.
    """
    if isinstance(tokenizers, dict):
        tokenizers = train_tokenizers(text, **tokenizers)
    for side, tokenizer in zip(("source", "target"), tokenizers):
        save_tokenizer(tokenizer, folder, side)
    too_long = {}
    skipped = {
        "training pairs that are validation or test pairs, or have the translation of one that was "
        "held out": text.left_out,
        "pairs without a source or a target": text.empty,
    }
    for name, kind in (("train", "training"), ("valid", "validation")):
        encoded = encode_pairs(getattr(text, name), *tokenizers, max_length, name, special)
        (folder / name).mkdir()
        encoded.sides.save(folder / name)
        too_long[name] = encoded.skipped
        skipped[f"{kind} pairs with more than {max_length} tokens"] = encoded.skipped
    skipped = [f"{count:,} {reason}." for reason, count in skipped.items() if count]
    texts = {"test": text.test, "skipped": skipped, "too_long": too_long}
    (folder / "texts.json").write_text(json.dumps(texts))


def train_tokenizers(text, tokenizer, vocab_size, normalization, vocabulary):
    """Trains tokenizers, (source, target), on up to 2 million evenly spaced training pairs.

    The vocabulary is "joint" for one tokenizer of both languages, or "separate" for one of each.
    """
    pairs = text.train[:: -(-len(text.train) // _MAX_PAIRS)]

    settings = (tokenizer, vocab_size, normalization)
    if vocabulary == "joint":
        return (train_tokenizer([text for pair in pairs for text in pair], *settings),) * 2
    return tuple(train_tokenizer(side, *settings) for side in zip(*pairs))
