"""Tokenizers of published models: a SentencePiece model with the ids of another vocabulary.

Source: Kudo and Richardson 2018, "SentencePiece: A simple and language independent subword
tokenizer and detokenizer for Neural Text Processing". The library `sentencepiece` implements it.
"""

import base64
import dataclasses
import functools
import re

from zoo.errors import needed
from zoo.text.published import PublishedTokenizer
from zoo.text.tokenizer import TokenizerError, checked_ids, checked_texts

KIND = "sentencepiece"
SPACE = "▁"  # how pieces are spelled with a space
LANGUAGE = re.compile(r">>.*?<<", re.DOTALL)


@dataclasses.dataclass(frozen=True)
class SentencePieceTokenizer(PublishedTokenizer):
    """Encodes text to ids and decodes ids to text, like the published tokenizer.

    Args:
        model: content of a .model or .spm file, bytes.
        vocab: {token: id}. Pieces of the model that are not in it are unknown.
        unknown: id of unknown pieces.
        control: tokens that are not text: `decode` leaves them out.
        vocab_size: number of ids, at least those of `vocab`.
        prefix: ids at the beginning of each text, such as a language code.
        language_prefixes: whether a text may begin with a language code such as ">>es<<", which is
            one token.

    Raises:
        TokenizerError: if the model or the vocabulary is invalid.
    """

    model: bytes
    vocab: dict
    unknown: int
    control: tuple[str, ...]
    vocab_size: int
    prefix: tuple[int, ...] = ()
    language_prefixes: bool = False

    kind = KIND

    def __post_init__(self):
        self.check_vocab()
        checked_ids([self.unknown, *self.prefix, 0], self.vocab_size)
        if any(piece.type == piece.BYTE for piece in self.proto.pieces):
            raise TokenizerError("SentencePiece models with byte fallback are not supported.")

    def encode(self, texts):
        """Encodes texts, with `prefix` but without control ids: a list of ids for each text."""
        return [[*self.prefix, *self._ids(text)] for text in checked_texts(texts)]

    def decode(self, ids):
        """Decodes sequences of ids; control tokens are left out."""
        return [text.decode().strip(" ") for text in self._joined(ids)]

    def with_prefix(self, *prefix):
        """The same tokenizer with another `prefix`."""
        return dataclasses.replace(self, prefix=prefix)

    def to_dict(self):
        """Returns the arguments as a dict that can be stored as JSON; `model` in Base64."""
        return {**super().to_dict(), "model": base64.b64encode(self.model).decode()}

    @classmethod
    def from_dict(cls, table):
        """The inverse of `to_dict`; raises `TokenizerError` if the table is invalid."""
        try:
            model = base64.b64decode(table["model"])
        except (KeyError, TypeError, ValueError) as error:
            raise TokenizerError(f"Its SentencePiece model cannot be read: {error!r}.") from None
        return super().from_dict({**table, "model": model})

    @functools.cached_property
    def proto(self):
        """The model's tables: `sentencepiece_model_pb2.ModelProto`."""
        from google.protobuf.message import DecodeError

        sentencepiece_model_pb2 = needed("sentencepiece.sentencepiece_model_pb2")

        try:
            proto = sentencepiece_model_pb2.ModelProto.FromString(self.model)
        except DecodeError:
            raise TokenizerError("It is not a SentencePiece model.") from None
        # They follow the pieces: without them, a file that ends between two pieces is a model too.
        if not (proto.HasField("trainer_spec") and proto.HasField("normalizer_spec")):
            raise TokenizerError("The SentencePiece model is not complete.")
        return proto

    def _bytes(self, token):
        return token.replace(SPACE, " ").encode()

    @functools.cached_property
    def _processor(self):
        sentencepiece = needed("sentencepiece")

        try:
            return sentencepiece.SentencePieceProcessor(model_proto=self.model)
        except RuntimeError as error:
            raise TokenizerError(f"The SentencePiece model is not valid: {error}") from None

    def _ids(self, text):
        language = LANGUAGE.match(text) if self.language_prefixes else None
        pieces = [language[0]] if language else []
        rest = text[language.end() :] if language else text
        pieces += self._processor.encode(rest, out_type=str)
        return [self.vocab.get(piece, self.unknown) for piece in pieces]
