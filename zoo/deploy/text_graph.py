"""A tokenizer as a TensorFlow graph of core ops, so that a server needs only TensorFlow.

Axes: B texts, W distinct words of all texts, n tokens of all words, concatenated.
"""

import functools
import math
import re

import tensorflow as tf
from tokenizers import Regex, normalizers

from zoo.deploy.unicode_graph import LARGEST_SHRINKAGE, NormalFormC, character_ranges
from zoo.text import BOS_ID, EOS_ID, PAD_ID
from zoo.text.tokenizer import BYTE_ALPHABET, SPLIT_PATTERNS

_FIRST_BYTE = len((PAD_ID, BOS_ID, EOS_ID))  # the id of byte 0
_FIRST_LEARNED = _FIRST_BYTE + 256
_END = b"\xff"  # marks the end of a word; this byte does not occur in UTF-8
_NO_MERGE = 2**62  # value of a pair of tokens that cannot be merged


class TextGraph(tf.Module):
    """`zoo.text.tokenizer.Tokenizer` on tensors, with the same ids, texts and labels.

    Always runs on the CPU. Source of the merges: Sennrich et al. 2016, "Neural
    Machine Translation of Rare Words with Subword Units", section 3.2.

    Args:
        tokenizer: `Tokenizer` of any kind.

    Attributes:
        longest_token: maximum number of bytes of text, before normalisation, that one token can
            represent: a text of n bytes has at least n / longest_token tokens.
    """

    def __init__(self, tokenizer):
        super().__init__()
        learned = [bytes(map(BYTE_ALPHABET.index, token)) for token in tokenizer.tokens]
        spelled = [b""] * _FIRST_BYTE + [bytes([byte]) for byte in range(256)] + learned
        self.longest_token = math.ceil(LARGEST_SHRINKAGE * max(map(len, spelled)))
        self._vocab_size = tokenizer.vocab_size
        self._pattern = _graph_pattern(tokenizer.kind)
        with tf.device("CPU"):
            self._normalize = NormalFormC()
            self._spelled = tf.constant(spelled)
            self._labels = tf.constant(tokenizer.pieces(range(tokenizer.vocab_size)))
            self._merges = _Merges(tokenizer)
            ids = range(_FIRST_LEARNED, tokenizer.vocab_size)
            if tokenizer.kind == "subword":
                # Some tokens are never the result of merging their own bytes; these are left out.
                lengths = self._merges(*_bytes(tf.constant(learned, tf.string)), len(learned))
                ids = [id for id, length in zip(ids, lengths.row_lengths()) if length == 1]
            self._words = _hash_table({spelled[id]: id for id in ids}, _END, -1)

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
        # A known word is represented by one dummy byte, which has nothing to merge with.
        tokens, rows = _bytes(tf.where(whole < 0, words, "?"))
        known = tf.gather(whole, rows)
        return self._merges(tf.where(known < 0, tokens, known), rows, tf.size(words))


