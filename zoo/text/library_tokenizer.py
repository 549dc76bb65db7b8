"""Tokenizers of Hugging Face's library `tokenizers`, such as GPT-2's, BERT's and XLM-RoBERTa's.

A token such as "<|endoftext|>" or "[SEP]" in a text is ordinary text.
"""

import dataclasses
import functools
import itertools
import json

from zoo.errors import TokenizerError, needed
from zoo.text.tokenizer import Tokenizer, as_ids, as_texts

KINDS = ("BPE", "WordPiece", "Unigram")
SPACE = "▁"  # how tokens of Unigram spell a space
CONTINUATION = "##"  # begins BERT's tokens that continue a word


def _byte_alphabet():
    """The character that represents each byte, as in GPT-2: printable bytes map to themselves."""
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = itertools.count(0x100)
    return "".join(chr(byte if byte in visible else next(others)) for byte in range(256))


BYTE_ALPHABET = _byte_alphabet()
BYTE_OF = {character: byte for byte, character in enumerate(BYTE_ALPHABET)}


@dataclasses.dataclass(frozen=True)
class LibraryTokenizer(Tokenizer):
    """A tokenizer of the library `tokenizers`; see `Tokenizer` for decoding.

    - GPT-2's kind: byte-pair encoding of bytes, within words (Radford et al. 2019, section 2.2).
    - BERT's kind: WordPiece within words, after a normalization of characters (Devlin et al. 2018,
      section 3). A word that is not made of tokens, or is too long, is the unknown token.
    - XLM-RoBERTa's kind: Unigram within words (Kudo 2018, "Subword Regularization", section 3.2).

    Args:
        content: content of a tokenizer.json, str. Its added tokens are not text: `decode` leaves
            them out.
        prefix: ids at the beginning of each text, such as the start token of BART.

    Attributes:
        library: `tokenizers.Tokenizer`.

    Raises:
        TokenizerError: if the content is invalid, or of another kind.
    """

    content: str = dataclasses.field(repr=False)
    prefix: tuple[int, ...] = ()

    def __post_init__(self):
        tokenizer_class = needed("tokenizers").Tokenizer
        try:
            library = tokenizer_class.from_str(self.content)
        except Exception as error:  # the library has no class of its own
            raise TokenizerError(f"It is not a tokenizer.json: {error}.") from None
        object.__setattr__(self, "library", library)  # the way of a frozen dataclass
        library.encode_special_tokens = True  # as ordinary text
        library.no_truncation()
        library.no_padding()
        check_kind(self.parts)
        if {*self.vocab.values()} != {*range(self.vocab_size)}:
            raise TokenizerError("The ids of the vocabulary must be 0, 1, 2 and so on, each once.")
        if self.kind == "BPE":
            if "ByteLevel" not in self._pre_tokenizers():
                raise TokenizerError("A BPE tokenizer must be of bytes: its pre_tokenizer is not.")
            for name in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
                value = self.parts["model"].get(name)
                if value:
                    raise TokenizerError(f"{name}={value!r} of BPE is not supported.")
            required = BYTE_ALPHABET
        elif self.kind == "Unigram":
            if "Metaspace" not in self._pre_tokenizers():
                raise TokenizerError("A Unigram tokenizer must have the pre_tokenizer Metaspace.")
            model = self.parts["model"]
            if model.get("byte_fallback") or model.get("unk_id") is None:
                raise TokenizerError("Unigram must have an unk_id, and no byte_fallback.")
            required = ()
        else:
            required = [self.parts["model"].get("unk_token")]
        for token in required:
            if token not in self.vocab:
                raise TokenizerError(f"The vocabulary has no token {token!r}.")
        as_ids(self.prefix, self.vocab_size)

    def __reduce__(self):  # a copy of `library` would forget its settings
        return type(self), (self.content, self.prefix)

    def encode(self, texts):
        """Encodes texts, with `prefix` but without control ids: a list of ids for each text."""
        encodings = self.library.encode_batch_fast(as_texts(texts), add_special_tokens=False)
        return [[*self.prefix, *encoding.ids] for encoding in encodings]

    def pieces(self, ids):
        """Returns a label for each id of one sequence: its text, or "</s>"."""
        tokens = [self.tokens[id] for id in as_ids(ids, self.vocab_size)]
        return [self._bytes(token).decode(errors="replace") for token in tokens]

    @functools.cached_property
    def parts(self):
        """The content as a dict."""
        return json.loads(self.content)

    @property
    def kind(self):
        """The name of the algorithm: "BPE", "WordPiece" or "Unigram"."""
        return self.parts["model"].get("type")

    @property
    def vocab_size(self):
        """See `Tokenizer`."""
        return len(self.vocab)

    @property
    def unknown(self):
        """See `Tokenizer`."""
        if self.kind == "Unigram":
            return self.parts["model"]["unk_id"]
        if self.kind == "WordPiece":
            return self.vocab[self.parts["model"]["unk_token"]]
        return None  # BPE of bytes

    @property
    def adds_space(self):
        """See `Tokenizer`."""
        return self.kind != "BPE"

    @functools.cached_property
    def vocab(self):
        """{token: id}."""
        return self.library.get_vocab()

    @functools.cached_property
    def tokens(self):
        """{id: token}."""
        return {id: token for token, id in self.vocab.items()}

    @functools.cached_property
    def token_bytes(self):
        """See `Tokenizer`."""
        control = {token["content"] for token in self.parts.get("added_tokens", ())}
        tokens = [self.tokens[id] for id in range(self.vocab_size)]
        return [b"" if token in control else self._bytes(token) for token in tokens]

    def _bytes(self, token):
        if self.kind == "BPE":  # tokens that were added as text may have other characters
            return b"".join(bytes([BYTE_OF[c]]) if c in BYTE_OF else c.encode() for c in token)
        if self.kind == "Unigram":
            return token.replace(SPACE, " ").encode()
        continuation = self.parts["model"].get("continuing_subword_prefix", CONTINUATION)
        if token.startswith(continuation):
            return token.removeprefix(continuation).encode()
        return f" {token}".encode()

    def _pre_tokenizers(self):
        """The types of the steps that split a text into words."""
        part = self.parts.get("pre_tokenizer") or {}
        return [step["type"] for step in part.get("pretokenizers", [part]) if step]


def check_kind(content):
    """Raises `TokenizerError` if a tokenizer.json, a dict, has another kind than `KINDS`."""
    kind = content["model"].get("type")
    if kind not in KINDS:
        raise TokenizerError(f"A tokenizer must be one of {KINDS}. Received: {kind}.")
