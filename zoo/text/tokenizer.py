"""Subword, word and character tokenizers; text outside the vocabulary is encoded as bytes.

All kinds use the same vocabulary layout: the control ids, the 256 bytes, then the learned tokens.
Sources: Sennrich et al. 2016, "Neural Machine Translation of Rare Words with Subword Units",
section 3.2 (merges); Radford et al. 2019, "Language Models are Unsupervised Multitask Learners",
section 2.2 (on bytes). Both are implemented by the library `tokenizers`.
"""

import dataclasses
import functools
import itertools
import json
import operator
import pathlib
import unicodedata

import numpy as np
import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from zoo.errors import UserError
from zoo.text import BOS_ID, EOS_ID, PAD_ID

_WORDS = (
    r" ?[\p{L}\p{M}]+| ?\p{N}+| ?[^ \t\n\r\f\v\p{L}\p{M}\p{N}]+"
    # Spaces are split one by one, so a word after two spaces is still one space and the word.
    r"|[ \t\n\r\f\v]"
)
# The patterns that split text. They have the same meaning in RE2, so a TensorFlow graph can split
# text in the same places; only letters and digits newer than the Unicode tables of one of the two
# libraries may differ.
SPLIT_PATTERNS = {"subword": _WORDS, "word": _WORDS, "character": r"[^\n]|\n"}
_CONTROL = {PAD_ID: "<pad>", BOS_ID: "<s>", EOS_ID: "</s>"}
_SMALLEST = len(_CONTROL) + 256
_VERSION = 1  # of the split patterns and the file format


class TokenizerError(UserError):
    """Invalid text, ids or tokenizer file; the message says which and why."""


def _byte_alphabet():
    """The character that represents each byte, as in GPT-2: printable bytes map to themselves."""
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = itertools.count(0x100)
    return "".join(chr(byte if byte in visible else next(others)) for byte in range(256))


BYTE_ALPHABET = _byte_alphabet()
_BYTES = {character: byte for byte, character in enumerate(BYTE_ALPHABET)}


