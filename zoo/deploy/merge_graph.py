"""Byte-pair encoding as a TensorFlow graph of core ops.

Axes: W words, n tokens of all words, concatenated.
"""

import tensorflow as tf

from zoo.text.tokenizer import BYTE_ALPHABET

END = b"\xff"  # marks the end of a word; this byte does not occur in UTF-8
_NO_MERGE = 2**62  # value of a pair of tokens that cannot be merged


class Merges(tf.Module):
    """Byte-pair encoding: repeatedly merges the leftmost pair of the lowest rank in each word.

    Every step merges one pair in each of the words in parallel. Unless the merged token can be part
    of a pair of a lower rank (only tokens with several merges can), a step merges all occurrences
    of the pair in a word: the sequential algorithm would do the same in its next steps.

    Source: Sennrich et al. 2016, "Neural Machine Translation of Rare Words with Subword Units",
    section 3.2.
    """

    def __init__(self, ranks, size):
        """Creates the tables.

        Args:
            ranks: {(left, right): (rank, merged)} of pairs of tokens; a rank has one merged token.
            size: larger than any token.
        """
        super().__init__()
        self._size = size
        first_use = {}
        for pair, (rank, _) in ranks.items():
            for id in pair:
                first_use[id] = min(rank, first_use.get(id, rank))
        values = {
            left * self._size + right: rank * self._size + id
            for (left, right), (rank, id) in ranks.items()
        }
        merged = dict(ranks.values())
        one_by_one = [
            first_use.get(merged.get(rank), rank) < rank
            for rank in range(max(merged, default=-1) + 1)
        ]
        self._values = hash_table(values, -2, _NO_MERGE)
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
        return ragged(tokens, rows, num_words)

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


class ByteMerges(tf.Module):
    """Byte-pair encoding of words, which are bytes.

    Args:
        tokenizer: `zoo.text.tokenizer.Tokenizer` or `zoo.text.published.ByteLevelBPETokenizer`.
    """

    def __init__(self, tokenizer):
        super().__init__()
        ids = tokenizer.vocab
        merges = [(ids[left], ids[right], ids[left + right]) for left, right in tokenizer.merges]
        # If a pair is listed twice, its last rank is used, as in the library.
        ranks = {(left, right): (rank, id) for rank, (left, right, id) in enumerate(merges)}
        self._merges = Merges(ranks, tokenizer.vocab_size)
        self._ids = tf.constant([ids[byte] for byte in BYTE_ALPHABET], tf.int64)

    def __call__(self, words):
        """Splits words, string [W], into ragged int64 [W, None]."""
        values, rows = bytes_of(words)
        return self._merges(tf.gather(self._ids, values), rows, tf.size(words))


def bytes_of(words):
    """Splits words, string [W], into bytes [n] and word indices [n], int64."""
    values = tf.io.decode_raw(tf.strings.reduce_join(words), tf.uint8)
    rows = tf.repeat(tf.range(tf.size(words, tf.int64)), tf.strings.length(words))
    return tf.cast(values, tf.int64), rows


def hash_table(numbers, unused, default):
    """Makes a lookup table of {key: int}; the key `unused` keeps it from being empty."""
    numbers = {unused: default, **numbers}
    dtype = tf.string if isinstance(unused, bytes) else tf.int64
    initializer = tf.lookup.KeyValueTensorInitializer(
        tf.constant([*numbers], dtype), tf.constant([*numbers.values()], tf.int64)
    )
    return tf.lookup.StaticHashTable(initializer, default)


def ragged(ids, rows, num_words):
    """Groups ids [n] with word indices [n] by word: ragged int64 [num_words, None]."""
    num_words = tf.cast(num_words, tf.int64)
    return tf.RaggedTensor.from_value_rowids(ids, rows, num_words, validate=False)
