"""Unicode normalization form C as a TensorFlow graph of core ops.

The graph uses the tables of Python's `unicodedata` and gives the same results.
Sources: The Unicode Standard, section 3.11, D108 to D117 (decomposition, order, composition);
Unicode Standard Annex 15, section 9 (the quick check).
Axes: B texts, n code points of all texts, concatenated.
"""

import functools
import itertools
import unicodedata
from typing import NamedTuple

import tensorflow as tf

from zoo.deploy.merge_graph import hash_table

# A text of n bytes has at least n / LARGEST_SHRINKAGE bytes in form C. The extreme case is
# U+1FBE U+0308 U+0301, 7 bytes, which becomes U+0390, 2 bytes.
LARGEST_SHRINKAGE = 3.5
_LONGEST = 4  # maximum number of code points in a decomposition
_PAIR = 2**21  # larger than any code point


class NormalFormC(tf.Module):
    """Normalizes texts to NFC, like `unicodedata.normalize("NFC", text)`.

    Texts that match a regular expression for form C, which are most texts, are returned unchanged.
    """

    def __init__(self):
        super().__init__()
        tables = _tables()
        self._pattern = tables.pattern
        self._classes = hash_table(tables.classes, -1, 0)
        pairs = tables.pairs.items()
        pairs = {ord(left) * _PAIR + ord(right): ord(c) for (left, right), c in pairs}
        self._compositions = hash_table(pairs, -1, 0)
        rows = [[-1] * _LONGEST]  # for code points without a decomposition
        for decomposition in tables.decompositions.values():
            rows.append([*map(ord, decomposition), *rows[0]][:_LONGEST])
        self._decompositions = tf.constant(rows, tf.int32)
        rows = {ord(c): row for row, c in enumerate(tables.decompositions, 1)}
        self._rows = hash_table(rows, -1, 0)
        self._passes = tables.passes

    def __call__(self, texts):
        """Normalizes texts, string [B] to string [B].

        Invalid UTF-8 is replaced by U+FFFD, as by `bytes.decode(errors="replace")`.
        """
        # Invalid UTF-8 does not match the pattern; `unicode_decode` replaces it.
        is_normal = tf.strings.regex_full_match(texts, self._pattern)
        return apply_where(~is_normal, self._normalize, texts)

    def decomposed(self, texts):
        """Texts in form D, string [B] to string [B]."""
        return self._normalize(texts, passes=0)

    def _normalize(self, texts, passes=None):
        codes = tf.strings.unicode_decode(texts, "UTF-8", errors="replace")
        codes, rows = self._decompose(tf.cast(codes.values, tf.int64), codes.value_rowids())
        codes = self._reorder(codes, rows)
        for _ in range(self._passes if passes is None else passes):
            codes, rows = self._compose(codes, rows)
        count = tf.size(texts, tf.int64)
        codes = tf.cast(codes, tf.int32)
        codes = tf.RaggedTensor.from_value_rowids(codes, rows, count, validate=False)
        return tf.strings.unicode_encode(codes, "UTF-8")

    def _decompose(self, codes, rows):
        """Decomposes code points [n] with text indices [n]."""
        found = self._rows.lookup(codes)
        parts = tf.cast(tf.gather(self._decompositions, found), tf.int64)
        first = tf.where(found > 0, parts[:, 0], codes)
        parts = tf.concat([first[:, None], parts[:, 1:]], axis=1)
        kept = parts >= 0
        return parts[kept], tf.repeat(rows, tf.reduce_sum(tf.cast(kept, tf.int32), axis=1))

    def _reorder(self, codes, rows):
        """Sorts the marks after each starter by combining class; the sort is stable."""
        classes = self._classes.lookup(codes)
        run = rows + tf.cumsum(tf.cast(classes == 0, tf.int64))
        count = tf.size(codes, tf.int64)
        keys = (run * 256 + classes) * count + tf.range(count)
        return tf.gather(codes, tf.sort(keys) % count)

    def _compose(self, codes, rows):
        """Composes every starter with the first following code point that it composes with.

        With as many passes as the longest chain of compositions has links, this is equivalent to
        the left-to-right algorithm of the standard: in Unicode, a starter that can be composed with
        a preceding one composes with nothing itself, and a composition does not compose with a mark
        that was skipped before.
        """
        count = tf.size(codes)
        classes = self._classes.lookup(codes)
        is_starter = classes == 0
        # The index of the starter before each code point. Without one it is 0, the index of a mark,
        # which composes with nothing.
        places = tf.concat([[0], tf.cast(tf.where(is_starter)[:, 0], tf.int32)], axis=0)
        starter = tf.gather(places, tf.cumsum(tf.cast(is_starter, tf.int32), exclusive=True))
        composed = self._compositions.lookup(tf.gather(codes, starter) * _PAIR + codes)
        previous = tf.concat([classes[:1], classes[:-1]], axis=0)
        blocked = (starter != tf.range(count) - 1) & (previous >= classes)
        same_text = tf.gather(rows, starter) == rows
        right = tf.cast(tf.where((composed > 0) & same_text & ~blocked)[:, 0], tf.int32)
        left = tf.gather(starter, right)
        nearest = left != tf.concat([[-1], left[:-1]], axis=0)
        left, right = left[nearest], right[nearest]
        codes = tf.tensor_scatter_nd_update(codes, left[:, None], tf.gather(composed, right))
        removed = tf.scatter_nd(right[:, None], tf.ones_like(right), count[None])
        return codes[removed == 0], rows[removed == 0]


