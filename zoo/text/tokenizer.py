"""Subword, word, character, WordPiece and unigram tokenizers.

Text outside the vocabulary is encoded as bytes.

All kinds use the same vocabulary layout: the control ids, the 256 bytes, then the learned tokens.
Sources: Sennrich et al. 2016, "Neural Machine Translation of Rare Words with Subword Units",
section 3.2 (merges); Radford et al. 2019, "Language Models are Unsupervised Multitask Learners",
section 2.2 (on bytes); Wu et al. 2016, "Google's Neural Machine Translation System", section 4.1,
and Devlin et al. 2019, "BERT" (WordPiece); Kudo 2018, "Subword Regularization", section 3.2
(unigram). All are implemented by the library `tokenizers`.
"""

import dataclasses
import functools
import itertools
import json
import math
import pathlib
import unicodedata

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from zoo.errors import TokenizerError
from zoo.text import BOS_ID, EOS_ID, PAD_ID
from zoo.text.checks import checked_ids, checked_texts

# Spaces are split one by one, so a word after two spaces is still one space and the word.
_WORDS_AND_SPACES = r" ?[\p{L}\p{M}]+| ?[\p{N}]+|[ \t\n\r\f\v]"
_OTHER = r" ?[^ \t\n\r\f\v\p{L}\p{M}\p{N}]"
_WORDS = f"{_OTHER}+|{_WORDS_AND_SPACES}"
# The patterns that split text. They have the same meaning in RE2, so a TensorFlow graph can split
# text in the same places; only letters and digits newer than the Unicode tables of one of the two
# libraries may differ. Escapes such as \p{L} are in brackets, where ranges can replace them.
SPLIT_PATTERNS = {
    "subword": _WORDS,
    "word": _WORDS,
    "character": r"[^\n]|\n",
    # As in BERT, punctuation is split one by one, so no word starts with CONTINUATION.
    "wordpiece": f"{_OTHER}|{_WORDS_AND_SPACES}",
    "unigram": _WORDS,
}
CONTINUATION = "##"  # starts the "wordpiece" tokens that continue a word
# Words of these kinds are split after so many bytes, as the time for one word grows faster than its
# length.
LONGEST_WORD = {"wordpiece": 100, "unigram": 200}
# In training, "subword" splits words after so many bytes, for the same reason. Encoding is fast.
_LONGEST_LEARNED = {**LONGEST_WORD, "subword": 1000}
_CONTROL = {PAD_ID: "<pad>", BOS_ID: "<s>", EOS_ID: "</s>"}
_SMALLEST = len(_CONTROL) + 256
_VERSION = 1  # of the split patterns and the file format


def _byte_alphabet():
    """The character that represents each byte, as in GPT-2: printable bytes map to themselves."""
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = itertools.count(0x100)
    return "".join(chr(byte if byte in visible else next(others)) for byte in range(256))


BYTE_ALPHABET = _byte_alphabet()
BYTE_OF = {character: byte for byte, character in enumerate(BYTE_ALPHABET)}


