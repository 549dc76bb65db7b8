"""What the SavedModel signatures of all kinds of models share."""

import functools

import numpy as np
import tensorflow as tf

from zoo.tasks import compiled_functions

TEXTS = tf.TensorSpec([None], tf.string, "texts")
_UNCOMPILED = "the same without XLA, for servers that do not support it; slower"


class Signatures:
    """Functions for a SavedModel that runs with TensorFlow, and tensorflow-text if it takes texts.

    An invalid item does not affect the others of its batch: its `error` says why, its strings are
    empty and its numbers are 0. A subclass has two methods: `functions` returns {signature:
    (function, `TensorSpec` of each input, description)}; `examples` returns a few inputs of the
    default signature, of which a server warms up with the first, and what the model answers.

    Args:
        model: Keras model.
        *text_graphs: those of its tokenizers, see `zoo.deploy.text_graph`.

    Attributes:
        tracked: everything that the SavedModel must track: variables and lookup tables.
        summands: how many log-probabilities a score has at most, if it is a sum.
    """

    summands = 1

    def __init__(self, model, *text_graphs):
        self._model = model
        self.tracked = tf.Module()
        self.tracked.weights = [variable.value for variable in model.weights]
        self.tracked.texts = text_graphs


def search_signatures(function, search, specs, what):
    """Two signatures of ``function(texts, search)``: with a search compiled by XLA, and without."""
    kinds = {"serving_default": (compiled_functions.JIT_COMPILE, what)}
    kinds["uncompiled"] = None, _UNCOMPILED
    found = {}
    for name, (compiled, text) in kinds.items():
        graph = tf.function(search, input_signature=specs, autograph=False, jit_compile=compiled)
        found[name] = functools.partial(function, search=graph), [TEXTS], text
    return found


def example_texts(tokenizer, limit):
    """Random and unusual texts of at most `limit` tokens."""
    spelled, random = tokenizer.token_bytes, np.random.default_rng(0)
    known = [id for id, piece in enumerate(spelled) if piece]
    learned = [id for id in known if len(spelled[id]) > 1] or known
    ids = [random.choice(learned, length) for length in (1, 3, 5, 8)]
    texts = ["hello", *tokenizer.decode(ids), "", "e\u0301 \u4f60 5."]
    return [text for text, row in zip(texts, tokenizer.encode(texts)) if len(row) <= limit]
