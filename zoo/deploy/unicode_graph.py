"""Unicode normalisation form C as a TensorFlow graph, of core ops only.

The graph follows the tables of this Python's `unicodedata` and says what `unicodedata` says.
Sources: The Unicode Standard, section 3.11, D108 to D117 (decomposition, order, composition);
Unicode Standard Annex 15, section 9 (the quick check).
Axes: B texts, n code points of all texts, one text after the other.
"""

import functools
import itertools
import unicodedata
from typing import NamedTuple

import tensorflow as tf

# A text of n bytes has n / LARGEST_SHRINKAGE or more in form C. The one that shrinks most is
# U+1FBE U+0308 U+0301, of 7 bytes, which is U+0390, of 2.
LARGEST_SHRINKAGE = 3.5
_LONGEST = 4  # code points that one decomposes into
_PAIR = 2**21  # more than the largest code point


class _Table(tf.Module):
    """A number, int32, for each of some integers; 0 for all others."""

    def __init__(self, numbers, dtype):
        super().__init__()
        keys = sorted(numbers)
        self._keys = tf.constant(keys, dtype)
        self._values = tf.constant([numbers[key] for key in keys], tf.int32)

    def __call__(self, keys):
        place = tf.minimum(tf.searchsorted(self._keys, keys), tf.size(self._keys) - 1)
        return tf.where(tf.gather(self._keys, place) == keys, tf.gather(self._values, place), 0)


class NormalFormC(tf.Module):
    """Brings texts to NFC, as `unicodedata.normalize("NFC", text)` does.

    A text that one regular expression shows to be in form C is not touched; most are.
    """

    def __init__(self):
        super().__init__()
        tables = _tables()
        self._pattern = tables.pattern
        self._classes = _Table(tables.classes, tf.int32)
        self._compositions = _Table(
            {ord(left) * _PAIR + ord(right): ord(c) for (left, right), c in tables.pairs.items()},
            tf.int64,
        )
        rows = [[-1] * _LONGEST]  # of what does not decompose
        for decomposition in tables.decompositions.values():
            rows.append([*map(ord, decomposition), *rows[0]][:_LONGEST])
        self._decompositions = tf.constant(rows, tf.int32)
        self._rows = _Table({ord(c): i for i, c in enumerate(tables.decompositions, 1)}, tf.int32)
        self._passes = tables.passes

    def __call__(self, texts):
        """NFC of each text, string [B] to string [B]; U+FFFD goes in for what is not UTF-8.

        It does so in the places where `bytes.decode(errors="replace")` does so.
        """
        # Bytes that are not UTF-8 match no class of the pattern; `unicode_decode` replaces them.
        normal = tf.strings.regex_full_match(texts, self._pattern)

        def normalize():
            at = tf.where(~normal)
            return tf.tensor_scatter_nd_update(texts, at, self._normalize(tf.gather_nd(texts, at)))

        return tf.cond(tf.reduce_all(normal), lambda: texts, normalize)

    def _normalize(self, texts):
        codes = tf.strings.unicode_decode(texts, "UTF-8", errors="replace")
        codes, rows = self._decompose(codes.values, codes.value_rowids())
        codes = self._reorder(codes, rows)
        for _ in range(self._passes):
            codes, rows = self._compose(codes, rows)
        count = tf.size(texts, tf.int64)
        codes = tf.RaggedTensor.from_value_rowids(codes, rows, count, validate=False)
        return tf.strings.unicode_encode(codes, "UTF-8")

    def _decompose(self, codes, rows):
        """Code points [n] and the text [n] each is of, to more of them."""
        found = self._rows(codes)
        parts = tf.gather(self._decompositions, found)
        first = tf.where(found > 0, parts[:, 0], codes)
        parts = tf.concat([first[:, None], parts[:, 1:]], axis=1)
        kept = parts >= 0
        return parts[kept], tf.repeat(rows, tf.reduce_sum(tf.cast(kept, tf.int32), axis=1))

    def _reorder(self, codes, rows):
        """Sorts the marks after each starter by combining class; equal ones keep their order."""
        classes = tf.cast(self._classes(codes), tf.int64)
        run = rows + tf.cumsum(tf.cast(classes == 0, tf.int64))
        count = tf.size(codes, tf.int64)
        keys = (run * 256 + classes) * count + tf.range(count)
        return tf.gather(codes, tf.sort(keys) % count)

    def _compose(self, codes, rows):
        """Joins every starter with the first code point after it that it can be joined with.

        As many passes as the longest chain of compositions has links do what the standard does
        from left to right. For in Unicode a starter that can be absorbed absorbs nothing itself,
        and a composition absorbs no mark that was passed over before.
        """
        count = tf.size(codes)
        classes = self._classes(codes)
        is_starter = classes == 0
        # The place of the one before each; 0, where then a mark is, which absorbs nothing, if none.
        places = tf.concat([[0], tf.cast(tf.where(is_starter)[:, 0], tf.int32)], axis=0)
        starter = tf.gather(places, tf.cumsum(tf.cast(is_starter, tf.int32), exclusive=True))
        pair = tf.cast(tf.gather(codes, starter), tf.int64) * _PAIR + tf.cast(codes, tf.int64)
        composed = self._compositions(pair)
        previous = tf.concat([classes[:1], classes[:-1]], axis=0)
        blocked = (starter != tf.range(count) - 1) & (previous >= classes)
        same_text = tf.gather(rows, starter) == rows
        right = tf.cast(tf.where((composed > 0) & same_text & ~blocked)[:, 0], tf.int32)
        left = tf.gather(starter, right)
        nearest = left != tf.concat([[-1], left[:-1]], axis=0)
        left, right = left[nearest], right[nearest]
        codes = tf.tensor_scatter_nd_update(codes, left[:, None], tf.gather(composed, right))
        gone = tf.scatter_nd(right[:, None], tf.ones_like(right), count[None])
        return codes[gone == 0], rows[gone == 0]


