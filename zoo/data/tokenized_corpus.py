"""A corpus of sentence pairs in a folder: token ids, tokenizers and the text of the test pairs."""

import itertools
import json
from typing import NamedTuple

from zoo.data.encoded_pairs import EncodedPairs, encode_pairs
from zoo.text.loading import load_tokenizer

VERSION = 1  # of the files, and of how pairs are read, held out and encoded
_SIDES = ("source", "target")


class TokenizedCorpus(NamedTuple):
    """What `write_corpus` has written.

    Fields:
        train, valid: `EncodedPairs`.
        test: list of (source, target), two str.
        skipped: list of str, one line for each kind of pairs that were skipped.
        tokenizers: (source, target), see `zoo.translator.Translator`.
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
        tokenizers: (source, target).
        max_length, special: see `encode_pairs`.
    """
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


def evenly(pairs, count, limit):
    """Every so many pairs, so that about `count` pairs give about `limit` or fewer."""
    return itertools.islice(pairs, 0, None, max(1, -(-count // limit)))
