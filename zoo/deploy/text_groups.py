"""Texts in a graph: their tokens with errors, and results in groups of one padded width.

Axes: B texts, T tokens.
"""

import functools

import tensorflow as tf

from zoo.tasks.padded_batches import BATCH_SIZES, LENGTHS, TOKENS_IN_BATCH


def encode(text_graph, texts, limit, start=(), end=()):
    """Tokenizes texts.

    Args:
        text_graph: `zoo.deploy.text_graph.TextGraph`.
        texts: string [B].
        limit: maximum number of tokens, control ids included.
        start, end: ids at the beginning and end of each row.

    Returns:
        (tokens [B, None], error string [B]). A text that is too long has only the control ids, and
        an error.
    """
    size = tf.strings.length(texts)
    # tokenizing a text that is far too long would be slow
    huge = size > text_graph.longest_token * limit
    ids = text_graph.encode(tf.where(huge, "", texts))
    count = tf.cast(ids.row_lengths(), tf.int32) + len(start) + len(end)
    too_long = huge | (count > limit)
    amount = tf.where(huge, _text(size, "bytes"), _text(count, "tokens"))
    maximum = f". The maximum is {limit} tokens."
    error = tf.where(
        too_long, tf.strings.join(["The text is too long: it has ", amount, maximum]), ""
    )
    kept = ids.with_values(tf.repeat(~too_long, ids.row_lengths()))
    before, after = (
        tf.repeat(tf.constant([control], tf.int32), tf.size(texts), axis=0)
        for control in (start, end)
    )
    return tf.concat([before, tf.ragged.boolean_mask(ids, kept), after], axis=1), error


def apply_to_tokens(function, sides, error, limit, pad, result):
    """The results of a function of padded tokens, for texts without an `error`.

    Args:
        function: function of int32 [any, T], one for each side -> values of the result.
        sides: list of ragged tokens [B, None].
        error: string [B].
        limit: maximum number of tokens.
        pad: padding token.
        result: tensor [B, ...], the initial result of all texts.
    """
    lengths = functools.reduce(tf.maximum, [side.row_lengths() for side in sides])

    def compute(group, width):
        return [function(*(dense(tf.gather(side, group), pad, width) for side in sides))]

    [found] = in_groups(tf.where(error == "", lengths, 0), limit, compute, [result])
    return found


def in_groups(lengths, limit, compute, results, buffer_length=0):
    """Computes results in groups of texts with the same padded width.

    Args:
        lengths: int64 [B]; texts of length 0 are skipped.
        limit: maximum number of tokens.
        compute: function (indices of the texts of a group, padded width) -> list of values.
        results: list of tensors [B, ...], the initial results of all texts.
        buffer_length: see `zoo.tasks.padded_batches.token_batches`.
    """
    lengths = tf.cast(lengths, tf.int32)
    known = [length for length in LENGTHS if length < limit] + [limit]
    known = tf.constant(known)
    widths = tf.gather(known, tf.searchsorted(known, lengths))
    order = tf.argsort(lengths, stable=True)

    def body(start, results):
        width = widths[order[start]]
        group = order[start : start + _most_rows(tf.maximum(width, buffer_length))]
        group = tf.boolean_mask(group, tf.gather(widths, group) == width)
        values = compute(group, width)
        results = [
            tf.tensor_scatter_nd_update(result, group[:, None], new)
            for result, new in zip(results, values)
        ]
        return start + tf.size(group), results

    first = tf.reduce_sum(tf.cast(lengths == 0, tf.int32))
    _, results = tf.while_loop(
        lambda start, results: start < tf.size(lengths),
        body,
        (first, results),
        parallel_iterations=1,
    )
    return results


def filled(group):
    """Indices of texts, the first one repeated up to one of the compiled numbers of rows."""
    count = tf.size(group)
    rows = tf.gather(BATCH_SIZES, tf.searchsorted(tf.constant(BATCH_SIZES), [count])[0])
    return tf.concat([group, tf.repeat(group[:1], rows - count)], axis=0)


def best(found, shape, decode):
    """Texts and scores of the best hypotheses.

    Args:
        found: `zoo.decoding.Hypotheses`.
        shape: (number of texts, number of hypotheses) to return.
        decode: function of int32 [B, N, T] -> string [B, N].

    Returns:
        [texts string [B, N], scores float32 [B, N]], "" and 0 where there are fewer hypotheses.
    """
    rows, count = shape
    tokens, _, scores = (part[:rows, :count] for part in found)
    exists = tf.math.is_finite(scores)
    return [tf.where(exists, decode(tokens), ""), tf.where(exists, scores, 0.0)]


def nothing(rows, count):
    """Texts and scores of texts that are not searched, as of `best`."""
    return [tf.fill([rows, count], ""), tf.zeros([rows, count])]


def dense(tokens, pad, width=1):
    """Pads ragged tokens to int32 [B, T], with T at least `width`."""
    tokens = tokens.to_tensor(pad)
    missing = tf.maximum(0, width - tf.shape(tokens)[1])
    return tf.pad(tokens, [[0, 0], [0, missing]], constant_values=pad)


def fit(values, sizes):
    """Crops or pads with 0 to `sizes`, those of the axes that follow the first."""
    shape = [-1, *sizes, *values.shape[1 + len(sizes) :]]
    return tf.RaggedTensor.from_tensor(values, ragged_rank=len(sizes)).to_tensor(shape=shape)


def _most_rows(width):
    """Maximum number of texts per batch at a padded width; see `zoo.tasks.padded_batches`."""
    fitting = [tf.where(rows * width <= TOKENS_IN_BATCH, rows, 1) for rows in BATCH_SIZES]
    return tf.reduce_max(tf.stack(fitting))


def _text(number, unit):
    return tf.strings.join([tf.strings.as_string(number), unit], separator=" ")