class _Merges(tf.Module):
    """Byte-pair encoding: repeatedly merges the leftmost pair of the lowest rank in each word.

    Every step merges one pair in each of the words in parallel. Unless the merged token can be part
    of a pair of a lower rank (only tokens with several merges can), a step merges all occurrences
    of the pair in a word: the sequential algorithm would do the same in its next steps.
    """

    def __init__(self, tokenizer):
        super().__init__()
        strings = (*BYTE_ALPHABET, *tokenizer.tokens)
        ids = {string: id for id, string in enumerate(strings, _FIRST_BYTE)}
        self._size = tokenizer.vocab_size
        merges = [(ids[left], ids[right], ids[left + right]) for left, right in tokenizer.merges]
        # If a pair is listed twice, its last rank is used, as in the library.
        ranks = {(left, right): (rank, id) for rank, (left, right, id) in enumerate(merges)}
        first_use = {}
        for pair, (rank, _) in ranks.items():
            for id in pair:
                first_use[id] = min(rank, first_use.get(id, rank))
        values = {
            left * self._size + right: rank * self._size + id
            for (left, right), (rank, id) in ranks.items()
        }
        one_by_one = [first_use.get(id, rank) < rank for rank, (*_, id) in enumerate(merges)]
        self._values = _hash_table(values, -2, _NO_MERGE)
        self._one_by_one = tf.constant([*one_by_one, False])  # False: no constant is empty

    def __call__(self, tokens, rows, num_words):
        """Merges tokens [n] with word indices [n], int64, to ragged int64 [num_words, None]."""
        values = self._pair_values(tokens, rows, tf.range(tf.size(tokens)))
        tokens, rows, _ = tf.while_loop(
            lambda tokens, rows, values: tf.reduce_any(values < _NO_MERGE),
            self._step,
            (tokens, rows, values),
            shape_invariants=(tf.TensorShape([None]),) * 3,
        )
        num_words = tf.cast(num_words, tf.int64)
        return tf.RaggedTensor.from_value_rowids(tokens, rows, num_words, validate=False)

    def _step(self, tokens, rows, values):
        lowest = tf.gather(tf.math.segment_min(values, rows), rows)
        at = tf.cast(tf.where((values == lowest) & (values < _NO_MERGE))[:, 0], tf.int32)
        at = at[self._chosen(at, tf.gather(rows, at), tf.gather(values, at) // self._size)]
        merged = tf.gather(values, at) % self._size
        tokens = tf.tensor_scatter_nd_update(tokens, at[:, None], merged)
        removed = tf.scatter_nd(at[:, None] + 1, tf.ones_like(at), tf.shape(tokens))
        kept = tf.where(removed == 0)[:, 0]
        tokens, rows, values = (tf.gather(each, kept) for each in (tokens, rows, values))
        at -= tf.range(tf.size(at))  # the number of tokens removed before it
        changed = tf.concat([at, tf.maximum(at - 1, 0)], axis=0)
        updates = self._pair_values(tokens, rows, changed)
        return tokens, rows, tf.tensor_scatter_nd_update(values, changed[:, None], updates)

    def _chosen(self, at, rows, ranks):
        """Which of the lowest pairs, at the ascending indices `at`, are merged in this step."""
        before = tf.concat([[-2], at[:-1]], axis=0)
        apart = at != before + 1
        # In "aaaa" the pairs overlap: of adjacent pairs, every second one is merged.
        order = tf.range(tf.size(at))
        start = tf.gather(order[apart], tf.cumsum(tf.cast(apart, tf.int32)) - 1)
        leftmost = rows != tf.concat([[-1], rows[:-1]], axis=0)
        return ((order - start) % 2 == 0) & (leftmost | ~tf.gather(self._one_by_one, ranks))

    def _pair_values(self, tokens, rows, at):
        """rank * vocabulary size + merged id of the pairs that start at the indices `at`."""
        after = tf.minimum(at + 1, tf.size(tokens) - 1)
        pairs = tf.gather(tokens, at) * self._size + tf.gather(tokens, after)
        same_word = (at < after) & (tf.gather(rows, at) == tf.gather(rows, after))
        return self._values.lookup(tf.where(same_word, pairs, -1))


def _bytes(words):
    """Splits words, string [W], into byte ids [n] and word indices [n], int64."""
    values = tf.io.decode_raw(tf.strings.reduce_join(words), tf.uint8)
    rows = tf.repeat(tf.range(tf.size(words, tf.int64)), tf.strings.length(words))
    return tf.cast(values, tf.int64) + _FIRST_BYTE, rows


def _hash_table(numbers, unused, default):
    """Makes a lookup table of {key: int}; the key `unused` keeps it from being empty."""
    numbers = {unused: default, **numbers}
    dtype = tf.string if isinstance(unused, bytes) else tf.int64
    initializer = tf.lookup.KeyValueTensorInitializer(
        tf.constant([*numbers], dtype), tf.constant([*numbers.values()], tf.int64)
    )
    return tf.lookup.StaticHashTable(initializer, default)


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
