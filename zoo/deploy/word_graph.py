"""The tokenizers of `zoo.text.tokenizer` as a TensorFlow graph of core operations.

Axes: B texts, W distinct words of all texts, n tokens of all words, concatenated.
"""

import math
import re

import tensorflow as tf

from zoo.deploy import trie_graph
from zoo.deploy.merge_graph import END, ByteMerges, hash_table
from zoo.deploy.published_words import library_ranges
from zoo.deploy.unicode_graph import LARGEST_SHRINKAGE, NormalFormC
from zoo.text.tokenizer import SPLIT_PATTERNS

_NO_TOKEN = "<pad>"  # label of ids outside the vocabulary


class WordGraph(tf.Module):
    """A tokenizer on tensors, with the same ids, texts and labels, but without its prefix.

    Always runs on the CPU.

    Args:
        tokenizer: `zoo.text.tokenizer.Tokenizer`.

    Attributes:
        longest_token: maximum number of bytes of text, before normalization, that one token can
            represent: a text of n bytes has at least n / longest_token tokens.
    """

    def __init__(self, tokenizer):
        super().__init__()
        spelled, kind = tokenizer.token_bytes, tokenizer.kind
        longest_token = math.ceil(LARGEST_SHRINKAGE * max(map(len, spelled)))
        self.longest_token = longest_token
        self._vocab_size = tokenizer.vocab_size
        self._added_spaces = "^ "
        segments = {"wordpiece": trie_graph.longest_match_of, "unigram": trie_graph.viterbi_of}
        with tf.device("CPU"):
            self._mark = _Words(tokenizer)
            self._segment = segments.get(kind, ByteMerges)(tokenizer)
            self._spelled = tf.constant([*spelled, b""])
            labels = tokenizer.pieces(range(tokenizer.vocab_size))
            self._labels = tf.constant([*labels, _NO_TOKEN])
            self._words = hash_table(_known_words(tokenizer, self._segment), END, -1)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def encode(self, texts):
        """Encodes texts like the tokenizer's `encode`, without control ids.

        Args:
            texts: string [B]. Invalid UTF-8 is replaced by U+FFFD, as by
                `bytes.decode(errors="replace")`.

        Returns:
            RaggedTensor int32 [B, None]; an empty text has no ids.
        """
        with tf.device("CPU"):
            # Words that are empty, such as those after the last mark, have no ids.
            words = tf.strings.split(self._mark(texts), END)
            distinct, index = tf.unique(words.values)
            ids = tf.gather(self._encode_words(distinct), index)
            return tf.cast(words.with_values(ids).merge_dims(1, 2), tf.int32)

    def decode(self, ids):
        """Decodes sequences of ids like the tokenizer's `decode`.

        Args:
            ids: int32 [..., T]. Control ids and ids outside the vocabulary are skipped.

        Returns:
            string [...]. Invalid UTF-8 is replaced by U+FFFD.
        """
        with tf.device("CPU"):
            texts = tf.strings.reduce_join(tf.gather(self._spelled, self._known(ids)), axis=-1)
            if self._added_spaces is not None:
                texts = tf.strings.regex_replace(texts, self._added_spaces, "")
            return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")

    def pieces(self, ids):
        """Returns a label for each id like the tokenizer: int32 [...] to string [...]."""
        with tf.device("CPU"):
            return tf.gather(self._labels, self._known(ids))

    def _known(self, ids):
        return tf.where((ids >= 0) & (ids < self._vocab_size), ids, self._vocab_size)

    def _encode_words(self, words):
        """Encodes words, string [W], to ids, ragged int64 [W, None]."""
        whole = self._words.lookup(words)
        # A known word is represented by one dummy byte, which is one token.
        ids = self._segment(tf.where(whole < 0, words, "?"))
        known = tf.gather(whole, ids.value_rowids())
        return ids.with_values(tf.where(known < 0, ids.values, known))


class _Words(tf.Module):
    """The words of a `Tokenizer`, each with `END` after it: string [B] to string [B]."""

    def __init__(self, tokenizer):
        super().__init__()
        self._normalize = NormalFormC()
        self._pattern = _graph_pattern(tokenizer.kind)

    def __call__(self, texts):
        texts = self._normalize(texts)
        texts = tf.where(texts == "", "", tf.strings.join([" ", texts]))
        return tf.strings.regex_replace(texts, self._pattern, rb"\0" + END)


def _known_words(tokenizer, segment):
    """Returns {bytes: id} for the words that are one token.

    Args:
        tokenizer: of `TextGraph`.
        segment: that of the tokenizer.
    """
    spelled = tokenizer.token_bytes
    if tokenizer.kind in ("word", "character"):
        return {word: id for id, word in enumerate(spelled) if len(word) > 1}
    # Some tokens are not the result of splitting their own bytes; these are left out.
    ids = segment(tf.constant(spelled)).to_list()
    return {word: row[0] for word, row in zip(spelled, ids) if len(row) == 1}


def _graph_pattern(kind):
    """The split pattern of a kind for RE2, with explicit ranges of letters, marks and digits.

    The Unicode tables of the library `tokenizers` are newer than those of TensorFlow.
    """
    return re.sub(r"\\p\{\w\}", lambda escape: library_ranges(escape[0]), SPLIT_PATTERNS[kind])
