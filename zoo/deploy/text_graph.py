"""A tokenizer as a TensorFlow graph, of core ops only: a server needs nothing but TensorFlow.

Axes: B texts, W different words of all texts, n tokens of all words, one word after the other.
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
_END = b"\xff"  # after each word; no UTF-8 has this byte
_NEVER = 2**62  # the value of two tokens that are not merged


class TextGraph(tf.Module):
    """What a `zoo.text.tokenizer.Tokenizer` does, on tensors: the same ids, texts and labels.

    It runs on the CPU, wherever the model runs. Source of the merges: Sennrich et al. 2016, "Neural
    Machine Translation of Rare Words with Subword Units", section 3.2.

    Args:
        tokenizer: a `Tokenizer` of any kind.

    Attributes:
        longest_token: bytes of text (int) that one token can stand for, before normalisation: a
            text of n bytes has at least n / longest_token tokens.
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
                # A token that other merges pass by is not what its own bytes become.
                lengths = self._merges(*_bytes(tf.constant(learned, tf.string)), len(learned))
                ids = [id for id, length in zip(ids, lengths.row_lengths()) if length == 1]
            self._words = _hash_table({spelled[id]: id for id in ids}, _END, -1)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def encode(self, texts):
        """Ids of each text, without control ids, as `Tokenizer.encode` gives them.

        Args:
            texts: string [B]. What is not UTF-8 is first replaced by U+FFFD, in the places where
                `bytes.decode(errors="replace")` does so.

        Returns:
            RaggedTensor int32 [B, None]; the empty text has no ids.
        """
        with tf.device("CPU"):
            texts = self._normalize(texts)
            texts = tf.where(texts == "", "", tf.strings.join([" ", texts]))
            marked = tf.strings.regex_replace(texts, self._pattern, rb"\0" + _END)
            # The last of each row, after the last mark, is empty and has no ids.
            words = tf.strings.split(marked, _END)
            different, index = tf.unique(words.values)
            ids = tf.gather(self._encode_words(different), index)
            return tf.cast(words.with_values(ids).merge_dims(1, 2), tf.int32)

    def decode(self, ids):
        """The text of each sequence of ids, as `Tokenizer.decode` gives it.

        Args:
            ids: int32 [..., T]. Control ids, and ids that are not in the vocabulary, are left out.

        Returns:
            string [...]. Bytes that are not UTF-8 become U+FFFD.
        """
        with tf.device("CPU"):
            texts = tf.strings.reduce_join(tf.gather(self._spelled, self._known(ids)), axis=-1)
            texts = tf.strings.regex_replace(texts, "^ ", "", replace_global=False)
            return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")

    def pieces(self, ids):
        """A label to show for each id, as `Tokenizer.pieces` gives it: int32 to string, [...]."""
        with tf.device("CPU"):
            return tf.gather(self._labels, self._known(ids))

    def _known(self, ids):
        return tf.where((ids >= 0) & (ids < self._vocab_size), ids, PAD_ID)

    def _encode_words(self, words):
        """Words, string [W], to ids, ragged int64 [W, None]."""
        whole = self._words.lookup(words)
        # A known word has the place of one byte, and nothing beside it to be merged with.
        tokens, rows = _bytes(tf.where(whole < 0, words, "?"))
        known = tf.gather(whole, rows)
        return self._merges(tf.where(known < 0, tokens, known), rows, tf.size(words))


