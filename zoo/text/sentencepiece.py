"""SentencePiece: the tokenizer of models that are trained here, and of published translators.

Sources: Kudo and Richardson 2018, "SentencePiece: A simple and language independent subword
tokenizer and detokenizer for Neural Text Processing"; Kudo 2018, "Subword Regularization", section
3.2 (unigram); Sennrich et al. 2016, "Neural Machine Translation of Rare Words with Subword Units",
section 3.2 (bpe). The library `sentencepiece` implements it.
"""

import dataclasses
import functools
import io
import re

import sentencepiece
from google.protobuf.message import DecodeError
from sentencepiece import sentencepiece_model_pb2

from zoo.errors import TokenizerError, check_choice
from zoo.text import BOS_ID, EOS_ID, PAD_ID
from zoo.text.tokenizer import Tokenizer, as_ids, as_texts

KINDS = {"unigram": "unigram", "bpe": "bpe", "word": "word", "character": "char"}
NORMALIZATIONS = ("nmt_nfkc", "nmt_nfkc_cf", "nfkc", "nfkc_cf", "identity")
SPACE = "▁"  # how pieces spell a space
UNKNOWN_ID = 3
_SMALLEST = UNKNOWN_ID + 1 + 256  # control ids and bytes
_LARGEST = 10**8  # the library hangs at ten times as many
_LONGEST_LINE = 1000  # characters; the library skips lines of more than 4,192 bytes
LANGUAGE = re.compile(r">>.*?<<", re.DOTALL)


