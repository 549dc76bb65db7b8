"""SavedModel signatures of a text classifier: strings in, labels out.

Axes: B texts, K returned classes, E model width.
"""

import tensorflow as tf

from zoo.deploy.signatures import TEXTS, TextSignatures, example_texts
from zoo.deploy.text_graph import TextGraph


class TextClassifierSignatures(TextSignatures):
    """See `Signatures`.

    Args:
        classifier: `zoo.tasks.classifier.TextClassifier`.
        top_k: K.
    """

    def __init__(self, classifier, top_k):
        self._top_k, self._text_graph = top_k, TextGraph(classifier.tokenizer)
        super().__init__(classifier, classifier.model.max_length, self._text_graph)

    def functions(self):
        return {
            "serving_default": (self.classify, [TEXTS], "texts to labels"),
            "features": (self.features, [TEXTS], "texts to the input of the head"),
        }

    def examples(self):
        texts = example_texts(self._task.tokenizer, self._limit - 2)
        return texts, self._task(texts, len(self._task.class_names))

    def classify(self, texts):
        """Classifies texts, string [B]."""
        names = self._task.class_names
        found, error = self._run(texts, self._task.probabilities_of_tokens, len(names))
        probabilities, order = tf.math.top_k(found, self._top_k)
        labels = tf.where((error == "")[:, None], tf.gather(names, order), "")
        return {"labels": labels, "probabilities": probabilities, "error": error}

    def features(self, texts):
        """Returns the input of the head, [B, E]."""
        found, error = self._run(texts, self._model.pooled_features, self._model.embed_dim)
        return {"features": found, "error": error}

    def _run(self, texts, function, width):
        """The outputs of a function of tokens, float32 [B, width], 0 for an error; and errors."""
        control = [self._special.start], [self._special.end]
        tokens, error = self._encode(self._text_graph, texts, *control)

        def compute(tokens):
            return tf.cast(function(tokens), tf.float32)

        return self._computed(compute, [tokens], error, tf.zeros([tf.size(texts), width])), error