@dataclasses.dataclass(frozen=True)
class Tokenizer:
    """Encodes text to ids and decodes ids to text.

    Created by `train_tokenizer`, `Tokenizer.load` or `Tokenizer.from_dict`.

    Ids: PAD_ID, BOS_ID and EOS_ID, which `encode` never returns; 3 + the value of a byte; then
    `tokens`. Text is NFC-normalised and prefixed with a space, so that its first word gets the same
    tokens as elsewhere; `decode` removes the space. The round trip is exact up to NFC.

    Args:
        kind: "subword", "word" or "character".
        tokens: the learned tokens in the order of ids, written in `BYTE_ALPHABET`.
        merges: pairs (left, right) of tokens to merge, by priority; for "subword" only.

    Raises:
        TokenizerError: if the kind is unknown or the table is inconsistent.
    """

    kind: str
    tokens: tuple[str, ...]
    merges: tuple[tuple[str, str], ...] = ()

    def __post_init__(self):
        _check_kind(self.kind)
        known = {*BYTE_ALPHABET, *self.tokens}
        for token in self.tokens:
            if len(token) < 2 or not _BYTES.keys() >= set(token):
                raise TokenizerError(f"{token!r} is not a token of two or more bytes.")
        if len(known) != 256 + len(self.tokens):
            raise TokenizerError("A token occurs twice in the table.")
        if self.merges and self.kind != "subword":
            raise TokenizerError(f'Only "subword" has merges, not "{self.kind}".')
        for left, right in self.merges:
            if not known >= {left, right, left + right}:
                raise TokenizerError(f"The merge of {left!r} and {right!r} uses unknown tokens.")

    @property
    def vocab_size(self):
        """Number of ids, including control ids and bytes."""
        return _SMALLEST + len(self.tokens)

    def encode(self, texts):
        """Encodes texts, without control ids.

        Args:
            texts: list of str.

        Returns:
            A list of ids (int) for each text; an empty list for an empty text.

        Raises:
            TokenizerError: if `texts` is one str, or an item is not a str or has a lone surrogate.
        """
        return [encoding.ids for encoding in self._library.encode_batch_fast([*_prepared(texts)])]

    def decode(self, ids):
        """Decodes sequences of ids; control ids are skipped.

        Args:
            ids: a sequence of integers in [0, vocab_size) per text: lists, an array or a tensor.

        Returns:
            list of str. Invalid UTF-8 is replaced by U+FFFD.

        Raises:
            TokenizerError: if an id is not in the vocabulary, or an item is not a sequence of ids.
        """
        return [
            b"".join([self._bytes[id] for id in self._checked(sequence)])
            .removeprefix(b" ")
            .decode(errors="replace")
            for sequence in ids
        ]

    def pieces(self, ids):
        """Returns a label for each id of one sequence: its text, "<0xE2>" for a byte, or "</s>"."""
        return [_CONTROL.get(id) or _label(self._bytes[id]) for id in self._checked(ids)]

    def to_dict(self):
        """Returns the table as a dict that can be stored as JSON.

        Keys: `version`, 1; `kind`; `tokens`, a list of str written in `BYTE_ALPHABET`; `merges`, a
        list of str "left right". The first of `tokens` has id 259.
        """
        merges = [f"{left} {right}" for left, right in self.merges]
        tokens = [*self.tokens]
        return {"version": _VERSION, "kind": self.kind, "tokens": tokens, "merges": merges}

    @classmethod
    def from_dict(cls, table):
        """The inverse of `to_dict`; raises `TokenizerError` if the table is invalid."""
        if not isinstance(table, dict) or not {"version", "kind", "tokens", "merges"} <= {*table}:
            raise TokenizerError("It must have the keys version, kind, tokens and merges.")
        if table["version"] != _VERSION:
            raise TokenizerError(
                f"Its version is {table['version']!r}. Supported is version {_VERSION}."
            )
        for name in ("tokens", "merges"):
            strings = table[name]
            if not isinstance(strings, list) or not all(isinstance(s, str) for s in strings):
                raise TokenizerError(f"Its {name} must be a list of strings.")
        merges = tuple(tuple(merge.split(" ")) for merge in table["merges"])
        if any(len(merge) != 2 for merge in merges):
            raise TokenizerError("Each of its merges must be two tokens separated by a space.")
        return cls(table["kind"], tuple(table["tokens"]), merges)

    def save(self, path):
        """Writes the table to a JSON file."""
        text = json.dumps(self.to_dict(), ensure_ascii=False, indent=0)
        pathlib.Path(path).write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path):
        """Loads a file that `save` wrote; raises `TokenizerError` if it is invalid."""
        try:
            return cls.from_dict(json.loads(pathlib.Path(path).read_text(encoding="utf-8")))
        except OSError as error:
            raise TokenizerError(
                f"The tokenizer {path} cannot be read: {error.strerror}."
            ) from None
        except (ValueError, RecursionError) as error:  # invalid JSON, UTF-8 or table
            raise TokenizerError(f"{path} is not a valid tokenizer file: {error}") from None

    @functools.cached_property
    def _library(self):
        # Control ids are left out, so that the text "</s>" is encoded as ordinary text.
        strings = enumerate((*BYTE_ALPHABET, *self.tokens), start=len(_CONTROL))
        model = models.BPE(
            vocab={string: id for id, string in strings},
            merges=[*self.merges],
            ignore_merges=self.kind != "subword",
        )
        return _library_tokenizer(model, self.kind)

    @functools.cached_property
    def _bytes(self):
        """The bytes of each id; empty for control ids."""
        learned = [bytes(_BYTES[character] for character in token) for token in self.tokens]
        return [*[b""] * len(_CONTROL), *(bytes([byte]) for byte in range(256)), *learned]

    def _checked(self, ids):
        """Validates one sequence of ids and returns it as a list of int."""
        try:
            ids = np.asarray(ids).tolist() if hasattr(ids, "__array__") else ids
            ids = [operator.index(id) for id in ids]
        except TypeError:
            raise TokenizerError(
                f"Ids must be a sequence of integers for each text. Received: {ids!r:.80}."
            ) from None
        if ids and not 0 <= min(ids) <= max(ids) < self.vocab_size:
            wrong = next(id for id in ids if not 0 <= id < self.vocab_size)
            raise TokenizerError(
                f"The id {wrong} is not in the vocabulary, which has {self.vocab_size} ids. "
                "Check that this is the tokenizer that the model was trained with."
            )
        return ids