class _Tables(NamedTuple):
    """What the algorithm needs to know of Unicode.

    Fields:
        classes: the canonical combining class of each code point (int) that has one but 0.
        decompositions: the full canonical decomposition of each character that has one.
        pairs: (left, right) to the character that NFC makes of them.
        passes: number of links of the longest chain of compositions.
        pattern: of RE2; what it matches is in form C already.
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
                # A composition's last part is one code point, and what is before it composes.
                pair = unicodedata.normalize("NFC", parts[:-1]), parts[-1]
                pairs[pair], composed_of[character] = character, pair

    def links(character):
        return 1 + links(composed_of[character][0]) if character in composed_of else 0

    unstable = {right for _, right in pairs} | (decompositions.keys() - composed_of.keys())
    stable = [c for c in characters if c not in unstable]
    marks = {}
    for character in filter(unicodedata.combining, stable):
        marks.setdefault(unicodedata.combining(character), []).append(character)
    # Marks are in order if each class comes once, the lowest first.
    in_order = "".join(f"[{character_ranges(marks[key])}]*" for key in sorted(marks))
    starters = character_ranges([c for c in stable if not unicodedata.combining(c)])
    pattern = f"(?:{in_order}[{starters}])*{in_order}"
    return _Tables(classes, decompositions, pairs, max(map(links, composed_of)), pattern)


def character_ranges(characters):
    """What stands in the brackets of a class of RE2, as \\x{41}-\\x{5A}; characters ascend."""
    codes = [*map(ord, characters)]
    ranges = [
        [code for _, code in run]
        for _, run in itertools.groupby(enumerate(codes), key=lambda item: item[1] - item[0])
    ]
    return "".join(rf"\x{{{run[0]:X}}}-\x{{{run[-1]:X}}}" for run in ranges)
