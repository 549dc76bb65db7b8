"""A tokenizer in plain Python for ``source_tokenizer.json`` and ``target_tokenizer.json``.

The files contain "kind", "tokens" and "merges". Id 0 is padding, 1 the start and 2 the end of a
text; then come the 256 bytes, then "tokens". Tokens are written in printable characters that
represent bytes, as in GPT-2. Source of the merges: Sennrich et al. 2016, "Neural Machine
Translation of Rare Words with Subword Units", section 3.2.
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
            kind, tokens = table["kind"], [_as_bytes(token) for token in table["tokens"]]
            merges = [tuple(map(_as_bytes, merge.split(" "))) for merge in table["merges"]]
        except OSError as error:
            raise InputError(f"The tokenizer {path} cannot be read: {error.strerror}.") from None
        except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
            raise InputError(f"{path} is not a valid tokenizer file: {error!r}.") from None
        self._split = list if kind == "character" else words
        self._is_subword = kind == "subword"
        self._pieces = [b"", b"", b"", *(bytes([byte]) for byte in range(256)), *tokens]
        self._ids = {piece: id for id, piece in enumerate(self._pieces[_FIRST_BYTE:], _FIRST_BYTE)}
        self._ranks = {merge: rank for rank, merge in enumerate(merges)}
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
        return [id for word in self._split(text) for id in self._word_ids(word)]

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
        spelled = word.encode()
        if not self._is_subword:  # a known word is one token, others are encoded as bytes
            parts = [spelled] if spelled in self._ids else _to_bytes(spelled)
        else:
            parts = self._merge(_to_bytes(spelled))
        return [self._ids[part] for part in parts]

    def _merge(self, parts):
        """Byte-pair encoding: repeatedly merges the leftmost pair with the lowest rank."""
        while len(parts) > 1:
            ranks = [self._ranks.get(pair, len(self._ranks)) for pair in itertools.pairwise(parts)]
            index = min(range(len(ranks)), key=ranks.__getitem__)
            if ranks[index] == len(self._ranks):
                break
            parts[index : index + 2] = [parts[index] + parts[index + 1]]
        return parts


def words(text):
    """Splits text into runs of letters, digits or other characters, with the space before each.

    Other spaces are words of their own.

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
    """Classifies a character as "space", "letter", "number" or "other"."""
    if character in _SPACES:
        return "space"
    return {"L": "letter", "M": "letter", "N": "number"}.get(
        unicodedata.category(character)[0], "other"
    )


def _to_bytes(spelled):
    return [bytes([byte]) for byte in spelled]


def _alphabet():
    """The byte that each character of a token represents: printable ones represent themselves."""
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = itertools.count(0x100)
    return {chr(byte if byte in visible else next(others)): byte for byte in range(256)}


_BYTES = _alphabet()


def _as_bytes(token):
    return bytes(_BYTES[character] for character in token)
