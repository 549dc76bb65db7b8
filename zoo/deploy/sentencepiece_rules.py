"""The normalization of SentencePiece models as a TensorFlow graph of core ops.

Source: the library `sentencepiece`: normalizer.cc. A model stores its rules "precompiled": the
number of bytes of a trie, the trie, which is a double array (Aoe 1989, "An Efficient Digital Search
Algorithm by Using a Double-Array Structure") as the library Darts-clone writes it, and the
replacements, each ending with a zero byte.
Axes: B texts, n bytes of all texts, concatenated.
"""

import functools
import itertools

import numpy as np
import tensorflow as tf

from zoo.deploy.merge_graph import bytes_of
from zoo.deploy.trie_graph import NO_LIMIT, Trie, character_sizes, chunks, visited
from zoo.deploy.unicode_graph import apply_where, character_ranges
from zoo.text.sentencepiece import SPACE


class Normalizer(tf.Module):
    """Replaces characters, collapses spaces, writes them as "▁" and adds one at the beginning.

    Args:
        precompiled: see `replacements`.
    """

    def __init__(self, precompiled):
        super().__init__()
        rules = replacements(precompiled)
        self._has_rules = bool(rules)
        if rules:
            self._trie = Trie({key: index for index, key in enumerate(rules)})
            self._texts = tf.constant([*rules.values()])
            # A text of other characters contains no key.
            keys = [key.decode() for key in rules]
            inside = {*itertools.chain.from_iterable(key[1:] or key for key in keys)}
            self._plain = f"[^{character_ranges(sorted(inside))}]*"

    def __call__(self, texts):
        """Normalizes texts, string [B] to string [B]."""
        if self._has_rules:
            is_plain = tf.strings.regex_full_match(texts, self._plain)
            texts = apply_where(~is_plain, self._replace, texts)
        texts = tf.strings.join([" ", texts])
        texts = tf.strings.regex_replace(texts, " +", SPACE)
        return tf.strings.regex_replace(texts, f"(?:{SPACE})+$", "")

    def _replace(self, texts):
        values, rows = bytes_of(texts)
        places, lengths = chunks(rows, NO_LIMIT)
        rules, sizes = self._trie.longest(values, tf.zeros_like(rows), lengths)
        sizes = tf.maximum(sizes, character_sizes(values))
        at = visited(tf.where(places == 0)[:, 0], sizes, sizes == lengths)
        rule, row = tf.gather(rules, at), tf.gather(rows, at)
        kept = tf.strings.substr(tf.gather(texts, row), tf.gather(places, at), tf.gather(sizes, at))
        parts = tf.where(rule < 0, kept, tf.gather(self._texts, tf.maximum(rule, 0)))
        parts = tf.RaggedTensor.from_value_rowids(parts, row, tf.size(texts, tf.int64))
        return tf.strings.reduce_join(parts, axis=-1)


@functools.lru_cache(1)  # source and target mostly have the same rules
def replacements(precompiled):
    """{bytes: the bytes that replace them} of `NormalizerSpec.precompiled_charsmap`."""
    if not precompiled:
        return {}
    size = int.from_bytes(precompiled[:4], "little")
    units, strings = np.frombuffer(precompiled, "<u4", size // 4, 4), precompiled[4 + size :]
    labels, found = np.arange(256, dtype=np.uint32), {}
    nodes, prefixes = _offsets(units[:1]), [b""]
    while len(nodes):
        children = nodes[:, None] ^ labels
        children = np.where(children < len(units), children, 0)
        exists = ((units[children] & 0x800000FF) == labels) & (labels > 0)
        parents, bytes_ = np.nonzero(exists)
        children = children[exists]
        nodes = children ^ _offsets(units[children])
        prefixes = [prefixes[p] + bytes([b]) for p, b in zip(parents, bytes_)]
        for index in np.flatnonzero(units[children] >> 8 & 1):
            start = int(units[nodes[index]] & 0x7FFFFFFF)
            found[prefixes[index]] = strings[start : strings.index(b"\0", start)]
    return found


def _offsets(units):
    return (units >> 10) << ((units & (1 << 9)) >> 6)
