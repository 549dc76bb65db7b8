"""SentencePiece models as a TensorFlow graph of core ops.

Source: the library `sentencepiece`: normalizer.cc, unigram_model.cc and bpe_model.cc.
Axes: B texts, W distinct words of all texts, n bytes of all words, concatenated; k tokens.
"""

import tensorflow as tf

from zoo.deploy.errors import ExportError
from zoo.deploy.merge_graph import END, Merges, bytes_of, hash_table, ragged
from zoo.deploy.sentencepiece_rules import Normalizer
from zoo.deploy.trie_graph import LONGEST_CHARACTER, NO_LIMIT, Viterbi
from zoo.text.sentencepiece import SPACE

_UNIGRAM, _BPE = 1, 2  # of `TrainerSpec.ModelType`
_UNKNOWN_PENALTY = 10.0  # unigram_model.cc: kUnkPenalty


class SentencePieceWords(tf.Module):
    """The words of a `zoo.text.sentencepiece.SentencePieceTokenizer`, without its prefix.

    They begin with `SPACE`, except for a language code at the beginning of a text.

    Raises:
        ExportError: if the model has options that are not covered.
    """

    def __init__(self, tokenizer):
        super().__init__()
        _check(tokenizer.proto)
        self._normalize = Normalizer(tokenizer.proto.normalizer_spec.precompiled_charsmap)
        self._language = r"(?s)^>>.*?<<" if tokenizer.language_prefixes else "^$"

    def __call__(self, texts):
        """Marks the words of texts, string [B] to string [B]."""
        texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")
        rest = tf.strings.regex_replace(texts, self._language, "", replace_global=False)
        size = tf.strings.length(texts) - tf.strings.length(rest)
        code = tf.strings.substr(texts, tf.zeros_like(size), size)
        words = tf.strings.regex_replace(self._normalize(rest), SPACE, END + rb"\0")
        return tf.strings.join([code, words])


class SentencePieces(tf.Module):
    """Splits the words of a `SentencePieceTokenizer` into tokens.

    Ids are those of the library, except that it adds log-probabilities in half the precision: of
    segmentations that are equally probable to 6 digits, it may choose another one.
    """

    def __init__(self, tokenizer):
        super().__init__()
        kinds = {_UNIGRAM: _Unigram, _BPE: _PairMerges}
        self._split = kinds[tokenizer.proto.trainer_spec.model_type](tokenizer.proto.pieces)
        vocab = {token.encode(): id for token, id in tokenizer.vocab.items()}
        self._vocab = hash_table(vocab, END, tokenizer.unknown)

    def __call__(self, words):
        """Splits words, string [W], into ragged int64 [W, None]."""
        starts, sizes, unknown = self._split(words)
        ends = tf.cumsum(tf.cast(tf.strings.length(words), tf.int64))
        rows = tf.searchsorted(ends, starts, side="right", out_type=tf.int64)
        # A run of unknown characters is one token, and so is a language code.
        is_code = ~tf.strings.regex_full_match(words, f"(?s){SPACE}.*")
        whole = unknown | tf.gather(is_code, rows)
        before = tf.concat([[False], whole[:-1]], axis=0)
        same_word = rows == tf.concat([[-1], rows[:-1]], axis=0)
        is_first = ~(whole & before & same_word)
        runs = tf.cumsum(tf.cast(is_first, tf.int64)) - 1
        sizes = tf.math.segment_sum(sizes, runs)
        values = tf.strings.bytes_split(words).values
        tokens = tf.RaggedTensor.from_row_lengths(values, sizes, validate=False)
        tokens = tf.strings.reduce_join(tokens, axis=-1)
        return ragged(self._vocab.lookup(tokens), rows[is_first], tf.size(words))


class _Unigram(tf.Module):
    """The most probable tokens of words [W]: first bytes, sizes, and whether they are unknown."""

    def __init__(self, pieces):
        super().__init__()
        known = {p.piece.encode(): id for id, p in enumerate(pieces) if p.type == p.NORMAL}
        self._unknown = len(pieces)
        scores = [piece.score for piece in pieces]
        lowest = min(scores[id] for id in known.values())
        scores.append(lowest - _UNKNOWN_PENALTY)
        self._viterbi = Viterbi(known, scores, NO_LIMIT, self._unknown)

    def __call__(self, words):
        starts, sizes, ids = self._viterbi.split(*bytes_of(words))
        return starts, sizes, ids == self._unknown


class _PairMerges(tf.Module):
    """Byte-pair encoding of words [W]; returns the same as `_Unigram`."""

    def __init__(self, pieces):
        super().__init__()
        known = {p.piece: id for id, p in enumerate(pieces) if p.type == p.NORMAL}
        alone = sorted({*"".join(known)} - known.keys())  # characters that are not pieces
        self._first_unknown = len(pieces)
        symbols = known | {c: id for id, c in enumerate(alone, len(pieces))}
        by_score = sorted(known, key=lambda piece: -pieces[known[piece]].score)
        ranks = {
            (symbols[piece[:at]], symbols[piece[at:]]): (rank, known[piece])
            for rank, piece in enumerate(by_score)
            for at in range(1, len(piece))
            if piece[:at] in symbols and piece[at:] in symbols
        }
        others = range(1, LONGEST_CHARACTER + 1)  # bytes of any other character
        sizes = [len(p.piece.encode()) for p in pieces] + [len(c.encode()) for c in alone]
        self._first_other = len(sizes) - 1
        self._sizes = tf.constant([*sizes, *others], tf.int64)
        self._merges = Merges(ranks, len(sizes) + len(others))
        characters = {c.encode(): id for c, id in symbols.items() if len(c) == 1}
        self._characters = hash_table(characters, END, -1)

    def __call__(self, words):
        characters = tf.strings.unicode_split(words, "UTF-8")
        ids = self._characters.lookup(characters.values)
        others = tf.strings.length(characters.values)
        others = tf.cast(others, tf.int64) + self._first_other
        ids = tf.where(ids < 0, others, ids)
        ids = self._merges(ids, characters.value_rowids(), tf.size(words)).values
        sizes = tf.gather(self._sizes, ids)
        return tf.cumsum(sizes, exclusive=True), sizes, ids >= self._first_unknown


def _check(proto):
    """Raises `ExportError` for options that published models do not have."""
    normalizer, trainer = proto.normalizer_spec, proto.trainer_spec
    kinds = {piece.type for piece in proto.pieces}
    texts = {piece.piece for piece in proto.pieces}
    problems = {
        f"model_type {trainer.model_type}": trainer.model_type not in (_UNIGRAM, _BPE),
        "treat_whitespace_as_suffix": trainer.treat_whitespace_as_suffix,
        "no add_dummy_prefix": not normalizer.add_dummy_prefix,
        "no remove_extra_whitespaces": not normalizer.remove_extra_whitespaces,
        "no escape_whitespaces": not normalizer.escape_whitespaces,
        "user-defined or unused pieces": bool(kinds - {1, 2, 3}),
        "spaces inside pieces": any(SPACE in text[1:] for text in texts) or SPACE not in texts,
    }
    found = [problem for problem, exists in problems.items() if exists]
    if found:
        raise ExportError(
            f"The SentencePiece model has options that a SavedModel does not support: "
            f"{', '.join(found)}."
        )
