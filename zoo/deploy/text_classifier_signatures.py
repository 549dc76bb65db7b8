"""SavedModel signatures of a text classifier: strings in, labels out.

Axes: B texts, K returned classes, E model width.
"""

import tensorflow as tf

from zoo.deploy.signatures import TEXTS, Signatures, example_texts
from zoo.deploy.text_graph import TextGraph
from zoo.deploy.text_groups import apply_to_tokens, encode


class TextClassifierSignatures(Signatures):
    """See `Signatures`. The only invalid texts are those that are too long.

    Args:
        classifier: `zoo.tasks.classifier.TextClassifier`.
        top_k: K.
    """

    def __init__(self, classifier, top_k):
        self._classifier, self._top_k = classifier, top_k
        self._text_graph = TextGraph(classifier.tokenizer)
        super().__init__(classifier.model, self._text_graph)

    def functions(self):
        return {
            "serving_default": (self.classify, [TEXTS], "texts to labels"),
            "features": (self.features, [TEXTS], "texts to the input of the head"),
        }

    def examples(self):
        texts = example_texts(self._classifier.tokenizer, self._model.max_length - 2)
        return texts, self._classifier.probabilities(texts)

    def classify(self, texts):
        """Classifies texts, string [B]."""
        classes = len(self._classifier.class_names)
        found, error = self._run(texts, self._classifier.probabilities_of_tokens, classes)
        probabilities, order = tf.math.top_k(found, self._top_k)
        labels = tf.gather(self._classifier.class_names, order)
        labels = tf.where((error == "")[:, None], labels, "")
        return {"labels": labels, "probabilities": probabilities, "error": error}

    def features(self, texts):
        """Returns the input of the head, [B, E]."""
        found, error = self._run(texts, self._model.pooled_features, self._model.embed_dim)
        return {"features": found, "error": error}

    def _run(self, texts, function, width):
        """The outputs of a function of tokens, float32 [B, width], 0 for an error; and errors."""
        limit = self._model.max_length
        special = self._classifier.special_tokens
        tokens, error = encode(self._text_graph, texts, limit, (special.start,), (special.end,))

        def compute(tokens):
            return tf.cast(function(tokens), tf.float32)

        initial = tf.zeros([tf.size(texts), width])
        return apply_to_tokens(compute, [tokens], error, limit, special.pad, initial), error
