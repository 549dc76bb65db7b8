"""A tokenizer as a TensorFlow graph of core ops, so that a server needs only TensorFlow.

Axes: B texts, W distinct words of all texts, n tokens of all words, concatenated.
"""

import functools
import math
import re

import tensorflow as tf
from tokenizers import Regex, normalizers

from zoo.deploy.merge_graph import bytes_of, hash_table, merges_of
from zoo.deploy.trie_graph import FIRST_LEARNED, LongestMatch, viterbi_of
from zoo.deploy.unicode_graph import LARGEST_SHRINKAGE, NormalFormC, character_ranges
from zoo.text import PAD_ID
from zoo.text.tokenizer import SPLIT_PATTERNS

_END = b"\xff"  # marks the end of a word; this byte does not occur in UTF-8


def text_graphs(source, target):
    """Two tokenizers as `tf.Module`s with the methods `encode`, `decode` and `pieces`.

    Tokenizers that differ in their prefix alone share one, which adds no prefix.

    Args:
        source, target: `zoo.text.tokenizer.Tokenizer` or
            `zoo.text.sentencepiece.SentencePieceTokenizer`.

    Raises:
        ExportError: if a SentencePiece model has options that the graph does not cover.
    """
    make = TextGraph
    if source.kind == "sentencepiece":
        from zoo.deploy.sentencepiece_graph import SentencePieceGraph

        make, source, target = SentencePieceGraph, source.with_prefix(), target.with_prefix()
    graph = make(source)
    return graph, graph if source == target else make(target)


class TextGraph(tf.Module):
    """`zoo.text.tokenizer.Tokenizer` on tensors, with the same ids, texts and labels.

    Always runs on the CPU.

    Args:
        tokenizer: `Tokenizer` of any kind.

    Attributes:
        longest_token: maximum number of bytes of text, before normalisation, that one token can
            represent: a text of n bytes has at least n / longest_token tokens.
    """

    def __init__(self, tokenizer):
        super().__init__()
        spelled = tokenizer.token_bytes
        self.longest_token = math.ceil(LARGEST_SHRINKAGE * max(map(len, spelled)))
        self._vocab_size = tokenizer.vocab_size
        self._pattern = _graph_pattern(tokenizer.kind)
        with tf.device("CPU"):
            self._normalize = NormalFormC()
            self._spelled = tf.constant(spelled)
            self._labels = tf.constant(tokenizer.pieces(range(tokenizer.vocab_size)))
            self._segment = _segmentation(tokenizer)
            self._words = hash_table(_known_words(tokenizer, self._segment), _END, -1)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def encode(self, texts):
        """Encodes texts like `Tokenizer.encode`, without control ids.

        Args:
            texts: string [B]. Invalid UTF-8 is replaced by U+FFFD, as by
                `bytes.decode(errors="replace")`.

        Returns:
            RaggedTensor int32 [B, None]; an empty text has no ids.
        """
        with tf.device("CPU"):
            texts = self._normalize(texts)
            texts = tf.where(texts == "", "", tf.strings.join([" ", texts]))
            marked = tf.strings.regex_replace(texts, self._pattern, rb"\0" + _END)
            # The last word of each row, after the last mark, is empty and has no ids.
            words = tf.strings.split(marked, _END)
            distinct, index = tf.unique(words.values)
            ids = tf.gather(self._encode_words(distinct), index)
            return tf.cast(words.with_values(ids).merge_dims(1, 2), tf.int32)

    def decode(self, ids):
        """Decodes sequences of ids like `Tokenizer.decode`.

        Args:
            ids: int32 [..., T]. Control ids and ids outside the vocabulary are skipped.

        Returns:
            string [...]. Invalid UTF-8 is replaced by U+FFFD.
        """
        with tf.device("CPU"):
            texts = tf.strings.reduce_join(tf.gather(self._spelled, self._known(ids)), axis=-1)
            texts = tf.strings.regex_replace(texts, "^ ", "", replace_global=False)
            return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")

    def pieces(self, ids):
        """Returns a label for each id like `Tokenizer.pieces`: int32 [...] to string [...]."""
        with tf.device("CPU"):
            return tf.gather(self._labels, self._known(ids))

    def _known(self, ids):
        return tf.where((ids >= 0) & (ids < self._vocab_size), ids, PAD_ID)

    def _encode_words(self, words):
        """Encodes words, string [W], to ids, ragged int64 [W, None]."""
        whole = self._words.lookup(words)
        # A known word is represented by one dummy byte, which is one token.
        ids = self._segment(*bytes_of(tf.where(whole < 0, words, "?")), tf.size(words))
        known = tf.gather(whole, ids.value_rowids())
        return ids.with_values(tf.where(known < 0, ids.values, known))


def _segmentation(tokenizer):
    """Returns the `tf.Module` that splits words into the tokens of a `Tokenizer`."""
    kinds = {"wordpiece": LongestMatch, "unigram": viterbi_of}
    return kinds.get(tokenizer.kind, merges_of)(tokenizer)


def _known_words(tokenizer, segment):
    """Returns {bytes: id} for the words that are one token.

    Args:
        tokenizer: `Tokenizer`.
        segment: `_segmentation(tokenizer)`.
    """
    learned = tokenizer.token_bytes[FIRST_LEARNED:]
    if tokenizer.kind in ("word", "character"):
        return dict(zip(learned, range(FIRST_LEARNED, tokenizer.vocab_size)))
    # Some tokens are not the result of splitting their own bytes; these are left out.
    ids = segment(*bytes_of(tf.constant(learned, tf.string)), len(learned)).to_list()
    return {word: row[0] for word, row in zip(learned, ids) if len(row) == 1}


def _graph_pattern(kind):
    """The split pattern of a kind for RE2, with explicit ranges of letters, marks and digits.

    The Unicode tables of the library `tokenizers` are newer than those of TensorFlow.
    """
    bracketed_or_not = re.compile(r"(\[[^]]+\])|\\p\{(\w)\}")

    def expand(match):
        if match[1] is None:
            return f"[{_library_ranges(match[2])}]"
        return re.sub(r"\\p\{(\w)\}", lambda inner: _library_ranges(inner[1]), match[1])

    return bracketed_or_not.sub(expand, SPLIT_PATTERNS[kind])


@functools.cache
def _library_ranges(category):
    every = "".join(map(chr, (*range(0xD800), *range(0xE000, 0x110000))))
    others = normalizers.Replace(Regex(rf"\P{{{category}}}+"), "")
    return character_ranges(others.normalize_str(every))
