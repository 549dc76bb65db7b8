"""`zoo.text.layout` as a TensorFlow graph.

Axes: B texts, F fields of all texts, M fields that are translated, N translations of each.
"""

from typing import NamedTuple

import tensorflow as tf

from zoo.text.layout import ENDED, NO_SPACE_BEFORE, NO_SPACE_FOLLOWS, NO_TEXT, SENTENCE

_END = b"\xff"  # after each field; this byte does not occur in UTF-8


class Layout(NamedTuple):
    """The fields of texts."""

    fields: tf.Tensor  # string [F]
    texts: tf.Tensor  # int64 [F], the index of the text of each field
    places: tf.Tensor  # int64 [M], the indices of the fields that are translated

    def of_parts(self, values):
        """Gathers values of texts, [B, ...], for the fields that are translated: [M, ...]."""
        return tf.gather(values, tf.gather(self.texts, self.places))

    def without_numbers(self):
        """`zoo.text.layout.without_numbers`."""
        parts = tf.gather(self.fields, self.places)
        has_letter = tf.strings.regex_full_match(parts, r"(?s).*\pL.*")
        return self._replace(places=tf.boolean_mask(self.places, has_letter))


def split_sentences(texts):
    """`zoo.text.layout.split_sentences` for string [B], valid UTF-8: returns a `Layout`."""
    ended = tf.strings.regex_replace(texts, SENTENCE, rb"\1" + _END + rb"\2" + _END)
    fields = tf.strings.split(ended, _END)
    is_part = tf.ragged.range(fields.row_lengths()).flat_values % 2 == 1
    is_part &= ~tf.strings.regex_full_match(fields.flat_values, NO_TEXT)
    return Layout(fields.flat_values, fields.value_rowids(), tf.where(is_part)[:, 0])


def join_parts(layout, counts, translations, scores, errors):
    """`zoo.text.answers.join_parts` for tensors.

    Args:
        layout: `Layout`.
        counts: int32 [B], the number of translated fields of each text.
        translations, scores, errors: string [M, N], float32 [M, N] and string [M], of each field.

    Returns:
        The same for each text, [B, N], [B, N] and [B]; the error is the first one of its fields.
    """
    size = tf.size(counts)  # B
    owners = layout.of_parts(tf.range(size))  # [M], the text of each translated field
    count = tf.shape(translations)[1]  # N
    none = tf.size(errors)  # index of no error
    with_error = tf.where(errors != "", tf.range(none), none)  # [M]
    first = tf.math.unsorted_segment_min(with_error, owners, size)  # [B]
    error = tf.gather(tf.concat([errors, [""]], axis=0), tf.minimum(first, none))  # [B]
    fields = tf.tensor_scatter_nd_update(
        tf.repeat(layout.fields[:, None], count, axis=1),
        layout.places[:, None],
        translations,
    )  # [F, N]
    fields = tf.tensor_scatter_nd_update(fields, *_between(layout, owners, translations))
    texts = tf.strings.unsorted_segment_join(fields, layout.texts, size)  # [B, N]
    scores = tf.math.unsorted_segment_sum(scores, owners, size)  # [B, N]
    # A text of several fields has one translation. A text of a single field may have fewer than N:
    # the scores of missing ones are 0.
    exists = (tf.range(count) == 0) | ((counts == 1)[:, None] & (scores != 0.0))
    exists &= (error == "")[:, None]
    return tf.where(exists, texts, ""), tf.where(exists, scores, 0.0), error


def _between(layout, owners, translations):
    """(indices, fields) between translations of a text; see `zoo.text.layout.join_sentences`."""
    is_adjacent = layout.places[1:] - layout.places[:-1] == 2  # [M - 1]
    is_adjacent &= owners[1:] == owners[:-1]  # and in the same text
    places = tf.boolean_mask(layout.places[1:] - 1, is_adjacent)
    before = tf.boolean_mask(translations[:-1], is_adjacent)  # [places, N]
    after = tf.boolean_mask(translations[1:], is_adjacent)  # [places, N]
    source = tf.gather(layout.fields, places - 1)[:, None]
    found = tf.gather(layout.fields, places)[:, None]
    is_blank = tf.strings.regex_full_match(found, " *")
    removed = is_blank & tf.strings.regex_full_match(before, NO_SPACE_FOLLOWS)
    is_ended = (found == "") & tf.strings.regex_full_match(source, ENDED)
    inserted = is_ended & (before != "") & ~tf.strings.regex_full_match(after, NO_SPACE_BEFORE)
    fields = tf.where(inserted, " ", found)
    fields = tf.where(removed, "", fields)
    return places[:, None], fields