class _Merges(tf.Module):
    """Byte-pair encoding: joins in each word the pair of the lowest rank, the leftmost one first.

    Every step joins one pair in all words at once. Where the result is never part of a pair of a
    lower rank, which only tokens with several merges can be, all its places in a word are joined in
    one step: the next steps of the sequential algorithm would do so.
    """

    def __init__(self, tokenizer):
        super().__init__()
        strings = (*BYTE_ALPHABET, *tokenizer.tokens)
        ids = {string: id for id, string in enumerate(strings, _FIRST_BYTE)}
        self._size = tokenizer.vocab_size
        merges = [(ids[left], ids[right], ids[left + right]) for left, right in tokenizer.merges]
        # Of a pair that is listed twice the last rank holds, as in the library.
        ranks = {(left, right): (rank, id) for rank, (left, right, id) in enumerate(merges)}
        first_use = {}
        for pair, (rank, _) in ranks.items():
            for id in pair:
                first_use[id] = min(rank, first_use.get(id, rank))
        values = {
            left * self._size + right: rank * self._size + id
            for (left, right), (rank, id) in ranks.items()
        }
        singly = [first_use.get(id, rank) < rank for rank, (*_, id) in enumerate(merges)]
        self._values = _hash_table(values, -2, _NEVER)
        self._singly = tf.constant([*singly, False])  # False: no constant is empty

    def __call__(self, tokens, rows, num_words):
        """Tokens [n] and the word [n] each is of, int64, to ragged int64 [num_words, None]."""
        values = self._pair_values(tokens, rows, tf.range(tf.size(tokens)))
        tokens, rows, _ = tf.while_loop(
            lambda tokens, rows, values: tf.reduce_any(values < _NEVER),
            self._step,
            (tokens, rows, values),
            shape_invariants=(tf.TensorShape([None]),) * 3,
        )
        num_words = tf.cast(num_words, tf.int64)
        return tf.RaggedTensor.from_value_rowids(tokens, rows, num_words, validate=False)

    def _step(self, tokens, rows, values):
        lowest = tf.gather(tf.math.segment_min(values, rows), rows)
        at = tf.cast(tf.where((values == lowest) & (values < _NEVER))[:, 0], tf.int32)
        at = at[self._chosen(at, tf.gather(rows, at), tf.gather(values, at) // self._size)]
        merged = tf.gather(values, at) % self._size
        tokens = tf.tensor_scatter_nd_update(tokens, at[:, None], merged)
        gone = tf.scatter_nd(at[:, None] + 1, tf.ones_like(at), tf.shape(tokens))
        stay = tf.where(gone == 0)[:, 0]
        tokens, rows, values = (tf.gather(kept, stay) for kept in (tokens, rows, values))
        at -= tf.range(tf.size(at))  # as many tokens before it are gone
        changed = tf.concat([at, tf.maximum(at - 1, 0)], axis=0)
        updates = self._pair_values(tokens, rows, changed)
        return tokens, rows, tf.tensor_scatter_nd_update(values, changed[:, None], updates)

    def _chosen(self, at, rows, ranks):
        """Which of the places `at`, ascending, where a word has its lowest pair, are joined now."""
        before = tf.concat([[-2], at[:-1]], axis=0)
        apart = at != before + 1
        # In "aaaa" the pairs overlap: of places side by side every second one, from the first.
        order = tf.range(tf.size(at))
        start = tf.gather(order[apart], tf.cumsum(tf.cast(apart, tf.int32)) - 1)
        leftmost = rows != tf.concat([[-1], rows[:-1]], axis=0)
        return ((order - start) % 2 == 0) & (leftmost | ~tf.gather(self._singly, ranks))

    def _pair_values(self, tokens, rows, at):
        """rank * vocabulary + id of what the tokens at the places `at` and after them become."""
        after = tf.minimum(at + 1, tf.size(tokens) - 1)
        pairs = tf.gather(tokens, at) * self._size + tf.gather(tokens, after)
        beside = (at < after) & (tf.gather(rows, at) == tf.gather(rows, after))
        return self._values.lookup(tf.where(beside, pairs, -1))


def _bytes(words):
    """Words, string [W], to the ids of their bytes [n] and the word [n] each is of, int64."""
    values = tf.io.decode_raw(tf.strings.reduce_join(words), tf.uint8)
    rows = tf.repeat(tf.range(tf.size(words, tf.int64)), tf.strings.length(words))
    return tf.cast(values, tf.int64) + _FIRST_BYTE, rows


def _hash_table(numbers, unused, default):
    """A table of {key: int}; `unused`, a key that is never asked for, as no table can be empty."""
    numbers = {unused: default, **numbers}
    dtype = tf.string if isinstance(unused, bytes) else tf.int64
    initializer = tf.lookup.KeyValueTensorInitializer(
        tf.constant([*numbers], dtype), tf.constant([*numbers.values()], tf.int64)
    )
    return tf.lookup.StaticHashTable(initializer, default)


def _graph_pattern(kind):
    """Where the kind cuts text, for RE2. It spells out the letters, marks and digits that the
    library `tokenizers` knows: its Unicode tables are newer than those of TensorFlow."""
    bracketed_or_not = re.compile(r"(\[[^]]+\])|\\p\{(\w)\}")

    def spell(match):
        if match[1] is None:
            return f"[{_library_ranges(match[2])}]"
        return re.sub(r"\\p\{(\w)\}", lambda inner: _library_ranges(inner[1]), match[1])

    return bracketed_or_not.sub(spell, SPLIT_PATTERNS[kind])


@functools.cache
def _library_ranges(category):
    every = "".join(map(chr, (*range(0xD800), *range(0xE000, 0x110000))))
    others = normalizers.Replace(Regex(rf"\P{{{category}}}+"), "")
    return character_ranges(others.normalize_str(every))
