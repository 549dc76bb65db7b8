"""GPT-2's tokenizer as a TensorFlow graph: a split by RE2, and byte-pair encoding by lookups.

Sources: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.2;
Sennrich et al. 2016, "Neural Machine Translation of Rare Words with Subword Units", section 3.2.
Axes: B texts, W distinct words of all texts, n tokens of all words, concatenated.
"""

import tensorflow as tf

from zoo.text.published import BYTE_ALPHABET

_END = b"\xff"  # marks the end of a word; this byte does not occur in UTF-8
_SPACE = r"\t-\r\x{85}\p{Z}"
# The last of several spaces belongs to the next word. RE2 has no lookahead.
_SPACES = rf"([{_SPACE}])([{_SPACE}][^{_SPACE}])"
_WORDS = rf"'s|'t|'re|'ve|'m|'ll|'d| ?\pL+| ?\pN+| ?[^{_SPACE}\pL\pN]+|[{_SPACE}]+"
_NO_MERGE = 2**62  # value of a pair of tokens that cannot be merged


class ByteLevelPieces(tf.Module):
    """GPT-2's `zoo.text.published.LibraryTokenizer`: string [B] to ragged ids [B, None].

    Every step merges the pair of the lowest rank in each word at all its places, with the same
    result as one after the other. If the new token is part of a pair of a lower rank, as a token
    with several merges can be, only the first place is merged.
    """

    def __init__(self, tokenizer):
        super().__init__()
        ids, self._size = tokenizer.vocab, tokenizer.vocab_size
        merges = tokenizer.settings["model"]["merges"]
        values, first_use = {-2: _NO_MERGE}, {}  # tables must not be empty
        for rank, pair in enumerate(merges):
            left, right = (ids[token] for token in pair)
            values[left * self._size + right] = rank * self._size + ids["".join(pair)]
            for token in pair:
                first_use.setdefault(token, rank)
        self._values = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer([*values], [*values.values()], tf.int64, tf.int64),
            _NO_MERGE,
        )
        one_by_one = [first_use.get("".join(pair), rank) < rank for rank, pair in enumerate(merges)]
        self._one_by_one = tf.constant([*one_by_one, False])
        self._bytes = tf.constant([ids[byte] for byte in BYTE_ALPHABET], tf.int64)
        self._add_prefix_space = tokenizer.settings["pre_tokenizer"]["add_prefix_space"]

    def __call__(self, texts):
        if self._add_prefix_space:
            texts = tf.strings.regex_replace(texts, r"(?s)^([^ ])", r" \1")
        texts = tf.strings.regex_replace(texts, _SPACES, rb"\1" + _END + rb"\2")
        texts = tf.strings.regex_replace(texts, _WORDS, rb"\0" + _END)
        words = tf.strings.split(texts, _END)  # the last one is empty and has no ids
        distinct, index = tf.unique(words.values)
        return words.with_values(tf.gather(self._merged(distinct), index)).merge_dims(1, 2)

    def _merged(self, words):
        """Splits words, string [W], into ragged int64 [W, None]."""
        values = tf.cast(tf.io.decode_raw(tf.strings.reduce_join(words), tf.uint8), tf.int64)
        rows = tf.repeat(tf.range(tf.size(words, tf.int64)), tf.strings.length(words))
        tokens = tf.gather(self._bytes, values)
        values = self._pair_values(tokens, rows, tf.range(tf.size(tokens)))
        tokens, rows, _ = tf.while_loop(
            lambda tokens, rows, values: tf.reduce_any(values < _NO_MERGE),
            self._step,
            (tokens, rows, values),
            shape_invariants=(tf.TensorShape([None]),) * 3,
        )
        return tf.RaggedTensor.from_value_rowids(tokens, rows, tf.size(words, tf.int64))

    def _step(self, tokens, rows, values):
        lowest = tf.gather(tf.math.segment_min(values, rows), rows)
        at = tf.cast(tf.where((values == lowest) & (values < _NO_MERGE))[:, 0], tf.int32)
        chosen_rows, ranks = tf.gather(rows, at), tf.gather(values, at) // self._size
        is_first = chosen_rows != tf.concat([[-1], chosen_rows[:-1]], axis=0)
        at = at[_apart(at) & (is_first | ~tf.gather(self._one_by_one, ranks))]
        merged = tf.gather(values, at) % self._size
        tokens = tf.tensor_scatter_nd_update(tokens, at[:, None], merged)
        removed = tf.scatter_nd(at[:, None] + 1, tf.ones_like(at), tf.shape(tokens))
        kept = tf.where(removed == 0)[:, 0]
        tokens, rows, values = (tf.gather(each, kept) for each in (tokens, rows, values))
        at -= tf.range(tf.size(at))  # minus the number of removed tokens before it
        changed = tf.concat([at, tf.maximum(at - 1, 0)], axis=0)
        updates = self._pair_values(tokens, rows, changed)
        return tokens, rows, tf.tensor_scatter_nd_update(values, changed[:, None], updates)

    def _pair_values(self, tokens, rows, at):
        """rank · vocabulary size + merged id of the pairs that begin at the indices `at`."""
        after = tf.minimum(at + 1, tf.size(tokens) - 1)
        pairs = tf.gather(tokens, at) * self._size + tf.gather(tokens, after)
        same_word = (at < after) & (tf.gather(rows, at) == tf.gather(rows, after))
        return self._values.lookup(tf.where(same_word, pairs, -1))


def _apart(at):
    """Which pairs, at ascending indices, are merged: every second one of those that overlap."""
    order = tf.range(tf.size(at))
    is_first = at != tf.concat([[-2], at[:-1]], axis=0) + 1
    start = tf.gather(order[is_first], tf.cumsum(tf.cast(is_first, tf.int32)) - 1)
    return (order - start) % 2 == 0
