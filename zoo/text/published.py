"""The tokenizers of GPT-2 and BERT, by the library `tokenizers`.

A token such as "<|endoftext|>" or "[SEP]" in a text is ordinary text.
"""

import dataclasses
import functools
import itertools

from zoo.errors import TokenizerError, needed
from zoo.text.checks import check_vocab, checked_ids, checked_texts

CONTINUATION = "##"  # begins BERT's tokens that continue a word


def _byte_alphabet():
    """The character that represents each byte, as in GPT-2: printable bytes map to themselves."""
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = itertools.count(0x100)
    return "".join(chr(byte if byte in visible else next(others)) for byte in range(256))


BYTE_ALPHABET = _byte_alphabet()
BYTE_OF = {character: byte for byte, character in enumerate(BYTE_ALPHABET)}


@dataclasses.dataclass(frozen=True)
class _LibraryTokenizer:
    """A tokenizer of the library `tokenizers`.

    A subclass has `_library`, that tokenizer, and `_bytes`, the text of a token.

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

    prefix = ()  # ids at the beginning of each text

    def __post_init__(self):
        needed("tokenizers")
        check_vocab(self.vocab, self.vocab_size)
        try:
            self._library  # noqa: B018
        except Exception as error:  # the library has no class of its own
            raise TokenizerError(f"The vocabulary is invalid: {error}.") from None

    def encode(self, texts):
        """Encodes texts, without control ids: a list of ids for each text."""
        encodings = self._library.encode_batch_fast(checked_texts(texts))
        return [encoding.ids for encoding in encodings]

    def decode(self, ids):
        """Decodes sequences of ids; control tokens are left out."""
        rows = [checked_ids(row, self.vocab_size) for row in ids]
        texts = [b"".join([self.token_bytes[id] for id in row]) for row in rows]
        return [text.decode(errors="replace") for text in texts]

    def pieces(self, ids):
        """Returns a label for each id of one sequence: its text, or a name such as "[SEP]"."""
        ids = checked_ids(ids, self.vocab_size)
        texts = [self.token_bytes[id].decode(errors="replace") for id in ids]
        return [text or self.tokens.get(id, "") for id, text in zip(ids, texts)]

    @functools.cached_property
    def tokens(self):
        """{id: token}."""
        return {id: token for token, id in self.vocab.items()}

    @functools.cached_property
    def token_bytes(self):
        """The bytes of each id, as a list of bytes; empty for control tokens and unused ids."""
        texts = {id: token for id, token in self.tokens.items() if token not in self.control}
        return [self._bytes(texts[id]) if id in texts else b"" for id in range(self.vocab_size)]


@dataclasses.dataclass(frozen=True)
class ByteLevelBPETokenizer(_LibraryTokenizer):
    """GPT-2's tokenizer: byte-pair encoding of bytes, within words.

    Sources: Radford et al. 2019, section 2.2; transformers: models/gpt2.

    Args:
        vocab, control, vocab_size: see `_LibraryTokenizer`; tokens are written in `BYTE_ALPHABET`.
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

    def _bytes(self, token):
        # Tokens that were added as text may have other characters.
        return b"".join(bytes([BYTE_OF[c]]) if c in BYTE_OF else c.encode() for c in token)

    @functools.cached_property
    def _library(self):
        from tokenizers import Tokenizer, models, pre_tokenizers

        tokenizer = Tokenizer(models.BPE(vocab=self.vocab, merges=[*self.merges]))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(self.add_prefix_space)
        return tokenizer


@dataclasses.dataclass(frozen=True)
class BertWordPieceTokenizer(_LibraryTokenizer):
    """BERT's tokenizer: WordPiece within words, after a normalization of characters.

    Sources: Devlin et al. 2018, section 3; transformers: models/bert.

    Args:
        vocab, control, vocab_size: see `_LibraryTokenizer`; tokens that continue a word start with
            "##".
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
        return [text.removeprefix(" ") for text in super().decode(ids)]

    def _bytes(self, token):
        continues = token.startswith(CONTINUATION)
        return token.removeprefix(CONTINUATION).encode() if continues else f" {token}".encode()

    @functools.cached_property
    def _library(self):
        from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

        settings = {"unk_token": self.unknown, "continuing_subword_prefix": CONTINUATION}
        settings["max_input_chars_per_word"] = self.longest_word
        tokenizer = Tokenizer(models.WordPiece(vocab=self.vocab, **settings))
        tokenizer.normalizer = normalizers.BertNormalizer(
            True, self.chinese_chars, self.strip_accents, self.lowercase
        )
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        return tokenizer
