"""SavedModel signatures of a text classifier or encoder: texts to labels or features.

Axes: B texts, K returned classes, E model width.
"""

import tensorflow as tf

from zoo.deploy.signatures import TEXTS, TextSignatures, example_texts
from zoo.deploy.text_graph import TextGraph


class TextClassifierSignatures(TextSignatures):
    """See `Signatures`.

    Args:
        classifier: `zoo.tasks.classifier.TextClassifier` or `zoo.tasks.encoder.TextEncoder`.
        top_k: K; None for an encoder.
    """

    def __init__(self, classifier, top_k=None):
        self._top_k, self._text_graph = top_k, TextGraph(classifier.tokenizer)
        super().__init__(classifier, classifier.model.max_length, self._text_graph)

    def functions(self):
        if not self._top_k:
            return {"serving_default": (self.features, [TEXTS], "texts to features")}
        return {
            "serving_default": (self.classify, [TEXTS], "texts to labels"),
            "features": (self.features, [TEXTS], "texts to the input of the head"),
        }

    def examples(self):
        texts = example_texts(self._task.tokenizer, self._limit - 2)
        return texts, self._task(texts, *[len(self._task.class_names)] if self._top_k else [])

    def classify(self, texts):
        """Classifies texts, string [B]."""
        found = self._run(texts, self._task.compute_outputs, self._task.num_outputs)
        return self._best(*found, self._top_k)

    def features(self, texts):
        """Returns the input of the head, or the features of an encoder, [B, E]."""
        compute = self._model.pooled_features if self._top_k else self._task.compute_outputs
        found, error = self._run(texts, compute, self._model.embed_dim)
        return {"features": found, "error": error}

    def _run(self, texts, function, width):
        """Computes a function of tokens: float32 [B, width], 0 for an error; and the errors."""
        control = [self._special.start], [self._special.end]
        tokens, error = self._encode(self._text_graph, texts, *control)
        [found] = self._computed(
            lambda _, tokens: [tf.cast(function(tokens), tf.float32)],
            [tokens],
            error,
            [tf.zeros([tf.size(texts), width])],
        )
        return found, error