@dataclasses.dataclass(frozen=True)
class Tokenizer:
    """Encodes text to ids and decodes ids to text.

    Created by `train_tokenizer`, `Tokenizer.load` or `Tokenizer.from_dict`.

    Ids: PAD_ID, BOS_ID and EOS_ID, which `encode` never returns; 3 + the value of a byte; then
    `tokens`. Text is NFC-normalized and prefixed with a space, so that its first word gets the same
    tokens as elsewhere; `decode` removes the space. The round trip is exact up to NFC.

    Args:
        kind: "subword", "word", "character", "wordpiece" or "unigram".
        tokens: the learned tokens in the order of ids, written in `BYTE_ALPHABET`. For "wordpiece",
            tokens that continue a word start with `CONTINUATION`.
        merges: pairs (left, right) of tokens to merge, by priority; for "subword" only.
        scores: log-probabilities of the 256 bytes and of `tokens`; for "unigram" only.

    Raises:
        TokenizerError: if the kind is unknown or the table is inconsistent.
    """

    kind: str
    tokens: tuple[str, ...]
    merges: tuple[tuple[str, str], ...] = ()
    scores: tuple[float, ...] = ()

    prefix = ()  # ids at the beginning of each text

    def __post_init__(self):
        _check_kind(self.kind)
        known = {*BYTE_ALPHABET, *self.tokens}
        for token in self.tokens:
            text = _text(self.kind, token)
            if len(text) < 2 or not BYTE_OF.keys() >= set(text):
                raise TokenizerError(f"{token!r} is not a token of two or more bytes.")
        if len(known) != 256 + len(self.tokens):
            raise TokenizerError("A token occurs twice in the table.")
        if self.merges and self.kind != "subword":
            raise TokenizerError(f'Only "subword" has merges, not "{self.kind}".')
        for left, right in self.merges:
            if not known >= {left, right, left + right}:
                raise TokenizerError(f"The merge of {left!r} and {right!r} uses unknown tokens.")
        expected = len(known) if self.kind == "unigram" else 0
        if len(self.scores) != expected:
            raise TokenizerError(
                f'"{self.kind}" needs {expected} scores here. Received: {len(self.scores)}.'
            )

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
            b"".join([self.token_bytes[id] for id in self._checked(sequence)])
            .removeprefix(b" ")
            .decode(errors="replace")
            for sequence in ids
        ]

    def pieces(self, ids):
        """Returns a label for each id of one sequence: its text, "<0xE2>" for a byte, or "</s>"."""
        return [_CONTROL.get(id) or _label(self.token_bytes[id]) for id in self._checked(ids)]

    def to_dict(self):
        """Returns the table as a dict that can be stored as JSON.

        Keys: `version`, 1; `kind`; `tokens`, a list of str written in `BYTE_ALPHABET`; `merges`, a
        list of str "left right"; `scores`, a list of float, for "unigram" only. The first of
        `tokens` has id 259.
        """
        merges = [f"{left} {right}" for left, right in self.merges]
        tokens = [*self.tokens]
        table = {"version": _VERSION, "kind": self.kind, "tokens": tokens, "merges": merges}
        return {**table, "scores": [*self.scores]} if self.scores else table

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
        scores = table.get("scores", [])
        if not isinstance(scores, list) or not all(map(_is_finite, scores)):
            raise TokenizerError("Its scores must be a list of finite floats.")
        return cls(table["kind"], tuple(table["tokens"]), merges, tuple(scores))

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

    def to_tokenizer_json(self):
        """Returns the content of a tokenizer.json, the format of the library `tokenizers`: a str.

        `tokenizers.Tokenizer.from_str` makes a tokenizer of it that gives the same ids for a text
        in NFC, and the same text for ids. It normalizes texts too, but its Unicode tables are older
        than Python's: the newest accents may stay apart from their letters.
        """
        library = tokenizers.Tokenizer.from_str(self._library.to_str())
        library.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Prepend(" ")])
        # The first removes the mark of a token, or the control tokens of "unigram".
        not_text = tokenizers.Regex(f"^{CONTINUATION}" if self.kind == "wordpiece" else "^ .*")
        library.decoder = decoders.Sequence(
            [decoders.Replace(not_text, ""), decoders.ByteLevel(), decoders.Strip(" ", 1, 0)]
        )
        table = json.loads(library.to_str())
        if self.kind == "wordpiece":  # of tokens with the same id, the library writes one
            table["model"]["vocab"] = self.vocab
        return json.dumps(table, ensure_ascii=False)

    @functools.cached_property
    def token_bytes(self):
        """The bytes of each id, as a list of bytes; empty for control ids."""
        texts = (*BYTE_ALPHABET, *(_text(self.kind, token) for token in self.tokens))
        return [b""] * len(_CONTROL) + [bytes(map(BYTE_OF.get, text)) for text in texts]

    @functools.cached_property
    def vocab(self):
        """{token: id}, without control ids, so that the text "</s>" is encoded as ordinary text.

        Of "wordpiece", a byte that continues a word is a token of its own with the same id.
        """
        texts = (*BYTE_ALPHABET, *self.tokens)
        vocab = {token: id for id, token in enumerate(texts, len(_CONTROL))}
        if self.kind == "wordpiece":
            vocab |= {CONTINUATION + byte: vocab[byte] for byte in BYTE_ALPHABET}
        return vocab

    @functools.cached_property
    def _library(self):
        ids = self.vocab
        if self.kind == "wordpiece":
            model = models.WordPiece(
                vocab=ids,
                continuing_subword_prefix=CONTINUATION,
                max_input_chars_per_word=LONGEST_WORD[self.kind],
            )
        elif self.kind == "unigram":
            # No text matches a string with a space, which is not in `BYTE_ALPHABET`.
            control = [(f" {name}", 0.0) for name in _CONTROL.values()]
            model = models.Unigram(vocab=[*control, *zip(ids, self.scores)])
        else:
            merges, is_subword = [*self.merges], self.kind == "subword"
            model = models.BPE(vocab=ids, merges=merges, ignore_merges=not is_subword)
        return _library_tokenizer(model, self.kind, LONGEST_WORD.get(self.kind))

    def _checked(self, ids):
        """Validates one sequence of ids and returns it as a list of int."""
        return checked_ids(ids, self.vocab_size)


