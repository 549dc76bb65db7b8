"""Encoders of images and texts: models without a head, with their preprocessing or tokenizer.

Axes: B images or texts, E features.
"""

import numpy as np
from keras import ops

from zoo.errors import TaskError
from zoo.tasks.classifier import ImageReader, TextReader
from zoo.text.special_tokens import SPECIAL_TOKENS


class Encoder:
    """Base class of encoders: features are the output of the model, see its `pool`."""

    normalize = False

    def __call__(self, items, **options):
        """The features of images or texts: float32 [B, E].

        Args:
            items: list of paths, PIL images and arrays [H, W] or [H, W, C] of values in 0..255; or
                list of str.
            **options: for texts `too_long`: "error", or "truncate" to encode the beginning of a
                text that has more tokens than the model takes.

        Raises:
            FileNotFoundError, ImageError: if an image is missing or cannot be read.
            TaskError: if `items` is not such a list, a text is too long, or outputs are NaN.
        """
        return self._outputs(items, **options)

    @property
    def num_outputs(self):
        return self.model.num_features

    def similarity(self, a, b, **options):
        """The cosine similarity of each item of `a` and each item of `b`: float32 [len(a), len(b)].

        Args:
            a, b: items as in `__call__`, or features, arrays [B, E]. The similarity to a vector of
                zeros is 0.
            **options: see `__call__`.

        Raises:
            TaskError: see `__call__`, or if features differ in width.
        """
        pair = [x if getattr(x, "ndim", None) == 2 else self(x, **options) for x in (a, b)]
        a, b = (np.asarray(ops.normalize(np.asarray(x, np.float32), epsilon=1e-12)) for x in pair)
        if a.shape[1] != b.shape[1]:
            raise TaskError(f"Features must be [B, E]. Received: {a.shape} and {b.shape}.")
        return a @ b.T

    def compute_outputs(self, inputs):
        """The features of inputs of the model as a graph: float32 [B, E]."""
        features = ops.cast(self.model(inputs, training=False), "float32")
        return ops.normalize(features, epsilon=1e-12) if self.normalize else features

    def check(self, model):
        if model.num_classes:
            raise TaskError(f"An encoder needs num_classes=0. Received: {model.num_classes}.")
        super().check(model)


class ImageEncoder(Encoder, ImageReader):
    """Features of images: a `zoo.models.ViT` with ``num_classes=0`` and its preprocessing.

    Its arguments are `model` and `preprocessing` of `zoo.tasks.classifier.ImageClassifier`.
    """

    description_file = "image_encoder.json"


class TextEncoder(Encoder, TextReader):
    """Features of texts: a `zoo.models.EncoderClassifier` with ``num_classes=0`` and its tokenizer.

    Args:
        model, tokenizer, special_tokens: as in `zoo.tasks.classifier.TextClassifier`.
        normalize: whether features are scaled to length 1.
    """

    description_file, settings = "text_encoder.json", ("normalize",)

    def __init__(self, model, tokenizer, special_tokens=SPECIAL_TOKENS, normalize=False):
        self.normalize = normalize
        super().__init__(model, tokenizer, special_tokens)
