"""Text to ids and back, by subwords, words or characters; what is unknown is spelled in bytes.

Every kind is a table of one form: the control ids, the 256 bytes, then what was learned.
Sources: Sennrich et al. 2016, "Neural Machine Translation of Rare Words with Subword Units",
section 3.2 (merges); Radford et al. 2019, "Language Models are Unsupervised Multitask Learners",
section 2.2 (on bytes). The library `tokenizers` does both.
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
    # One by one: after two spaces a word is still a space and the word.
    r"|[ \t\n\r\f\v]"
)
# Where each kind cuts text. Nothing in them means one thing here and another in RE2, so that a
# TensorFlow graph can cut in the same places; only letters and digits that are newer than the
# Unicode tables of one of the two may differ.
SPLIT_PATTERNS = {"subword": _WORDS, "word": _WORDS, "character": r"[^\n]|\n"}
_CONTROL = {PAD_ID: "<pad>", BOS_ID: "<s>", EOS_ID: "</s>"}
_SMALLEST = len(_CONTROL) + 256
_VERSION = 1  # of the split patterns and of the saved form


class TokenizerError(UserError):
    """Text, ids or a file that a tokenizer cannot take; the message says which and why."""


def _byte_alphabet():
    """The character that stands for each byte, as in GPT-2: visible ones for themselves."""
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = itertools.count(0x100)
    return "".join(chr(byte if byte in visible else next(others)) for byte in range(256))


BYTE_ALPHABET = _byte_alphabet()
_BYTES = {character: byte for byte, character in enumerate(BYTE_ALPHABET)}


@dataclasses.dataclass(frozen=True)
class Tokenizer:
    """Text to ids and back. Made by `train_tokenizer`, `Tokenizer.load` or `from_dict`.

    Ids: PAD_ID, BOS_ID, EOS_ID, which no text gives; then 3 + the value of a byte; then `tokens`.
    Text is NFC-normalised and gets one space in front, so that its first word is the word it is
    elsewhere; `decode` takes the space away. The round trip is exact up to NFC for every text.

    Args:
        kind: "subword", "word" or "character".
        tokens: what was learned, in the order of ids, in the letters of `BYTE_ALPHABET`.
        merges: pairs (left, right) of tokens to join, the first one first; "subword" alone has any.

    Raises:
        TokenizerError: if the kind is unknown or the table contradicts itself.
    """

    kind: str
    tokens: tuple[str, ...]
    merges: tuple[tuple[str, str], ...] = ()

    def __post_init__(self):
        _check_kind(self.kind)
        known = {*BYTE_ALPHABET, *self.tokens}
        for token in self.tokens:
            if len(token) < 2 or not _BYTES.keys() >= set(token):
                raise TokenizerError(f"{token!r} is no token of two or more bytes.")
        if len(known) != 256 + len(self.tokens):
            raise TokenizerError("A token occurs twice in the table.")
        if self.merges and self.kind != "subword":
            raise TokenizerError(f'Only "subword" has merges, not "{self.kind}".')
        for left, right in self.merges:
            if not known >= {left, right, left + right}:
                raise TokenizerError(f"The merge of {left!r} and {right!r} is not of known tokens.")

    @property
    def vocab_size(self):
        """Number of ids: control ids, bytes and learned tokens."""
        return _SMALLEST + len(self.tokens)

    def encode(self, texts):
        """Ids of each text, without control ids.

        Args:
            texts: list of str.

        Returns:
            A list of ids (int) for each text; the empty text has none.

        Raises:
            TokenizerError: if `texts` is one str, or an item is no str or holds a lone surrogate.
        """
        return [encoding.ids for encoding in self._library.encode_batch_fast([*_prepared(texts)])]

    def decode(self, ids):
        """The text of each sequence of ids; control ids are left out.

        Args:
            ids: a sequence of integers in [0, vocab_size) for each text: lists, an array, a tensor.

        Returns:
            list of str. Bytes that are not UTF-8 become U+FFFD.

        Raises:
            TokenizerError: if an id is not in the vocabulary, or `ids` has no sequences of ids.
        """
        return [
            b"".join([self._bytes[id] for id in self._checked(sequence)])
            .removeprefix(b" ")
            .decode(errors="replace")
            for sequence in ids
        ]

    def pieces(self, ids):
        """A label to show for each id of one sequence: its text, "<0xE2>" for a byte, "</s>"."""
        return [_CONTROL.get(id) or _label(self._bytes[id]) for id in self._checked(ids)]

    def to_dict(self):
        """The table as JSON can hold it.

        `version` 1; `kind`; `tokens`, a list of str in the letters of `BYTE_ALPHABET`; `merges`, a
        list of str "left right". Id 259 is the first of `tokens`.
        """
        merges = [f"{left} {right}" for left, right in self.merges]
        tokens = [*self.tokens]
        return {"version": _VERSION, "kind": self.kind, "tokens": tokens, "merges": merges}

    @classmethod
    def from_dict(cls, table):
        """The opposite of `to_dict`; raises `TokenizerError` if that did not make it."""
        if not isinstance(table, dict) or not {"version", "kind", "tokens", "merges"} <= {*table}:
            raise TokenizerError("A tokenizer has version, kind, tokens and merges.")
        if table["version"] != _VERSION:
            raise TokenizerError(
                f"Its version is {table['version']!r}; this zoo reads version {_VERSION}."
            )
        for name in ("tokens", "merges"):
            strings = table[name]
            if not isinstance(strings, list) or not all(isinstance(s, str) for s in strings):
                raise TokenizerError(f"Its {name} are no list of strings.")
        merges = tuple(tuple(merge.split(" ")) for merge in table["merges"])
        if any(len(merge) != 2 for merge in merges):
            raise TokenizerError("Each of its merges should be two tokens with a space between.")
        return cls(table["kind"], tuple(table["tokens"]), merges)

    def save(self, path):
        """Writes the table to a JSON file."""
        text = json.dumps(self.to_dict(), ensure_ascii=False, indent=0)
        pathlib.Path(path).write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path):
        """Reads what `save` wrote; raises `TokenizerError` if it cannot."""
        try:
            return cls.from_dict(json.loads(pathlib.Path(path).read_text(encoding="utf-8")))
        except OSError as error:
            raise TokenizerError(
                f"The tokenizer {path} cannot be read: {error.strerror}."
            ) from None
        except (ValueError, RecursionError) as error:  # of JSON, of UTF-8, of the table
            raise TokenizerError(f"{path} is no tokenizer that zoo saved: {error}") from None

    @functools.cached_property
    def _library(self):
        # Control ids are not in it: text that reads "</s>" is text.
        strings = enumerate((*BYTE_ALPHABET, *self.tokens), start=len(_CONTROL))
        model = models.BPE(
            vocab={string: id for id, string in strings},
            merges=[*self.merges],
            ignore_merges=self.kind != "subword",
        )
        return _library_tokenizer(model, self.kind)

    @functools.cached_property
    def _bytes(self):
        """What each id stands for; nothing for control ids."""
        learned = [bytes(_BYTES[character] for character in token) for token in self.tokens]
        return [*[b""] * len(_CONTROL), *(bytes([byte]) for byte in range(256)), *learned]

    def _checked(self, ids):
        """One sequence of ids, as a list of int."""
        try:
            ids = np.asarray(ids).tolist() if hasattr(ids, "__array__") else ids
            ids = [operator.index(id) for id in ids]
        except TypeError:
            raise TokenizerError(
                f"Ids are whole numbers in a sequence for each text. Received: {ids!r:.80}."
            ) from None
        if ids and not 0 <= min(ids) <= max(ids) < self.vocab_size:
            wrong = next(id for id in ids if not 0 <= id < self.vocab_size)
            raise TokenizerError(
                f"The id {wrong} is not in the vocabulary, which has {self.vocab_size} ids. "
                "Is this the tokenizer that the model was trained with?"
            )
        return ids


def train_tokenizer(lines, kind="subword", vocab_size=8000):
    """Learns a tokenizer from text. The same lines, in any order, give the same tokenizer.

    - "subword": merges of pairs that are frequent within words, numbers and punctuation.
    - "word": the most frequent whole ones, each with the space before it.
    - "character": the most frequent Unicode characters.

    Args:
        lines: iterable of str, gone through once; only counts are kept.
        kind: "subword", "word" or "character".
        vocab_size: largest number of ids; little text gives fewer.

    Raises:
        TokenizerError: if the kind is unknown, the size is below 3 + 256 or there is no text.
    """
    _check_kind(kind)
    if not isinstance(vocab_size, int) or vocab_size < _SMALLEST:
        raise TokenizerError(
            f"vocab_size must be a whole number from {_SMALLEST}: {len(_CONTROL)} control ids and "
            f"256 bytes come before what is learned. Received: {vocab_size}."
        )
    texts = filter(None, _prepared(lines))
    first = next(texts, None)
    if first is None:
        raise TokenizerError("There is no text to learn a tokenizer from: no line, or all empty.")
    if kind == "subword":
        model = models.BPE()
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size - len(_CONTROL),
            min_frequency=2,  # a pair met once says nothing of the language
            initial_alphabet=[*BYTE_ALPHABET],
            show_progress=False,
        )
    else:  # counts pieces; of equally frequent ones the first in the alphabet is kept
        model = models.WordLevel()
        trainer = trainers.WordLevelTrainer(vocab_size=vocab_size, show_progress=False)
    learner = _library_tokenizer(model, kind)
    learner.train_from_iterator(itertools.chain([first], texts), trainer)
    learned = json.loads(learner.to_str())["model"]
    tokens = [token for token in sorted(learned["vocab"], key=learned["vocab"].get) if token[1:]]
    merges = tuple((left, right) for left, right in learned.get("merges", ()))
    return Tokenizer(kind, tuple(tokens[: vocab_size - _SMALLEST]), merges)


def _library_tokenizer(model, kind):
    """The library's tokenizer that cuts as this kind does, into letters of `BYTE_ALPHABET`."""
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
            f"There is no tokenizer of kind {kind!r}; there are: {', '.join(SPLIT_PATTERNS)}."
        )


def _prepared(texts):
    """Each text as it is cut: checked, NFC, with one space in front; the empty one stays empty."""
    if isinstance(texts, (str, bytes)):
        raise TokenizerError("Expected a list of texts, not one text. Put it in brackets: [text].")
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise TokenizerError(
                f"Each text must be a str; item {index} is of type {type(text).__name__}."
            )
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise TokenizerError(
                f"Item {index} is no valid Unicode: {error.reason} at character {error.start}. "
                "Was it read with the encoding it was written in?"
            ) from None
        yield f" {unicodedata.normalize('NFC', text)}" if text else ""


def _label(piece):
    text = piece.decode(errors="replace")
    if text.isprintable() and "\ufffd" not in text:
        return text
    return "".join(f"<0x{byte:02X}>" for byte in piece)
