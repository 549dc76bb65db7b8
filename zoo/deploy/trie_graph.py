"""WordPiece and the unigram model as TensorFlow graphs of core ops.

Axes: n bytes of all words, concatenated; C chunks, into which long words are split; L bytes of the
longest token.
"""

import math

import tensorflow as tf

from zoo.deploy.merge_graph import bytes_of, hash_table, ragged
from zoo.text.tokenizer import CONTINUATION, LONGEST_WORD

LONGEST_CHARACTER = 4  # in bytes
NO_LIMIT = 2**31  # of the size of chunks


class Trie(tf.Module):
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
                    edge = states[table, token[: end - 1]] * 256 + byte
                    edges[edge] = states.setdefault((table, token[:end]), len(states))
                ids[states[table, token]] = id
        self._longest = max(len(token) for tokens in tables for token in tokens)
        self._edges = hash_table(edges, -1, -1)
        self._ids = tf.constant([ids.get(state, -1) for state in range(len(states))], tf.int64)

    def __call__(self, values, tables, lengths):
        """Finds tokens.

        Args:
            values: bytes, int64 [n].
            tables: index of the table for each byte, int64 [n].
            lengths: maximum length of a token that starts at each byte, int64 [n].

        Returns:
            int64 [n, L]: the id of the token of 1, 2, ... bytes, or -1.
        """
        states, found = tables, []
        for length in range(self._longest):
            at = tf.minimum(tf.range(tf.size(values)) + length, tf.size(values) - 1)
            edges = states * 256 + tf.gather(values, at)
            states = self._edges.lookup(tf.where(length < lengths, edges, -1))
            found.append(tf.where(states < 0, states, tf.gather(self._ids, tf.maximum(states, 0))))
        return tf.stack(found, axis=1)

    def longest(self, values, tables, lengths):
        """Finds the longest token that starts at each byte: its id and size, or -1 and 0."""
        found = self(values, tables, lengths)
        sizes = tf.range(1, tf.shape(found, tf.int64)[1] + 1)
        sizes = tf.reduce_max(tf.where(found < 0, tf.zeros_like(found), sizes), axis=1)
        return tf.gather(found, tf.maximum(sizes - 1, 0), axis=1, batch_dims=1), sizes


class LongestMatch(tf.Module):
    """WordPiece: splits off the longest token at the start of a word, repeatedly.

    Every step splits one token off each chunk in parallel. Source: Devlin et al. 2019, "BERT".

    Args:
        first, inside: {bytes: id} of the tokens at the start of a word and inside it.
        longest_chunk: size of the chunks in bytes.
        unknown: id of words that are not made of tokens, if there can be any.
        longest_word: number of characters after which a word is unknown.
    """

    def __init__(self, first, inside, longest_chunk, unknown=None, longest_word=None):
        super().__init__()
        self._longest_chunk, self._longest_word = longest_chunk, longest_word
        self._unknown = unknown
        self._trie = Trie(first, inside)

    def __call__(self, words):
        """Splits words, string [W], into ragged int64 [W, None]."""
        values, rows = bytes_of(words)
        places, lengths = chunks(rows, self._longest_chunk)
        ids, sizes = self._trie.longest(values, tf.cast(places > 0, tf.int64), lengths)
        is_last = (sizes == lengths) | (sizes == 0)
        at = visited(tf.where(places == 0)[:, 0], sizes, is_last)
        ids, sizes, places = (tf.gather(each, at) for each in (ids, sizes, places))
        count, word = tf.size(words), tf.gather(rows, at)
        if self._unknown is not None:
            fails = tf.math.unsorted_segment_max(tf.cast(sizes == 0, tf.int64), word, count)
            fails = (fails > 0) | (tf.strings.length(words, "UTF8_CHAR") > self._longest_word)
            fails = tf.gather(fails, word)
            ids = tf.where(fails, tf.constant(self._unknown, tf.int64), ids)
            kept = ~fails | (places == 0)
            ids, word = ids[kept], word[kept]
        return ragged(ids, word, count)


def longest_match_of(tokenizer):
    """The `LongestMatch` of a `Tokenizer` or `BertWordPieceTokenizer`."""
    is_bert, first, inside = tokenizer.kind == "bert_wordpiece", {}, {}
    for token, id in tokenizer.vocab.items():
        text = token.removeprefix(CONTINUATION)
        spelled = text.encode() if is_bert else tokenizer.token_bytes[id]
        if text:
            (inside if text != token else first)[spelled] = id
    if not is_bert:
        return LongestMatch(first, inside, LONGEST_WORD[tokenizer.kind])
    unknown = tokenizer.vocab[tokenizer.unknown]
    return LongestMatch(first, inside, NO_LIMIT, unknown, tokenizer.longest_word)


