"""Text to ids and back, in plain Python, by the tables ``source_tokenizer.json`` and so on.

A table holds "kind", "tokens" and "merges". Id 0 is padding, 1 the start and 2 the end of a text;
then come the 256 bytes, then "tokens". Tokens are written in visible letters that stand for bytes,
as GPT-2 does. Source of the merges: Sennrich et al. 2016, "Neural Machine Translation of Rare Words
with Subword Units", section 3.2.
"""

import functools
import itertools
import json
import pathlib
import unicodedata

PAD_ID, START_ID, END_ID = 0, 1, 2
_FIRST_BYTE = 3
_SPACES = " \t\n\r\f\v"


class InputError(ValueError):
    """A text or a tokenizer that cannot be used; the message says why."""


class Tokenizer:
    """Text to ids and back.

    Args:
        path: a JSON file that an export of zoo wrote.

    Raises:
        InputError: if it is no such file.
    """

    def __init__(self, path):
        try:
            table = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
            if table["version"] != 1:
                raise InputError(f"The tokenizer {path} has version {table['version']}, not 1.")
            kind, tokens = table["kind"], [_as_bytes(token) for token in table["tokens"]]
            merges = [tuple(map(_as_bytes, merge.split(" "))) for merge in table["merges"]]
        except OSError as error:
            raise InputError(f"The tokenizer {path} cannot be read: {error.strerror}.") from None
        except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
            raise InputError(f"{path} is no tokenizer that zoo exported: {error!r}.") from None
        self._cut = list if kind == "character" else words
        self._is_subword = kind == "subword"
        self._pieces = [b"", b"", b"", *(bytes([byte]) for byte in range(256)), *tokens]
        self._ids = {piece: id for id, piece in enumerate(self._pieces[_FIRST_BYTE:], _FIRST_BYTE)}
        self._ranks = {merge: rank for rank, merge in enumerate(merges)}
        self._word_ids = functools.lru_cache(maxsize=65536)(self._find_word_ids)

    def encode(self, text):
        """The ids of a text, a list of int, without start and end."""
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InputError(
                f"No valid Unicode: {error.reason} at character {error.start}."
            ) from None
        if not text:
            return []
        # One space in front, so that the first word is the word it is elsewhere.
        text = " " + unicodedata.normalize("NFC", text)
        return [id for word in self._cut(text) for id in self._word_ids(word)]

    def fewest_ids(self, text):
        """A number that `encode` does not go below, known at once also for a huge text."""
        spelled = unicodedata.normalize("NFC", text).encode(errors="replace")
        return len(spelled) // max(map(len, self._pieces))

    def decode(self, ids):
        """The text of a sequence of ids; padding, start and end are left out."""
        spelled = b"".join(self._pieces[id] for id in ids)
        return spelled.removeprefix(b" ").decode(errors="replace")

    def _find_word_ids(self, word):
        """The ids of one of the parts that text is cut into."""
        spelled = word.encode()
        if not self._is_subword:  # a word is known as a whole, or spelled
            parts = [spelled] if spelled in self._ids else _letters(spelled)
        else:
            parts = self._merge(_letters(spelled))
        return [self._ids[part] for part in parts]

    def _merge(self, parts):
        """Joins neighbours: of all that can be joined the pair with the lowest rank, leftmost."""
        while len(parts) > 1:
            ranks = [self._ranks.get(pair, len(self._ranks)) for pair in itertools.pairwise(parts)]
            place = min(range(len(ranks)), key=ranks.__getitem__)
            if ranks[place] == len(self._ranks):
                break
            parts[place : place + 2] = [parts[place] + parts[place + 1]]
        return parts


def words(text):
    """Cuts text: letters, numbers or other signs in a row, with one space before; other spaces.

    "It  costs 12!" -> "It", " ", " costs", " 12", "!"
    """
    parts = []
    for kind, run in itertools.groupby(text, _kind):
        run = "".join(run)
        if kind == "space":
            parts.extend(run)
        elif parts and parts[-1] == " ":
            parts[-1] += run
        else:
            parts.append(run)
    return parts


def _kind(character):
    """What a character counts as: "space", "letter", "number" or "other"."""
    if character in _SPACES:
        return "space"
    return {"L": "letter", "M": "letter", "N": "number"}.get(
        unicodedata.category(character)[0], "other"
    )


def _letters(spelled):
    return [bytes([byte]) for byte in spelled]


def _alphabet():
    """The byte that each letter of the table stands for: visible ones stand for themselves."""
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = itertools.count(0x100)
    return {chr(byte if byte in visible else next(others)): byte for byte in range(256)}


_BYTES = _alphabet()


def _as_bytes(token):
    return bytes(_BYTES[letter] for letter in token)
