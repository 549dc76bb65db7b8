"""Splits words into tokens as TensorFlow graphs of core ops: merges, longest match and Viterbi.

All take bytes as ids [n] and the indices of their words [n], and return ragged ids [W, None].
Axes: W words, n bytes of all words, concatenated; C chunks of at most `LONGEST_WORD` bytes; L bytes
of the longest token.
"""

import math

import tensorflow as tf

from zoo.text import BOS_ID, EOS_ID, PAD_ID
from zoo.text.tokenizer import BYTE_ALPHABET, CONTINUATION, LONGEST_WORD

_FIRST_BYTE = len((PAD_ID, BOS_ID, EOS_ID))  # the id of byte 0
_FIRST_LEARNED = _FIRST_BYTE + 256
_NO_MERGE = 2**62  # value of a pair of tokens that cannot be merged


def segmentation(tokenizer):
    """Returns the `tf.Module` that splits words into the tokens of a `Tokenizer`."""
    kinds = {"wordpiece": LongestMatch, "unigram": Viterbi}
    return kinds.get(tokenizer.kind, Merges)(tokenizer)


def known_words(tokenizer, segment):
    """Returns {bytes: id} for the words that are one token.

    Args:
        tokenizer: `Tokenizer`.
        segment: `segmentation(tokenizer)`.
    """
    learned = tokenizer.token_bytes[_FIRST_LEARNED:]
    if tokenizer.kind in ("word", "character"):
        return dict(zip(learned, range(_FIRST_LEARNED, tokenizer.vocab_size)))
    # Some tokens are not the result of splitting their own bytes; these are left out.
    ids = segment(*bytes_of(tf.constant(learned, tf.string)), len(learned)).to_list()
    return {word: row[0] for word, row in zip(learned, ids) if len(row) == 1}


