"""A corpus of sentence pairs in a folder: token ids, tokenizers and the text of the test pairs."""

import hashlib
import itertools
import json
from typing import NamedTuple

from zoo.data.encoded_pairs import EncodedPairs, encode_pairs
from zoo.text.loading import load_tokenizer
from zoo.text.tokenizer import train_tokenizer

VERSION = 1  # of the files, and of how pairs are read, held out and encoded
_TRAINED_ON = 2_000_000  # pairs; with more, training a tokenizer takes long and changes little
_SIDES = ("source", "target")


class TokenizedCorpus(NamedTuple):
    """What `write_corpus` has written.

    Fields:
        train, valid: `EncodedPairs`.
        test: list of (source, target), two str.
        skipped: list of str, one line for each kind of pairs that were skipped.
        tokenizers: (source, target), see `zoo.tasks.translator.Translator`.
    """

    train: EncodedPairs
    valid: EncodedPairs
    test: list
    skipped: list
    tokenizers: tuple


def write_corpus(folder, text, tokenizers, max_length, special):
    """Tokenizes a corpus and writes it to a folder.

    Args:
        folder: `pathlib.Path`.
        text: `zoo.data.parallel_text.ParallelText`.
        tokenizers: (source, target), or a dict of the arguments of `train_tokenizers`.
        max_length, special: see `encode_pairs`.
    """
    if isinstance(tokenizers, dict):
        tokenizers = train_tokenizers(text, **tokenizers)
    for side, tokenizer in zip(_SIDES, tokenizers):
        tokenizer.save(folder / f"{side}_tokenizer.json")
    for name, pairs in (("train", text.train), ("valid", text.valid)):
        encode_pairs(pairs, *tokenizers, folder, max_length, name, special)
    with open(folder / "test.jsonl", "w", encoding="utf-8") as file:
        file.writelines(json.dumps(pair) + "\n" for pair in text.test)
    skipped = [*text.skipped]
    if text.train.left_out:
        reason = "with the translation of a validation or test pair"
        skipped.append(f"{text.train.left_out:,} training pairs {reason}.")
    (folder / "skipped.json").write_text(json.dumps(skipped))


def open_corpus(folder, special):
    """Opens the files that `write_corpus` has written.

    Args:
        folder: `pathlib.Path`.
        special: as passed to `write_corpus`.

    Returns:
        `TokenizedCorpus`.
    """
    with open(folder / "test.jsonl", encoding="utf-8") as file:
        test = [tuple(json.loads(line)) for line in file]
    return TokenizedCorpus(
        *(EncodedPairs(folder / name, special) for name in ("train", "valid")),
        test,
        json.loads((folder / "skipped.json").read_text()),
        tuple(load_tokenizer(folder / f"{side}_tokenizer.json") for side in _SIDES),
    )


def train_tokenizers(text, tokenizer, vocab_size, vocabulary):
    """Trains tokenizers on up to 2 million training pairs, evenly drawn.

    Args:
        text: `zoo.data.parallel_text.ParallelText`.
        tokenizer, vocab_size: see `zoo.text.tokenizer.train_tokenizer`.
        vocabulary: "joint" for one tokenizer of both languages, "separate" for one of each.

    Returns:
        (source, target).
    """
    every = max(1, -(-text.count // _TRAINED_ON))

    def texts(*sides):
        pairs = itertools.islice(text.train, 0, None, every)
        return (pair[side] for pair in pairs for side in sides)

    if vocabulary == "joint":
        return (train_tokenizer(texts(0, 1), tokenizer, vocab_size),) * 2
    return tuple(train_tokenizer(texts(side), tokenizer, vocab_size) for side in (0, 1))


def identity_of(tokenizers):
    """What differs for other tokenizers, given as to `write_corpus`, as JSON can hold it."""
    if isinstance(tokenizers, dict):
        return {**tokenizers, "pairs": _TRAINED_ON}
    tables = json.dumps([side.to_dict() for side in tokenizers], sort_keys=True)
    return hashlib.sha256(tables.encode()).hexdigest()