@dataclasses.dataclass(frozen=True)
class SentencePieceTokenizer(Tokenizer):
    """Encodes text to ids by a SentencePiece model; see `Tokenizer` for decoding.

    Published translators have ids of their own for the pieces of the model: `vocab`.

    Args:
        model: content of a .model or .spm file, bytes.
        vocab: {piece: id}; pieces that are not in it are unknown. By default the model's own.
        unknown: id of unknown pieces.
        control: pieces that are not text: `decode` leaves them out.
        vocab_size: number of ids, at least as many as in `vocab` or the model.
        prefix: ids at the beginning of each text, such as a language code.
        language_prefixes: whether a text may begin with a language code such as ">>es<<", which is
            one token of `vocab`.

    Raises:
        TokenizerError: if the model or the vocabulary is invalid.
    """

    model: bytes = dataclasses.field(repr=False)
    vocab: dict | None = dataclasses.field(default=None, repr=False)
    unknown: int | None = None
    control: tuple[str, ...] = ()
    vocab_size: int | None = None
    prefix: tuple[int, ...] = ()
    language_prefixes: bool = False

    kind = "sentencepiece"
    space = SPACE

    def __post_init__(self):
        proto = self.proto  # raises an error if the model is invalid
        processor = self._processor
        if self.vocab is None:
            control = tuple(p.piece for p in proto.pieces if p.type == p.CONTROL)
            size = max(len(processor), self.vocab_size or 0)
            object.__setattr__(self, "unknown", processor.unk_id())  # the dataclass is frozen
            object.__setattr__(self, "control", control)
            object.__setattr__(self, "vocab_size", size)
        vocab = self.vocab or {}
        as_ids([*vocab.values(), self.unknown, *self.prefix], self.vocab_size)
        for piece, id in vocab.items():
            other = self.tokens[id]
            if other != piece:
                raise TokenizerError(f"The tokens {piece!r} and {other!r} have the same id.")

    def __reduce__(self):  # the library's objects in cached properties cannot be copied
        return type(self), tuple(getattr(self, each.name) for each in dataclasses.fields(self))

    def encode(self, texts):
        """Encodes texts, with `prefix` but without control ids: a list of ids for each text.

        Raises:
            TokenizerError: if `texts` is one str, or an item is not a str or has a lone surrogate.
        """
        texts = as_texts(texts)
        if self.vocab is None:
            return [[*self.prefix, *row] for row in self._processor.encode(texts)]
        codes = [self._language_code(text) for text in texts]
        texts = [text[len(code) :] for code, text in zip(codes, texts)]
        rows = []
        for code, pieces in zip(codes, self._processor.encode(texts, out_type=str)):
            if code:
                pieces = [code, *pieces]
            ids = [self.vocab.get(piece, self.unknown) for piece in pieces]
            rows.append([*self.prefix, *ids])
        return rows

    def _language_code(self, text):
        match = LANGUAGE.match(text) if self.language_prefixes else None
        return match[0] if match else ""

    def pieces(self, ids):
        """Returns a label for each id of one sequence: its text, "<0xE2>" for a byte, or "</s>"."""
        ids = as_ids(ids, self.vocab_size)
        return [self.tokens.get(id, "").replace(SPACE, " ") for id in ids]

    def with_pieces(self, control, vocab_size):
        """Returns a tokenizer of the same ids, and of further ones for pieces that are control.

        Unlike the model's own control pieces, these may occur in texts, such as T5's sentinels.

        Args:
            control: the new pieces; their ids follow those of the model.
            vocab_size: number of ids, at least as many as there are pieces.
        """
        proto = sentencepiece_model_pb2.ModelProto.FromString(self.model)
        for piece in control:
            proto.pieces.add(piece=piece, type=proto.SentencePiece.USER_DEFINED)
        return SentencePieceTokenizer(
            proto.SerializeToString(),
            vocab={piece.piece: id for id, piece in enumerate(proto.pieces)},
            unknown=self.unknown,
            control=(*self.control, *control),
            vocab_size=vocab_size,
        )

    def with_normalization(self, normalization):
        """Returns a tokenizer with the same ids and another normalization; see `train_tokenizer`.

        This is for tokenizers that `train_tokenizer` returned.
        """
        proto = sentencepiece_model_pb2.ModelProto.FromString(self.model)
        normalizer = _normalizer(normalization).serialized_model_proto()
        rule = sentencepiece_model_pb2.ModelProto.FromString(normalizer).normalizer_spec
        spec = proto.normalizer_spec
        spec.name = normalization
        spec.precompiled_charsmap = rule.precompiled_charsmap
        is_word = proto.trainer_spec.model_type == proto.trainer_spec.WORD
        spec.remove_extra_whitespaces = is_word or normalization != "identity"
        return SentencePieceTokenizer(proto.SerializeToString())

    @functools.cached_property
    def proto(self):
        """The model's tables: `sentencepiece_model_pb2.ModelProto`."""
        try:
            proto = sentencepiece_model_pb2.ModelProto.FromString(self.model)
        except DecodeError:
            raise TokenizerError("It is not a SentencePiece model.") from None
        # Both follow the pieces. A file that ends between two pieces is a model without them.
        if not (proto.HasField("trainer_spec") and proto.HasField("normalizer_spec")):
            raise TokenizerError("The SentencePiece model is not complete.")
        if proto.denormalizer_spec.precompiled_charsmap:
            raise TokenizerError("A SentencePiece model with denormalization is not supported.")
        return proto

    @functools.cached_property
    def tokens(self):
        """{id: piece}."""
        if self.vocab is None:
            return {id: piece.piece for id, piece in enumerate(self.proto.pieces)}
        return {id: piece for piece, id in self.vocab.items()}

    @functools.cached_property
    def token_bytes(self):
        """See `Tokenizer`."""
        special = {}
        for piece in self.proto.pieces:
            if piece.type == piece.BYTE:  # such as "<0xE2>"
                special[piece.piece] = bytes.fromhex(piece.piece[3:5])
        unknown = self._processor.id_to_piece(self._processor.unk_id())
        special[unknown] = self.proto.trainer_spec.unk_surface.encode()
        special |= dict.fromkeys(self.control, b"")
        tokens = [self.tokens.get(id, "") for id in range(self.vocab_size)]
        return [special.get(token, token.encode()) for token in tokens]

    @property
    def strips(self):
        """See `Tokenizer`."""
        return self.proto.normalizer_spec.remove_extra_whitespaces

    @property
    def adds_space(self):
        """See `Tokenizer`."""
        return self.proto.normalizer_spec.add_dummy_prefix

    @functools.cached_property
    def _processor(self):
        try:
            return sentencepiece.SentencePieceProcessor(model_proto=self.model)
        except RuntimeError as error:
            raise TokenizerError(f"The SentencePiece model is not valid: {error}") from None