class Viterbi(tf.Module):
    """Unigram model: splits words into the tokens with the highest sum of log-probabilities.

    Every step finds the best last token of the first bytes of each chunk in parallel, for one more
    byte; of equal sums, the longest token is chosen. Source: Kudo 2018, "Subword Regularization",
    section 3.2.

    Args:
        tokens: {bytes: id}.
        scores: log-probability of each id, a list of float.
        longest_word: size of the chunks in bytes.
        unknown: id of a character that is not a token, if not all bytes are tokens.
    """

    def __init__(self, tokens, scores, longest_word, unknown=None):
        super().__init__()
        self._longest_word, self._unknown = longest_word, unknown
        self._trie = Trie(tokens)
        self._scores = tf.constant(scores, tf.float64)

    def __call__(self, words):
        """Splits words, string [W], into ragged int64 [W, None]."""
        values, rows = bytes_of(words)
        starts, _, ids = self.split(values, rows)
        return ragged(ids, tf.gather(rows, starts), tf.size(words))

    def split(self, values, rows):
        """The tokens in their order: index of the first byte, number of bytes, and id, int64."""
        places, lengths = chunks(rows, self._longest_word)
        found = self._trie(values, tf.zeros_like(rows), lengths)
        if self._unknown is not None:
            found = self._with_unknown(found, values)
        sizes = self._best_sizes(found, places, lengths)
        at = visited(tf.where(lengths == 1)[:, 0], -sizes, sizes == places + 1)
        size = tf.gather(sizes, at)
        ids = tf.gather_nd(found, tf.stack([at + 1 - size, size - 1], axis=1))
        return at + 1 - size, size, ids

    def _with_unknown(self, found, values):
        found = tf.pad(found, [[0, 0], [0, LONGEST_CHARACTER]], constant_values=-1)
        sizes = tf.range(1, tf.shape(found, tf.int64)[1] + 1)
        is_unknown = (sizes == character_sizes(values)[:, None]) & (found < 0)
        return tf.where(is_unknown, tf.constant(self._unknown, tf.int64), found)

    def _best_sizes(self, found, places, lengths):
        """Returns the size of the last token of the best split up to each byte, int64 [n]."""
        longest = found.shape[1]
        by_place = tf.argsort(places, stable=True)
        ends = tf.cumsum(tf.math.bincount(tf.cast(places, tf.int32)))
        bounds = tf.concat([[0], ends], axis=0)
        size = tf.range(1, longest + 1, dtype=tf.int64)

        def step(place, before, sizes):
            # before [chunks, L]: the highest sums up to 1, 2, ... bytes before the next one
            at = by_place[bounds[place] : bounds[place + 1]]
            starts = tf.maximum(tf.cast(at, tf.int64)[:, None] + 1 - size, 0)
            ids = tf.gather_nd(found, tf.stack([starts, tf.zeros_like(starts) + size - 1], axis=2))
            totals = tf.gather(self._scores, tf.maximum(ids, 0)) + before
            totals = tf.where(ids < 0, tf.constant(-math.inf, tf.float64), totals)
            highest = tf.reduce_max(totals, axis=1, keepdims=True)
            best = tf.reduce_max(tf.cast(totals == highest, tf.int64) * size, axis=1)
            before = tf.concat([highest, before[:, :-1]], axis=1)
            return place + 1, before[tf.gather(lengths, at) > 1], sizes.write(place, best)

        count = tf.size(ends)
        before = tf.fill([tf.reduce_sum(tf.cast(places == 0, tf.int32)), longest - 1], -math.inf)
        before = tf.pad(tf.cast(before, tf.float64), [[0, 0], [1, 0]])
        sizes = tf.TensorArray(tf.int64, count + 1, infer_shape=False, element_shape=[None])
        start = tf.constant(0), before, sizes.write(count, tf.zeros([0], tf.int64))
        shapes = tf.TensorShape([]), tf.TensorShape([None, longest]), tf.TensorShape(None)
        _, _, sizes = tf.while_loop(
            lambda place, *_: place < count, step, start, shape_invariants=shapes
        )
        return tf.scatter_nd(by_place[:, None], sizes.concat(), tf.shape(by_place))


def viterbi_of(tokenizer):
    """The `Viterbi` of a `zoo.text.tokenizer.Tokenizer`."""
    tokens = {tokenizer.token_bytes[id]: id for id in tokenizer.vocab.values()}
    control = [0.0] * (tokenizer.vocab_size - len(tokens))  # the first ids, which are not text
    return Viterbi(tokens, [*control, *tokenizer.scores], LONGEST_WORD[tokenizer.kind])


def character_sizes(values):
    """The number of bytes of the character that begins at each byte, 0 inside characters."""
    size = 1 + sum(tf.cast(values >= first, tf.int64) for first in (0xC0, 0xE0, 0xF0))
    return tf.where((values >= 0x80) & (values < 0xC0), tf.zeros_like(size), size)


def chunks(rows, size):
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


def visited(at, moves, is_last):
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