class Merges(tf.Module):
    """Byte-pair encoding: repeatedly merges the leftmost pair of the lowest rank in each word.

    Every step merges one pair in each of the words in parallel. Unless the merged token can be part
    of a pair of a lower rank (only tokens with several merges can), a step merges all occurrences
    of the pair in a word: the sequential algorithm would do the same in its next steps.

    Source: Sennrich et al. 2016, "Neural Machine Translation of Rare Words with Subword Units",
    section 3.2.
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
        return _ragged(tokens, rows, num_words)

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


class _Trie(tf.Module):
    """Finds the tokens that start at each byte.

    Args:
        tables: dicts {bytes: id}; the tokens to look for at a byte are those of one of the tables.
    """

    def __init__(self, *tables):
        super().__init__()
        states = {(table, b""): table for table in range(len(tables))}
        edges, ids = {}, {}
        for table, tokens in enumerate(tables):
            for token, id in tokens.items():
                for end, byte in enumerate(token, 1):
                    edge = states[table, token[: end - 1]] * _FIRST_LEARNED + byte + _FIRST_BYTE
                    edges[edge] = states.setdefault((table, token[:end]), len(states))
                ids[states[table, token]] = id
        self._longest = max(len(token) for tokens in tables for token in tokens)
        self._edges = hash_table(edges, -1, -1)
        self._ids = tf.constant([ids.get(state, -1) for state in range(len(states))], tf.int64)

    def __call__(self, tokens, tables, lengths):
        """Finds tokens.

        Args:
            tokens: bytes as ids, int64 [n].
            tables: index of the table for each byte, int64 [n].
            lengths: maximum length of a token that starts at each byte, int64 [n].

        Returns:
            int64 [n, L]: the id of the token of 1, 2, ... bytes, or -1.
        """
        states, found = tables, []
        for length in range(self._longest):
            at = tf.minimum(tf.range(tf.size(tokens)) + length, tf.size(tokens) - 1)
            edges = states * _FIRST_LEARNED + tf.gather(tokens, at)
            states = self._edges.lookup(tf.where(length < lengths, edges, -1))
            found.append(tf.where(states < 0, states, tf.gather(self._ids, tf.maximum(states, 0))))
        return tf.stack(found, axis=1)


class LongestMatch(tf.Module):
    """WordPiece: splits off the longest token at the start of a word, repeatedly.

    Every step splits one token off each chunk in parallel. Source: Devlin et al. 2019, "BERT".
    """

    def __init__(self, tokenizer):
        super().__init__()
        self._longest_word = LONGEST_WORD[tokenizer.kind]
        spelled = tokenizer.token_bytes[_FIRST_BYTE:]
        first = {byte: id for id, byte in enumerate(spelled[:256], _FIRST_BYTE)}
        inside = first.copy()
        for id, token in enumerate(tokenizer.tokens, _FIRST_LEARNED):
            table = inside if token.startswith(CONTINUATION) else first
            table[spelled[id - _FIRST_BYTE]] = id
        self._trie = _Trie(first, inside)

    def __call__(self, tokens, rows, num_words):
        """Splits bytes [n] with word indices [n], int64, into ragged int64 [num_words, None]."""
        places, lengths = _chunks(rows, self._longest_word)
        found = self._trie(tokens, tf.cast(places > 0, tf.int64), lengths)
        sizes = tf.range(1, tf.shape(found, tf.int64)[1] + 1)
        sizes = tf.reduce_max(tf.where(found < 0, tf.zeros_like(found), sizes), axis=1)
        at = _visited(tf.where(places == 0)[:, 0], sizes, sizes == lengths)
        ids = tf.gather_nd(found, tf.stack([at, tf.gather(sizes, at) - 1], axis=1))
        return _ragged(ids, tf.gather(rows, at), num_words)


class Viterbi(tf.Module):
    """Unigram model: splits words into the tokens with the highest sum of log-probabilities.

    Every step finds the best last token of the first bytes of each chunk in parallel, for one more
    byte; of equal sums, the longest token is chosen. Source: Kudo 2018, "Subword Regularization",
    section 3.2.
    """

    def __init__(self, tokenizer):
        super().__init__()
        self._longest_word = LONGEST_WORD[tokenizer.kind]
        spelled = tokenizer.token_bytes[_FIRST_BYTE:]
        self._trie = _Trie({token: id for id, token in enumerate(spelled, _FIRST_BYTE)})
        self._scores = tf.constant([*[0.0] * _FIRST_BYTE, *tokenizer.scores], tf.float64)

    def __call__(self, tokens, rows, num_words):
        """Splits bytes [n] with word indices [n], int64, into ragged int64 [num_words, None]."""
        places, lengths = _chunks(rows, self._longest_word)
        found = self._trie(tokens, tf.zeros_like(rows), lengths)
        sizes = self._best_sizes(found, places)
        at = _visited(tf.where(lengths == 1)[:, 0], -sizes, sizes == places + 1)
        size = tf.gather(sizes, at)
        ids = tf.gather_nd(found, tf.stack([at + 1 - size, size - 1], axis=1))
        return _ragged(ids, tf.gather(rows, at), num_words)

    def _best_sizes(self, found, places):
        """Returns the size of the last token of the best split up to each byte, int64 [n]."""
        longest = tf.shape(found, tf.int64)[1]

        def step(place, sums, sizes):
            at = tf.where(places == place)
            size = tf.range(1, tf.minimum(longest, place + 1) + 1)
            starts = at + 1 - size
            ids = tf.gather_nd(found, tf.stack([starts, tf.zeros_like(starts) + size - 1], axis=2))
            before = tf.gather(sums, tf.maximum(starts - 1, 0))
            before = tf.where(size == place + 1, tf.zeros_like(before), before)
            totals = tf.gather(self._scores, tf.maximum(ids, 0)) + before
            totals = tf.where(ids < 0, tf.constant(-math.inf, tf.float64), totals)
            highest = tf.reduce_max(totals, axis=1)
            is_best = tf.cast(totals == highest[:, None], tf.int64)
            best = tf.reduce_max(is_best * size, axis=1)
            return (
                place + 1,
                tf.tensor_scatter_nd_update(sums, at, highest),
                tf.tensor_scatter_nd_update(sizes, at, best),
            )

        count = tf.reduce_max(tf.concat([[-1], places], axis=0)) + 1
        start = tf.constant(0, tf.int64), tf.zeros_like(places, tf.float64), tf.zeros_like(places)
        return tf.while_loop(lambda place, *_: place < count, step, start)[2]


def _chunks(rows, size):
    """Splits the words after every `size` bytes; returns two int64 [n].

    The first is the index of each byte in its chunk, the second the number of bytes from it to the
    end of its chunk.
    """
    order = tf.range(tf.size(rows, tf.int64))
    is_first = rows != tf.concat([[-1], rows[:-1]], axis=0)
    places = order - tf.gather(order[is_first], tf.cumsum(tf.cast(is_first, tf.int64)) - 1)
    places %= size
    chunks = tf.cumsum(tf.cast(places == 0, tf.int64)) - 1
    sizes = tf.math.segment_sum(tf.ones_like(chunks), chunks)
    return places, tf.gather(sizes, chunks) - places


def _visited(at, moves, is_last):
    """Returns the indices reached from `at`, int64 [C], by moves [n], up to those where is_last.

    The result, int64 [None], is in ascending order.
    """

    def step(at, visited):
        visited = tf.tensor_scatter_nd_update(visited, at[:, None], tf.ones_like(at, tf.bool))
        at = at[~tf.gather(is_last, at)]
        return at + tf.gather(moves, at), visited

    _, visited = tf.while_loop(
        lambda at, visited: tf.size(at) > 0,
        step,
        (at, tf.zeros_like(is_last)),
        shape_invariants=(tf.TensorShape([None]),) * 2,
    )
    return tf.where(visited)[:, 0]


def _ragged(ids, rows, num_words):
    num_words = tf.cast(num_words, tf.int64)
    return tf.RaggedTensor.from_value_rowids(ids, rows, num_words, validate=False)


def bytes_of(words):
    """Splits words, string [W], into byte ids [n] and word indices [n], int64."""
    values = tf.io.decode_raw(tf.strings.reduce_join(words), tf.uint8)
    rows = tf.repeat(tf.range(tf.size(words, tf.int64)), tf.strings.length(words))
    return tf.cast(values, tf.int64) + _FIRST_BYTE, rows


def hash_table(numbers, unused, default):
    """Makes a lookup table of {key: int}; the key `unused` keeps it from being empty."""
    numbers = {unused: default, **numbers}
    dtype = tf.string if isinstance(unused, bytes) else tf.int64
    initializer = tf.lookup.KeyValueTensorInitializer(
        tf.constant([*numbers], dtype), tf.constant([*numbers.values()], tf.int64)
    )
    return tf.lookup.StaticHashTable(initializer, default)
