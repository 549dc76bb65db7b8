"""Tokenized sentence pairs.

Axes: B rows of a batch, S source and target positions.
"""

import json
import math

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from zoo.data.text_rows import TextDataset, unused
from zoo.data.token_store import Sequences, TokenExamples
from zoo.errors import DataError
from zoo.text.encoding import altered
from zoo.text.layout import has_letter
from zoo.text.saved_tokenizers import load_tokenizer, save_tokenizer
from zoo.text.sentencepiece import normalize, train_tokenizer
from zoo.text.special_tokens import SPECIAL_TOKENS

VERSION = 14  # of the files, and of reading, dividing and encoding pairs
_MAX_PAIRS = 2_000_000  # to train a tokenizer on: more take long and change little
_BLOCK = 2000  # pairs to encode per call


class EncodedPairs(TokenExamples):
    """Tokenized sentence pairs; the length of a pair is the length of its longer side.

    Args:
        sequences: `zoo.data.token_store.Sequences`, the source and target of each pair; a source
            ends with the end token, a target begins with the start token.
        special: `zoo.decoding.SpecialTokens` of the model.
    """

    _ids = tf.TensorSpec((None, None), tf.int32)
    _weights = tf.TensorSpec((None, None), tf.float32)
    signature = ({"source": _ids, "target": _ids}, _ids, _weights)

    def __init__(self, sequences, special=SPECIAL_TOKENS):
        self._special = special
        lengths = np.diff(sequences.offsets).reshape(-1, 2)  # [pairs, 2], source and target
        super().__init__(sequences, lengths.max(axis=1), int(lengths[:, 1].sum()))

    def batch(self, numbers, shape):
        """Returns ({"source", "target"}, labels, weights), each [B, S]; see `TokenExamples`.

        Targets begin with the start token, labels end with the end token.
        """
        sources = 2 * numbers.astype(np.int64)  # the numbers of the sequences
        targets = sources + 1
        pad = self._special.pad
        source = self.sequences.padded(sources, shape, pad)  # [B, S]
        target = self.sequences.padded(targets, shape, pad)  # [B, S]
        lengths = self.sequences.lengths(targets)
        labels = np.full(shape, pad, np.int32)
        labels[:, :-1] = target[:, 1:]
        labels[np.arange(len(numbers)), lengths - 1] = self._special.end
        weights = np.zeros(shape, np.float32)
        weights[: len(numbers)] = np.arange(shape[1]) < lengths[:, None]
        return {"source": source, "target": target}, labels, weights


def encode_pairs(
    pairs, source_tokenizer, target_tokenizer, max_length, name, special=SPECIAL_TOKENS
):
    """Tokenizes sentence pairs: `EncodedPairs`.

    Args:
        pairs: list of (source, target), two str.
        source_tokenizer, target_tokenizer: see `zoo.tasks.translator.Translator`.
        max_length: maximum number of tokens of a source or target, including control ids; pairs
            with a longer side are left out.
        name: name of the split, such as "train".
        special: `zoo.decoding.SpecialTokens` of the model; the labels of each pair begin with its
            `prefix`.

    Raises:
        DataError: if there are no pairs, or all are too long.
    """
    beginning = [special.start, *special.prefix]  # of a target

    def encoded():
        """Yields the source and the target of each pair that is not too long."""
        starts = range(0, len(pairs), _BLOCK)
        for start in tqdm(starts, f"encoding {name}", leave=False, disable=None):
            block = pairs[start : start + _BLOCK]
            sources = source_tokenizer.encode([source for source, _ in block])
            targets = target_tokenizer.encode([target for _, target in block])
            for source, target in zip(sources, targets):
                source = [*source, special.end]
                target = [*beginning, *target]
                if max(len(source), len(target)) <= max_length:
                    yield source
                    yield target

    sequences = Sequences.concatenated(encoded())
    if len(sequences.offsets) == 1:
        raise DataError(
            f"The {name} split has {len(pairs):,} sentence pairs, none of at most {max_length} "
            "tokens. Increase --max-length."
        )
    return EncodedPairs(sequences, special)


def write_corpus(folder, text, tokenizers, max_length, special):
    """Tokenizes the pairs of a `TextDataset`, see `encode_pairs`, and writes them to a folder.

    The folder must exist. `tokenizers` are (source, target).
    """
    source_tokenizer, target_tokenizer = tokenizers
    save_tokenizer(source_tokenizer, folder, "source")
    save_tokenizer(target_tokenizer, folder, "target")
    notes = text.notes
    for name, pairs in (("train", text.train), ("valid", text.valid)):
        encoded = encode_pairs(pairs, source_tokenizer, target_tokenizer, max_length, name, special)
        (folder / name).mkdir()
        encoded.sequences.save(folder / name)
        reason = f"{name} pairs with more than {max_length} tokens"
        notes += unused(len(pairs) - len(encoded), reason)
    references = [target for _, target in text.test]
    notes += altered(target_tokenizer, references, "test references, which are scored as they are")
    texts = {
        "test": text.test,
        "notes": notes,
        "seed": text.seed,
        "teachers": text.teachers,
        "keeps numbers": keeps_numbers(text.train),
    }
    (folder / "texts.json").write_text(json.dumps(texts))


def load_corpus(folder, special):
    """Opens a folder that `write_corpus` wrote; the token ids are memory-mapped.

    Returns:
        `TextDataset`, whose training and validation pairs are `EncodedPairs`; and the tokenizers,
        (source, target).

    Raises:
        DataError: if a file is missing or damaged.
    """
    try:
        texts = json.loads((folder / "texts.json").read_text())
        data = TextDataset(
            train=EncodedPairs(Sequences.load(folder / "train"), special),
            valid=EncodedPairs(Sequences.load(folder / "valid"), special),
            test=[(source, target) for source, target in texts["test"]],
            notes=tuple(texts["notes"]),
            seed=texts["seed"],
            teachers=texts["teachers"],
            keeps_numbers=texts["keeps numbers"],
        )
        tokenizers = (load_tokenizer(folder, "source"), load_tokenizer(folder, "target"))
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        reason = str(error).removesuffix(".")
        raise DataError(
            f"{folder} is damaged: {reason}. Delete it, and run the command again."
        ) from None
    return data, tokenizers


def keeps_numbers(pairs):
    """Whether most sources without a letter, such as numbers, are their own translation."""
    same = [source == target for source, target in pairs if not has_letter(source)]
    return 2 * sum(same) >= len(same)


def train_tokenizers(text, tokenizer, vocab_size, normalization, target_normalization, vocabulary):
    """Trains tokenizers on up to 2 million evenly spaced training pairs.

    Args:
        text: `TextDataset` of pairs.
        tokenizer, vocab_size: see `zoo.text.sentencepiece.train_tokenizer`.
        normalization, target_normalization: of sources and targets, see the same function.
        vocabulary: "joint" for the same ids in both languages, or "separate".

    Returns:
        (source tokenizer, target tokenizer).
    """
    sources, targets = zip(*text.train[:: math.ceil(len(text.train) / _MAX_PAIRS)])
    if vocabulary == "separate":
        return (
            train_tokenizer(sources, tokenizer, vocab_size, normalization),
            train_tokenizer(targets, tokenizer, vocab_size, target_normalization),
        )
    pairs = zip(normalize(sources, normalization), targets)
    lines = [line for pair in pairs for line in pair]
    joint = train_tokenizer(lines, tokenizer, vocab_size, target_normalization)
    return joint.with_normalization(normalization), joint
