"""`zoo.text.layout` as a TensorFlow graph.

Axes: B texts, F fields of all texts, M fields that are translated, N translations of each.
"""

from typing import NamedTuple

import tensorflow as tf

from zoo.text.layout import MARKS, NO_TEXT, SENTENCE, SPACE_FOLLOWS, UNMARKS

_END = b"\xff"  # after each field; this byte does not occur in UTF-8


class Layout(NamedTuple):
    """The fields of texts, string [F]; of each the text, int64 [F]; those translated, int64 [M]."""

    fields: tf.Tensor
    texts: tf.Tensor
    places: tf.Tensor

    def of_parts(self, values):
        """What the parts, [M, ...], have of the values of texts, [B, ...]."""
        return tf.gather(values, tf.gather(self.texts, self.places))


def take_apart(texts):
    """`zoo.text.layout.take_apart` of string [B], valid UTF-8: a `Layout`."""
    for pattern, new in MARKS:
        texts = tf.strings.regex_replace(texts, pattern, new)
    ended = tf.strings.regex_replace(texts, SENTENCE, rb"\1" + _END + rb"\2" + _END)
    fields = tf.strings.split(ended, _END)
    is_part, found = tf.ragged.range(fields.row_lengths()).flat_values % 2 == 1, fields.flat_values
    for pattern, new in UNMARKS:
        found = tf.strings.regex_replace(found, pattern, new)
    is_part &= ~tf.strings.regex_full_match(found, NO_TEXT)
    return Layout(found, fields.value_rowids(), tf.where(is_part)[:, 0])


def put_together(layout, counts, translations, scores, errors):
    """`zoo.text.translation_text.put_together` for tensors.

    Args:
        layout, counts: a `Layout` and the number of parts of each text, int32 [B].
        translations, scores, errors: of each part, string and float32 [M, N] and string [M].

    Returns:
        The same of each text, [B, N] and [B]; the error is the first of its parts.
    """
    size, owners = tf.size(counts), layout.of_parts(tf.range(tf.size(counts)))
    last, count = tf.size(errors), tf.shape(translations)[1]
    first = tf.math.unsorted_segment_min(tf.where(errors != "", tf.range(last), last), owners, size)
    error = tf.gather(tf.concat([errors, [""]], axis=0), tf.minimum(first, last))
    fields = tf.tensor_scatter_nd_update(
        tf.repeat(layout.fields[:, None], count, axis=1),
        layout.places[:, None],
        _with_spaces(layout, translations),
    )
    texts = tf.strings.unsorted_segment_join(fields, layout.texts, size)
    scores = tf.math.unsorted_segment_sum(scores, owners, size)
    # Several parts have one translation, and a single one perhaps fewer than N: the others score 0.
    exists = (tf.range(count) == 0) | ((counts == 1)[:, None] & (scores != 0.0))
    exists &= (error == "")[:, None]
    return tf.where(exists, texts, ""), tf.where(exists, scores, 0.0), error


def _with_spaces(layout, translations):
    """The translations [M, N], some with a space before them; see `zoo.text.layout.put_in`."""
    places = layout.places[1:]
    nothing_between = (places - layout.places[:-1] == 2) & (
        tf.gather(layout.fields, places - 1) == ""
    )
    follows = tf.strings.regex_full_match(translations[:-1], SPACE_FOLLOWS)
    needs = tf.pad(follows & nothing_between[:, None], [[1, 0], [0, 0]])[
        : tf.shape(translations)[0]
    ]
    return tf.where(needs, tf.strings.join([" ", translations]), translations)
