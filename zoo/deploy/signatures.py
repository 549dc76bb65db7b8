"""Base classes of the SavedModel signatures of all tasks.

Axes: B texts, N answers to a text, T tokens.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from zoo.tasks import task as tasks
from zoo.tasks.padded_batches import BATCH_SIZES, LENGTHS, TOKENS_IN_BATCH

TEXTS = tf.TensorSpec([None], tf.string, "texts")


class Signature(NamedTuple):
    """A function of a SavedModel."""

    function: Callable  # of tensors; returns {name: tensor}
    inputs: list  # of a `tf.TensorSpec` for each
    what: str  # its description in export.json


class Signatures:
    """Functions for a SavedModel that runs with TensorFlow, and tensorflow-text if it takes texts.

    An invalid item does not affect the others in its batch: its `error` says why, its strings are
    empty and its numbers are 0. A subclass has two methods:

    - `signatures` returns {name: `Signature`}.
    - `examples` returns a few inputs of the default signature, and the expected answers: for each
      input a list of (text or label, score or probability), the best first; or features [B, E].
      A server warms up with the first input.

    Args:
        task: `zoo.tasks.task.Task`.
        *text_graphs: `zoo.deploy.text_graph.TextGraph` of its tokenizers.

    Attributes:
        tracked: everything that the SavedModel must track: variables and lookup tables.
        summands: maximum number of log-probabilities that a score is the sum of.
    """

    summands = 1

    def __init__(self, task, *text_graphs):
        self._task = task
        self._model = task.model
        self.tracked = tf.Module()
        self.tracked.weights = [variable.value for variable in task.model.weights]
        self.tracked.texts = text_graphs


class TextSignatures(Signatures):
    """`Signatures` of texts.

    Texts are padded to a few shapes, so that an answer does not depend on the other texts of a
    batch, and a search is compiled only a few times.

    Args:
        task, *text_graphs: see `Signatures`.
        limit: maximum number of tokens of a text, including control ids.
    """

    def __init__(self, task, limit, *text_graphs):
        super().__init__(task, *text_graphs)
        self._limit = limit
        self._special = task.special_tokens

    def _encode(self, text_graph, texts, start=(), end=()):
        """Tokenizes texts, string [B], with control ids at the beginning and at the end.

        Returns ragged tokens [B, None] and errors, string [B]. A text that is too long has an
        error, and only the control ids.
        """
        size = tf.strings.length(texts)
        huge = size > text_graph.longest_token * self._limit  # tokenizing it would be slow
        ids = text_graph.encode(tf.where(huge, "", texts))
        count = tf.cast(ids.row_lengths(), tf.int32) + len(start) + len(end)
        too_long = huge | (count > self._limit)
        bytes_text = tf.strings.as_string(size) + " bytes"
        tokens_text = tf.strings.as_string(count) + " tokens"
        error = "The text is too long: it has " + tf.where(huge, bytes_text, tokens_text)
        error = tf.where(too_long, error + f". The maximum is {self._limit} tokens.", "")
        kept = ids.with_values(tf.repeat(~too_long, ids.row_lengths()))
        before = tf.tile(tf.constant([start], tf.int32), [tf.size(texts), 1])
        after = tf.tile(tf.constant([end], tf.int32), [tf.size(texts), 1])
        return tf.concat([before, tf.ragged.boolean_mask(ids, kept), after], axis=1), error

    def _computed(self, function, sides, error, results, buffer_length=0):
        """Computes results of the texts without an error, in groups with the same padded width.

        Args:
            function: takes the indices of the texts in a group and the tokens of each side, int32
                [group, T]; returns a list of results [group, ...].
            sides: list of one or two ragged tokens [B, None].
            error: string [B].
            results: list of tensors [B, ...], the results of texts with an error.
            buffer_length: see `zoo.tasks.padded_batches.pad_and_batch`.
        """
        lengths = functools.reduce(tf.maximum, [side.row_lengths() for side in sides])
        lengths = tf.where(error == "", tf.cast(lengths, tf.int32), 0)
        known = tf.constant([*(length for length in LENGTHS if length < self._limit), self._limit])
        widths = tf.gather(known, tf.searchsorted(known, lengths))
        order = tf.argsort(lengths, stable=True)

        def body(start, results):
            width = widths[order[start]]
            sizes = tf.constant(BATCH_SIZES)
            fits = sizes * tf.maximum(width, buffer_length) <= TOKENS_IN_BATCH
            group = order[start : start + tf.reduce_max(tf.where(fits, sizes, 1))]
            group = tf.boolean_mask(group, tf.gather(widths, group) == width)
            tokens = [self._dense(tf.gather(side, group), width) for side in sides]
            results = [
                tf.tensor_scatter_nd_update(result, group[:, None], new)
                for result, new in zip(results, function(group, *tokens))
            ]
            return start + tf.size(group), results

        _, results = tf.while_loop(
            lambda start, results: start < tf.size(lengths),
            body,
            (tf.reduce_sum(tf.cast(lengths == 0, tf.int32)), results),
            parallel_iterations=1,
        )
        return results

    def _searched(self, search, tokens, error, count, decode, buffer_length=0):
        """Searches the best answers, string [B, N], and their scores; missing ones are "" and 0.

        Args:
            search: takes the indices of texts and their tokens, int32 [group, T]; returns
                `zoo.decoding.Hypotheses`.
            tokens, error, buffer_length: see `_computed`.
            count: N.
            decode: decodes int32 [group, N, T] to string [group, N].
        """
        control = tf.constant([self._special.start, self._special.end, self._special.pad])

        def answers(group, tokens):
            # The texts are repeated up to a number of rows for which the search is compiled.
            rows = tf.gather(BATCH_SIZES, tf.searchsorted(BATCH_SIZES, [tf.size(group)])[0])
            places = tf.range(rows) % tf.size(group)
            found = search(tf.gather(group, places), tf.gather(tokens, places))
            tokens, _, scores = (part[: tf.size(group), :count] for part in found)
            is_text = tf.reduce_all(tokens[..., None] != control, axis=-1)  # [group, N, T]
            texts = decode(tf.where(is_text, tokens, -1))  # [group, N]
            exists = tf.math.is_finite(scores)
            return [tf.where(exists, texts, ""), tf.where(exists, scores, 0.0)]

        shape = (tf.size(error), count)
        results = [tf.fill(shape, ""), tf.zeros(shape)]
        return self._computed(answers, [tokens], error, results, buffer_length)

    def _dense(self, tokens, width=None):
        """Pads ragged tokens to int32 [B, T]; T is `width`, or by default the longest length."""
        shape = None if width is None else [-1, width]
        return tokens.to_tensor(self._special.pad, shape=shape)


def search_signatures(answer, search, inputs, what):
    """Returns two signatures of texts: with a search that XLA compiles, and without XLA.

    `answer` takes texts, string [B], and `search`, a function of tensors with the specs `inputs`.
    """

    def with_search(jit_compile):
        graph = tf.function(search, inputs, autograph=False, jit_compile=jit_compile)
        return functools.partial(answer, search=graph)

    uncompiled = "the same without XLA, for servers that do not support it; slower"
    return {
        "serving_default": Signature(with_search(tasks.JIT_COMPILE), [TEXTS], what),
        "uncompiled": Signature(with_search(None), [TEXTS], uncompiled),
    }


def example_texts(tokenizer, limit):
    """Returns random and unusual texts of at most `limit` tokens."""
    random = np.random.default_rng(0)
    spelled = tokenizer.token_bytes
    known = [id for id, piece in enumerate(spelled) if piece]
    learned = [id for id in known if len(spelled[id]) > 1] or known
    ids = [random.choice(learned, length) for length in (1, 3, 5, 8)]
    texts = ["hello", *tokenizer.decode(ids), "", "e\u0301 \u4f60 5."]
    return [text for text, row in zip(texts, tokenizer.encode(texts)) if len(row) <= limit]