def train_tokenizer(lines, kind="subword", vocab_size=8000):
    """Trains a tokenizer. The result does not depend on the order of the lines.

    - "subword": byte-pair encoding within words, numbers and punctuation.
    - "word": the most frequent words, each with the space before it.
    - "character": the most frequent Unicode characters.

    Args:
        lines: iterable of str, iterated once; only counts are kept in memory.
        kind: "subword", "word" or "character".
        vocab_size: maximum number of ids; a small corpus gives fewer.

    Raises:
        TokenizerError: if the kind is unknown, the size is below 3 + 256 or there is no text.
    """
    _check_kind(kind)
    if not isinstance(vocab_size, int) or vocab_size < _SMALLEST:
        raise TokenizerError(
            f"vocab_size must be an integer of at least {_SMALLEST}, the number of control ids and "
            f"bytes. Received: {vocab_size}."
        )
    texts = filter(None, _prepared(lines))
    first = next(texts, None)
    if first is None:
        raise TokenizerError("There is no text to train a tokenizer on: all lines are empty.")
    if kind == "subword":
        model = models.BPE()
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size - len(_CONTROL),
            min_frequency=2,  # a pair that occurs once is noise
            initial_alphabet=[*BYTE_ALPHABET],
            show_progress=False,
        )
    else:  # ties in frequency are broken alphabetically
        model = models.WordLevel()
        trainer = trainers.WordLevelTrainer(vocab_size=vocab_size, show_progress=False)
    learner = _library_tokenizer(model, kind)
    learner.train_from_iterator(itertools.chain([first], texts), trainer)
    learned = json.loads(learner.to_str())["model"]
    tokens = [token for token in sorted(learned["vocab"], key=learned["vocab"].get) if token[1:]]
    merges = tuple((left, right) for left, right in learned.get("merges", ()))
    return Tokenizer(kind, tuple(tokens[: vocab_size - _SMALLEST]), merges)


def _library_tokenizer(model, kind):
    """Builds the library's tokenizer: splits by the kind's pattern, then into bytes."""
    tokenizer = tokenizers.Tokenizer(model)
    pattern = tokenizers.Regex(SPLIT_PATTERNS[kind])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(pattern, "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return tokenizer


def _check_kind(kind):
    if not isinstance(kind, str) or kind not in SPLIT_PATTERNS:
        raise TokenizerError(
            f"There is no tokenizer of kind {kind!r}. The kinds are: {', '.join(SPLIT_PATTERNS)}."
        )


def _prepared(texts):
    """Validates texts, normalises them to NFC and prefixes a space; empty texts stay empty."""
    if isinstance(texts, (str, bytes)):
        raise TokenizerError("texts must be a list. Pass [text] for one text.")
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise TokenizerError(
                f"Each text must be a str. Item {index} is of type {type(text).__name__}."
            )
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise TokenizerError(
                f"Item {index} is not valid Unicode: {error.reason} at character {error.start}. "
                "Check the encoding with which it was read."
            ) from None
        yield f" {unicodedata.normalize('NFC', text)}" if text else ""


def _label(piece):
    text = piece.decode(errors="replace")
    if text.isprintable() and "\ufffd" not in text:
        return text
    return "".join(f"<0x{byte:02X}>" for byte in piece)