def train_tokenizer(lines, kind="subword", vocab_size=8000):
    """Trains a tokenizer. The result does not depend on the order of the lines.

    - "subword": byte-pair encoding within words, numbers and punctuation.
    - "word": the most frequent words, each with the space before it.
    - "character": the most frequent Unicode characters.
    - "wordpiece": WordPiece. Tokens that start a word differ from tokens inside it; a word is split
      into the longest tokens, from left to right. The library learns them by merging the most
      frequent pairs. There is no unknown token: all bytes are in the vocabulary.
    - "unigram": SentencePiece's unigram model, on bytes within words, numbers and punctuation. Each
      token has a probability, learned by expectation maximization; a word is split into the most
      probable tokens, by the Viterbi algorithm.

    Args:
        lines: iterable of str, iterated once; only counts are kept in memory.
        kind: "subword", "word", "character", "wordpiece" or "unigram".
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
    model, trainer = _untrained(kind, vocab_size)
    learner = _library_tokenizer(model, kind, _LONGEST_LEARNED.get(kind))
    learner.train_from_iterator(itertools.chain([first], texts), trainer)
    learned = json.loads(learner.to_str())["model"]
    if kind == "unigram":
        return _unigram_tokenizer(dict(learned["vocab"]), vocab_size)
    tokens = [
        token
        for token in sorted(learned["vocab"], key=learned["vocab"].get)
        if len(_text(kind, token)) > 1
    ]
    merges = tuple((left, right) for left, right in learned.get("merges", ()))
    return Tokenizer(kind, tuple(tokens[: vocab_size - _SMALLEST]), merges)


def _untrained(kind, vocab_size):
    """Returns the library's model of a kind and its trainer."""
    if kind in ("word", "character"):  # ties in frequency are broken alphabetically
        trainer = trainers.WordLevelTrainer(vocab_size=vocab_size, show_progress=False)
        return models.WordLevel(), trainer
    bytes_and_learned = vocab_size - len(_CONTROL)
    options = {"initial_alphabet": [*BYTE_ALPHABET], "show_progress": False}
    if kind == "unigram":
        return models.Unigram(), trainers.UnigramTrainer(vocab_size=bytes_and_learned, **options)
    options["min_frequency"] = 2  # a pair that occurs once is noise
    if kind == "wordpiece":
        # Listed as special tokens, the bytes within words have an order, which breaks ties.
        inside = [CONTINUATION + byte for byte in BYTE_ALPHABET]
        size = bytes_and_learned + len(inside)
        trainer = trainers.WordPieceTrainer(vocab_size=size, special_tokens=inside, **options)
        return models.WordPiece(), trainer
    return models.BPE(), trainers.BpeTrainer(vocab_size=bytes_and_learned, **options)


def _unigram_tokenizer(scores, vocab_size):
    """Makes a tokenizer of {token: log-probability} that does not depend on the order of training.

    The library adds log-probabilities in an order that varies, so they are rounded. It gives bytes
    that are rare or do not occur the lowest log-probability + 0, 0.0001, ..., 0.0255, also in an
    order that varies; they all get the lowest.
    """
    scores = {token: round(score, 4) for token, score in scores.items()}
    lowest = min(scores.values())
    for byte in BYTE_ALPHABET:
        if scores[byte] < lowest + 256 * 0.0001:
            scores[byte] = lowest
    tokens = sorted(scores.keys() - set(BYTE_ALPHABET), key=lambda token: (-scores[token], token))
    tokens = tokens[: vocab_size - _SMALLEST]
    learned = tuple(scores[token] for token in (*BYTE_ALPHABET, *tokens))
    return Tokenizer("unigram", tuple(tokens), scores=learned)


def _library_tokenizer(model, kind, longest):
    """Builds the library's tokenizer: splits by the kind's pattern, then into bytes.

    Words of more than `longest` bytes are split further, unless it is None.
    """
    tokenizer = tokenizers.Tokenizer(model)
    pattern = tokenizers.Regex(SPLIT_PATTERNS[kind])
    steps = [
        pre_tokenizers.Split(pattern, "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]
    if longest is not None:
        steps.append(pre_tokenizers.FixedLength(longest))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    return tokenizer


def _check_kind(kind):
    if not isinstance(kind, str) or kind not in SPLIT_PATTERNS:
        raise TokenizerError(
            f"There is no tokenizer of kind {kind!r}. The kinds are: {', '.join(SPLIT_PATTERNS)}."
        )


def _prepared(texts):
    """Normalizes texts to NFC and prefixes a space; empty texts stay empty."""
    for text in checked_texts(texts):
        yield f" {unicodedata.normalize('NFC', text)}" if text else ""


def _text(kind, token):
    """A token without the mark of `CONTINUATION`, written in `BYTE_ALPHABET`."""
    return token.removeprefix(CONTINUATION) if kind == "wordpiece" else token


def _is_finite(number):
    return isinstance(number, float) and math.isfinite(number)


def _label(piece):
    text = piece.decode(errors="replace")
    if text.isprintable() and "\ufffd" not in text:
        return text
    return "".join(f"<0x{byte:02X}>" for byte in piece)