class _Tables(NamedTuple):
    """The Unicode tables of the algorithm.

    Fields:
        classes: {code point (int): canonical combining class}, for nonzero classes.
        decompositions: {character: full canonical decomposition}.
        pairs: {(left, right): composition in NFC}.
        passes: number of links in the longest chain of compositions.
        pattern: RE2 pattern that matches only texts in form C.
    """

    classes: dict
    decompositions: dict
    pairs: dict
    passes: int
    pattern: str


@functools.cache
def _tables():
    characters = [chr(code) for code in (*range(0xD800), *range(0xE000, 0x110000))]
    classes = {ord(c): unicodedata.combining(c) for c in characters if unicodedata.combining(c)}
    decompositions, pairs, composed_of = {}, {}, {}
    for character in characters:
        parts = unicodedata.normalize("NFD", character)
        if parts != character:
            decompositions[character] = parts
            if unicodedata.normalize("NFC", character) == character:
                # The last part of a composition is one code point; the rest composes to one.
                pair = unicodedata.normalize("NFC", parts[:-1]), parts[-1]
                pairs[pair], composed_of[character] = character, pair

    def links(character):
        return 1 + links(composed_of[character][0]) if character in composed_of else 0

    unstable = {right for _, right in pairs} | (decompositions.keys() - composed_of.keys())
    stable = [c for c in characters if c not in unstable]
    marks = {}
    for character in filter(unicodedata.combining, stable):
        marks.setdefault(unicodedata.combining(character), []).append(character)
    # Marks are ordered if their classes ascend.
    in_order = "".join(f"[{character_ranges(marks[key])}]*" for key in sorted(marks))
    starters = character_ranges([c for c in stable if not unicodedata.combining(c)])
    pattern = f"(?:{in_order}[{starters}])*{in_order}"
    return _Tables(classes, decompositions, pairs, max(map(links, composed_of)), pattern)


def apply_where(condition, function, texts):
    """Texts, string [B], with a function of texts applied to those where `condition` holds."""
    at = tf.where(condition)
    return tf.cond(
        tf.size(at) > 0,
        lambda: tf.tensor_scatter_nd_update(texts, at, function(tf.gather_nd(texts, at))),
        lambda: texts,
    )


def character_ranges(characters):
    """The content of an RE2 character class, such as \\x{41}-\\x{5A}; characters must ascend."""
    codes = [*map(ord, characters)]
    ranges = [
        [code for _, code in run]
        for _, run in itertools.groupby(enumerate(codes), key=lambda item: item[1] - item[0])
    ]
    return "".join(rf"\x{{{run[0]:X}}}-\x{{{run[-1]:X}}}" for run in ranges)
