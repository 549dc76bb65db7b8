"""Tokenizers of published models: GPT-2's, BERT's, and what they share with SentencePiece's.

The library `tokenizers` implements those of GPT-2 and BERT. A token such as "<|endoftext|>" or
"[SEP]" in a text is ordinary text.
"""

import dataclasses
import functools
import json
import pathlib

import tokenizers
from tokenizers import models, normalizers, pre_tokenizers

from zoo.errors import TokenizerError
from zoo.text.checks import checked_ids, checked_texts
from zoo.text.tokenizer import BYTE_ALPHABET, BYTE_OF, CONTINUATION


class PublishedTokenizer:
    """What the tokenizers of published models share.

    A subclass is a frozen dataclass, which has the fields `vocab`, `control` and `vocab_size`, the
    class attribute `kind`, and `_bytes(token)`, the text of a token.
    """

    prefix = ()  # ids at the beginning of each text

    def check_vocab(self):
        """Raises `TokenizerError` if an id is not one of `vocab_size`, or not of one token."""
        ids = checked_ids([*self.vocab.values()], self.vocab_size)
        if len(self.tokens) < len(ids):
            first, second = next(
                (self.tokens[id], token)
                for token, id in self.vocab.items()
                if self.tokens[id] != token
            )
            raise TokenizerError(f"The tokens {first!r} and {second!r} have the same id.")

    def pieces(self, ids):
        """Returns a label for each id of one sequence: its text, or a name such as "[SEP]"."""
        return [
            self.token_bytes[id].decode(errors="replace") or self.tokens.get(id, "")
            for id in checked_ids(ids, self.vocab_size)
        ]

    def to_dict(self):
        """Returns the arguments as a dict that can be stored as JSON."""
        return {"version": 1, "kind": self.kind, **dataclasses.asdict(self)}

    @classmethod
    def from_dict(cls, table):
        """The inverse of `to_dict`; raises `TokenizerError` if the table is invalid."""
        table = {key: value for key, value in table.items() if key not in ("version", "kind")}
        try:
            return cls(**{key: _tuples(value) for key, value in table.items()})
        except TypeError as error:
            raise TokenizerError(
                f"It is not a table of a {cls.kind} tokenizer: {error!r}."
            ) from None

    def save(self, path):
        """Writes the table to a JSON file."""
        text = json.dumps(self.to_dict(), ensure_ascii=False)
        pathlib.Path(path).write_text(text + "\n", encoding="utf-8")

    @functools.cached_property
    def tokens(self):
        """{id: token}."""
        return {id: token for token, id in self.vocab.items()}

    @functools.cached_property
    def token_bytes(self):
        """The bytes of each id, as a list of bytes; empty for control tokens and unused ids."""
        texts = {id: token for id, token in self.tokens.items() if token not in self.control}
        return [self._bytes(texts[id]) if id in texts else b"" for id in range(self.vocab_size)]

    def _joined(self, ids):
        return [
            b"".join([self.token_bytes[id] for id in checked_ids(sequence, self.vocab_size)])
            for sequence in ids
        ]


@dataclasses.dataclass(frozen=True)
class _LibraryTokenizer(PublishedTokenizer):
    """A tokenizer of the library `tokenizers`, given by `_library`.

    Args:
        vocab: {token: id}.
        control: tokens that are not text: `decode` leaves them out.
        vocab_size: number of ids, at least those of `vocab`.

    Raises:
        TokenizerError: if the vocabulary is invalid.
    """

    vocab: dict
    control: tuple[str, ...]
    vocab_size: int

    def __post_init__(self):
        self.check_vocab()
        try:
            self._library  # noqa: B018
        except Exception as error:  # the library has no class of its own
            raise TokenizerError(f"The vocabulary is invalid: {error}.") from None

    def encode(self, texts):
        """Encodes texts, without control ids: a list of ids for each text."""
        found = self._library.encode_batch_fast([*checked_texts(texts)])
        return [encoding.ids for encoding in found]


@dataclasses.dataclass(frozen=True)
class ByteLevelBPETokenizer(_LibraryTokenizer):
    """GPT-2's tokenizer: byte-pair encoding of bytes, within words.

    Sources: Radford et al. 2019, section 2.2; transformers: models/gpt2.

    Args:
        vocab, control, vocab_size: as above; tokens are written in `BYTE_ALPHABET`.
        merges: pairs (left, right) of tokens to merge, by priority.
        add_prefix_space: whether a text that begins without a space gets one.
    """

    merges: tuple[tuple[str, str], ...] = ()
    add_prefix_space: bool = False

    kind = "byte_level_bpe"

    def __post_init__(self):
        missing = [byte for byte in BYTE_ALPHABET if byte not in self.vocab]
        if missing:
            raise TokenizerError(f"The vocabulary has no token for {len(missing)} of 256 bytes.")
        super().__post_init__()

    def decode(self, ids):
        """Decodes sequences of ids; control tokens are left out."""
        return [text.decode(errors="replace") for text in self._joined(ids)]

    def _bytes(self, token):
        # Tokens that were added as text may have other characters.
        return b"".join(bytes([BYTE_OF[c]]) if c in BYTE_OF else c.encode() for c in token)

    @functools.cached_property
    def _library(self):
        tokenizer = tokenizers.Tokenizer(models.BPE(vocab=self.vocab, merges=[*self.merges]))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(self.add_prefix_space)
        return tokenizer


@dataclasses.dataclass(frozen=True)
class BertWordPieceTokenizer(_LibraryTokenizer):
    """BERT's tokenizer: WordPiece within words, after a normalization of characters.

    Sources: Devlin et al. 2018, section 3; transformers: models/bert.

    Args:
        vocab, control, vocab_size: as above; tokens that continue a word start with "##".
        unknown: token of words that are not made of tokens, or have more than 100 characters.
        lowercase: whether texts are lowercased.
        strip_accents: whether accents are removed; as `lowercase` by default.
        chinese_chars: whether each Chinese character is a word.
    """

    unknown: str = "[UNK]"
    lowercase: bool = True
    strip_accents: bool | None = None
    chinese_chars: bool = True

    kind = "bert_wordpiece"
    longest_word = 100  # in characters

    def __post_init__(self):
        if self.unknown not in self.vocab:
            raise TokenizerError(f"The vocabulary has no unknown token {self.unknown}.")
        super().__post_init__()

    def decode(self, ids):
        """Decodes sequences of ids to words with spaces between; control tokens are left out."""
        return [text.decode().removeprefix(" ") for text in self._joined(ids)]

    def _bytes(self, token):
        continues = token.startswith(CONTINUATION)
        return token.removeprefix(CONTINUATION).encode() if continues else f" {token}".encode()

    @functools.cached_property
    def normalizer(self):
        """That of the library."""
        settings = {"strip_accents": self.strip_accents, "lowercase": self.lowercase}
        return normalizers.BertNormalizer(True, self.chinese_chars, **settings)

    @functools.cached_property
    def _library(self):
        settings = {"unk_token": self.unknown, "continuing_subword_prefix": CONTINUATION}
        settings["max_input_chars_per_word"] = self.longest_word
        model = models.WordPiece(vocab=self.vocab, **settings)
        tokenizer = tokenizers.Tokenizer(model)
        tokenizer.normalizer = self.normalizer
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        return tokenizer


def _tuples(value):
    """JSON's lists as tuples."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
