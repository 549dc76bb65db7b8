"""A tokenizer in plain Python for ``source_tokenizer.json`` and ``target_tokenizer.json``.

The files contain "kind", "tokens", "merges" and, for "unigram", "scores". Id 0 is padding, 1 the
start and 2 the end of a text; then come the 256 bytes, then "tokens". Tokens are written in
printable characters that represent bytes, as in GPT-2. Sources: Sennrich et al. 2016, "Neural
Machine Translation of Rare Words with Subword Units", section 3.2 (merges); Devlin et al. 2019,
"BERT" (WordPiece); Kudo 2018, "Subword Regularization", section 3.2 (unigram).
"""

import functools
import itertools
import json
import pathlib
import re
import unicodedata

_FIRST_BYTE = 3  # before it: padding, start and end
# A word is a run of letters, digits or other characters, with the space before it; other spaces are
# words of their own: "It  costs 12!" -> "It", " ", " costs", " 12", "!". The patterns are of what
# `_kind` returns for each character.
_WORDS = " ?o+| ?l+| ?n+|[ s]"
_PATTERNS = {"character": ".", "wordpiece": _WORDS.replace("o+", "o")}
_CONTINUATION = "##"  # starts the "wordpiece" tokens that continue a word
_LONGEST_WORD = {"wordpiece": 100, "unigram": 200}  # longer words are split after so many bytes


class InputError(ValueError):
    """Invalid text or tokenizer file; the message says why."""


class Tokenizer:
    """Encodes text to ids and decodes ids to text.

    Args:
        path: tokenizer file of the export.

    Raises:
        InputError: if the file is missing or invalid.
    """

    def __init__(self, path):
        try:
            table = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
            if table["version"] != 1:
                raise InputError(f"The tokenizer {path} has version {table['version']}, not 1.")
            kind, tokens = table["kind"], table["tokens"]
            inside = _CONTINUATION if kind == "wordpiece" else ""
            pieces = [_as_bytes(token.removeprefix(inside)) for token in tokens]
            scores = table["scores"] if kind == "unigram" else []
            merges = [tuple(merge.split(" ")) for merge in table["merges"]]
        except OSError as error:
            raise InputError(f"The tokenizer {path} cannot be read: {error.strerror}.") from None
        except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
            raise InputError(f"{path} is not a valid tokenizer file: {error!r}.") from None
        self._pattern = re.compile(_PATTERNS.get(kind, _WORDS))
        segments = {"subword": self._merge, "wordpiece": self._longest, "unigram": self._best}
        self._segment = segments.get(kind, self._whole)
        self._longest_word = _LONGEST_WORD.get(kind)
        self._pieces = [b"", b"", b"", *(bytes([byte]) for byte in range(256)), *pieces]
        self._ids = {token: id for id, token in enumerate([*_ALPHABET, *tokens], _FIRST_BYTE)}
        self._scores = dict(zip(self._ids, scores))
        self._ranks = {merge: rank for rank, merge in enumerate(merges)}
        self._ids |= {inside + byte: self._ids[byte] for byte in _ALPHABET}
        self._word_ids = functools.lru_cache(maxsize=65536)(self._find_word_ids)

    def encode(self, text):
        """Encodes a text to a list of int, without start and end."""
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InputError(
                f"Invalid Unicode: {error.reason} at character {error.start}."
            ) from None
        if not text:
            return []
        # A space is prefixed, so that the first word gets the same tokens as elsewhere.
        text = " " + unicodedata.normalize("NFC", text)
        words = self._pattern.finditer("".join(map(_kind, text)))
        return [id for word in words for id in self._word_ids(text[slice(*word.span())])]

    def fewest_ids(self, text):
        """A lower bound for the number of ids, fast to compute even for a huge text."""
        spelled = unicodedata.normalize("NFC", text).encode(errors="replace")
        return len(spelled) // max(map(len, self._pieces))

    def decode(self, ids):
        """Decodes a sequence of ids; padding, start and end are skipped."""
        spelled = b"".join(self._pieces[id] for id in ids)
        return spelled.removeprefix(b" ").decode(errors="replace")

    def _find_word_ids(self, word):
        """Encodes one word."""
        word = "".join(_ALPHABET[byte] for byte in word.encode())
        size = self._longest_word or len(word)
        chunks = (word[start : start + size] for start in range(0, len(word), size))
        return [self._ids[token] for chunk in chunks for token in self._segment(chunk)]

    def _whole(self, word):
        """A known word is one token, others are encoded as bytes."""
        return [word] if word in self._ids else word

    def _merge(self, word):
        """Byte-pair encoding: repeatedly merges the leftmost pair with the lowest rank."""
        parts = [*word]
        while len(parts) > 1:
            ranks = [self._ranks.get(pair, len(self._ranks)) for pair in itertools.pairwise(parts)]
            index = min(range(len(ranks)), key=ranks.__getitem__)
            if ranks[index] == len(self._ranks):
                break
            parts[index : index + 2] = [parts[index] + parts[index + 1]]
        return parts

    def _longest(self, word):
        """WordPiece: splits off the longest token at the start, repeatedly."""
        tokens, prefix = [], ""
        while word:
            end = len(word)
            while prefix + word[:end] not in self._ids:
                end -= 1
            tokens.append(prefix + word[:end])
            prefix, word = _CONTINUATION, word[end:]
        return tokens

    def _best(self, word):
        """Unigram model: the tokens with the highest sum of scores, by the Viterbi algorithm."""
        best = [(0.0, 0)]  # for each end: the sum of scores, and the start of the last token
        for end in range(1, len(word) + 1):
            starts = [start for start in range(end) if word[start:end] in self._scores]
            sums = [best[start][0] + self._scores[word[start:end]] for start in starts]
            # Of equal sums, the first is chosen, which has the longest last token.
            best.append((max(sums), starts[sums.index(max(sums))]))
        tokens, end = [], len(word)
        while end:
            start = best[end][1]
            tokens.append(word[start:end])
            end = start
        return tokens[::-1]


def _kind(character):
    """ " " of the space, "s" of another one, "l" of letters and marks, "n" of numbers, else "o"."""
    if character in " \t\n\r\f\v":
        return " " if character == " " else "s"
    return {"L": "l", "M": "l", "N": "n"}.get(unicodedata.category(character)[0], "o")


def _alphabet():
    """The byte that each character of a token represents: printable ones represent themselves."""
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = itertools.count(0x100)
    return {chr(byte if byte in visible else next(others)): byte for byte in range(256)}


_BYTES = _alphabet()
_ALPHABET = [*_BYTES]


def _as_bytes(token):
    return bytes(_BYTES[character] for character in token)
