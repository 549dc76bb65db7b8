"""Tokenized sentence pairs.

Axes: B rows of a batch, S source positions, T target positions, n pairs.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from zoo.data.token_store import Sequences, by_length
from zoo.errors import DataError
from zoo.text.sentencepiece import train_tokenizer
from zoo.text.special_tokens import SPECIAL_TOKENS

_MAX_PAIRS = 2_000_000  # to train a tokenizer on: more take long and change little
_BLOCK = 2000  # pairs to encode per call


class EncodedPairs:
    """Tokenized sentence pairs.

    The length of a pair is that of its longer side, including the end token.

    Args:
        pairs: list of (source, target), two str.
        source_tokenizer, target_tokenizer: see `zoo.tasks.translator.Translator`.
        max_length: maximum number of tokens of a source or target, including control ids; pairs
            with a longer side are skipped and counted.
        name: name of the split, such as "train".
        special: `zoo.decoding.SpecialTokens` of the model; its `first`, if any, is the first label
            of each pair.

    Attributes:
        longest_first: uint32 [n], the pairs by descending length.
        length_counts: int64 [longest + 1], number of pairs of each length.
        skipped: number of pairs that were skipped because they were too long.
        num_tokens: number of labels in an epoch.
        signature: `tf.TensorSpec` of the outputs of `batch`.

    Raises:
        DataError: if there are no pairs, or all are too long.
    """

    _ids, _weights = (tf.TensorSpec((None, None), dtype) for dtype in (tf.int32, tf.float32))
    signature = ({"source": _ids, "target": _ids}, _ids, _weights)

    def __init__(
        self,
        pairs,
        source_tokenizer,
        target_tokenizer,
        max_length,
        name,
        special=SPECIAL_TOKENS,
    ):
        self._special, self.skipped = special, 0
        first = [special.start] + ([] if special.first is None else [special.first])

        def encoded():
            """Yields the source and the target of each pair that is not too long."""
            starts = range(0, len(pairs), _BLOCK)
            for start in tqdm(starts, f"encoding {name}", leave=False, disable=None):
                sources, targets = map(list, zip(*pairs[start : start + _BLOCK]))
                ids = zip(source_tokenizer.encode(sources), target_tokenizer.encode(targets))
                for source, target in ids:
                    pair = [*source, special.end], [*first, *target]
                    if max(map(len, pair)) <= max_length:
                        yield from pair
                    else:
                        self.skipped += 1

        self._sides = Sequences.concatenated(encoded())  # the source and target of each pair
        lengths = np.diff(self._sides.offsets).reshape(-1, 2)
        if not len(lengths):
            raise DataError(
                f"The {name} split has {len(pairs):,} sentence pairs, none of at most {max_length} "
                "tokens. Increase --max-length."
            )
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
        source, target = (self._sides.padded(2 * pairs + side, shape, pad) for side in (0, 1))
        labels, lengths = np.full(shape, pad, np.int32), self._sides.lengths(2 * pairs + 1)
        labels[:, :-1] = target[:, 1:]
        labels[np.arange(len(pairs)), lengths - 1] = self._special.end
        weights = np.zeros(shape, np.float32)
        weights[: len(pairs)] = np.arange(shape[1]) < lengths[:, None]
        return {"source": source, "target": target}, labels, weights


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


def tokenize_corpus(text, tokenizers, max_length, special):
    """Tokenizes sentence pairs, `zoo.data.text_rows.Divided`.

    The tokenizers are (source, target), or a dict of the arguments of `train_tokenizers`. For
    `max_length` and `special` see `EncodedPairs`.

    Returns:
        `TokenizedCorpus`.
    """
    if isinstance(tokenizers, dict):
        tokenizers = train_tokenizers(text, **tokenizers)
    train = EncodedPairs(text.train, *tokenizers, max_length, "train", special)
    valid = EncodedPairs(text.valid, *tokenizers, max_length, "valid", special)
    skipped = {
        "training pairs that are validation or test pairs, or have the translation of one that was "
        "held out": text.left_out,
        "pairs without a source or a target": text.empty,
        f"training pairs with more than {max_length} tokens": train.skipped,
        f"validation pairs with more than {max_length} tokens": valid.skipped,
    }
    skipped = [f"{count:,} {reason}." for reason, count in skipped.items() if count]
    return TokenizedCorpus(train, valid, text.test, skipped, tokenizers)


def train_tokenizers(text, tokenizer, vocab_size, normalization, vocabulary):
    """Trains tokenizers, (source, target), on up to 2 million evenly spaced training pairs.

    The vocabulary is "joint" for one tokenizer of both languages, or "separate" for one of each.
    """
    pairs = text.train[:: -(-len(text.train) // _MAX_PAIRS)]

    settings = (tokenizer, vocab_size, normalization)
    if vocabulary == "joint":
        return (train_tokenizer([text for pair in pairs for text in pair], *settings),) * 2
    return tuple(train_tokenizer(side, *settings) for side in zip(*pairs))