def train_tokenizer(lines, kind="bpe", vocab_size=8000, normalization="nmt_nfkc"):
    """Trains a SentencePiece model; the same lines give the same model on every machine.

    - "unigram": the most probable segmentation into pieces, of which each has a probability.
    - "bpe": byte-pair encoding, merges of the most frequent pairs.
    - "word": the most frequent words, separated by spaces, with their punctuation.
    - "character": the most frequent characters.

    Ids: padding, start, end and unknown; the 256 bytes; then the learned pieces. Text outside the
    vocabulary is encoded as bytes, so the round trip is exact up to the normalization:

    - "nmt_nfkc": Unicode's NFKC; line ends, tabs and other white space become spaces, and spaces
      are removed at both ends and next to others. "nfkc" is the same with the characters of
      Unicode's NFKC only, and "nmt_nfkc_cf" and "nfkc_cf" fold case as well.
    - "identity": none, but "▁" (U+2581) is a space. Spaces are kept, except by the kind "word".

    Args:
        lines: iterable of str.
        kind: "unigram", "bpe", "word" or "character".
        vocab_size: maximum number of ids; a small corpus gives fewer.
        normalization: "nmt_nfkc", "nmt_nfkc_cf", "nfkc", "nfkc_cf" or "identity".

    Raises:
        ValueError: if the kind or the normalization is unknown.
        TokenizerError: if the size is too small, or there is no text.
    """
    check_choice("kind", kind, tuple(KINDS))
    check_choice("normalization", normalization, NORMALIZATIONS)
    if not isinstance(vocab_size, int) or not _SMALLEST <= vocab_size <= _LARGEST:
        raise TokenizerError(
            f"vocab_size must be an integer from {_SMALLEST}, the number of control ids and bytes, "
            f"to {_LARGEST}. Received: {vocab_size}."
        )
    lines = [line for line in as_texts(list(lines)) if line.strip()]
    if not lines:
        raise TokenizerError("There is no text to train a tokenizer on: all lines are empty.")
    keeps_spaces = normalization == "identity" and kind != "word"
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_short_lines(lines),
            model_writer=model,
            model_type=KINDS[kind],
            vocab_size=vocab_size,
            normalization_rule_name=normalization,
            remove_extra_whitespaces=not keeps_spaces,
            pad_id=PAD_ID,
            bos_id=BOS_ID,
            eos_id=EOS_ID,
            unk_id=UNKNOWN_ID,
            byte_fallback=True,
            character_coverage=0.9999,  # characters that are rarer are spelled in bytes
            hard_vocab_limit=False,
            num_threads=16,  # on every machine: scores are sums, in an order that depends on it
            minloglevel=3,
        )
    except RuntimeError as error:
        message = re.sub(r"^.*\] *| or decrease character_coverage.*option", "", str(error))
        raise TokenizerError(f"The tokenizer cannot be trained: {message}") from None
    return SentencePieceTokenizer(model.getvalue())


def normalize(lines, normalization):
    """Returns lines as the tokenizers of this normalization see them; see `train_tokenizer`."""
    return _normalizer(normalization).normalize(list(lines))


def _normalizer(normalization):
    return sentencepiece.SentencePieceNormalizer(
        rule_name=normalization,
        add_dummy_prefix=False,
        escape_whitespaces=False,
        remove_extra_whitespaces=normalization != "identity",
    )


def _short_lines(lines):
    """Yields lines in parts of at most `_LONGEST_LINE` characters."""
    for line in lines:
        for start in range(0, len(line), _LONGEST_LINE):
            yield line[start : start + _LONGEST_LINE]
