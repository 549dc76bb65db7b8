"""Encoders of images and texts: models without a head, with their preprocessing or tokenizer.

Axes: B images or texts, E features.
"""

import numpy as np
from keras import ops

from zoo.errors import TaskError, check_bool
from zoo.tasks.classifier import EncodedTextTask, ImageTask
from zoo.text.special_tokens import SPECIAL_TOKENS


class Encoder:
    """What encoders of images and of texts share: a mixin, which comes first of the bases."""

    verb = "export"
    normalize = False
    graph_constants = ("normalize",)

    @property
    def output_width(self):
        return self.model.num_features

    def compute_outputs(self, inputs):
        """The features of inputs of the model as a graph: float32 [B, E]."""
        features = ops.cast(self.model(inputs, training=False), "float32")
        return ops.normalize(features, epsilon=1e-12) if self.normalize else features

    def check_model(self, model):
        if model.num_classes:
            raise TaskError(f"An encoder needs num_classes=0. Received: {model.num_classes}.")
        super().check_model(model)

    def similarity(self, a, b, **options):
        """The cosine similarity of each item of `a` and each item of `b`.

        Args:
            a, b: images or texts, see `__call__`, or features, arrays [B, E].
            **options: `too_long` of a text encoder, for texts.

        Returns:
            float32 [len(a), len(b)]. The similarity to a vector of zeros is 0.

        Raises:
            TaskError: see `__call__`, or if features differ in width.
        """
        are_features = [getattr(items, "ndim", None) == 2 for items in (a, b)]
        if options and all(are_features):
            raise TaskError(f"Features need no options. Received: {', '.join(options)}.")
        if not are_features[0]:
            a = self(a, **options)
        if not are_features[1]:
            b = self(b, **options)
        a = np.asarray(ops.normalize(np.asarray(a, np.float32), epsilon=1e-12))
        b = np.asarray(ops.normalize(np.asarray(b, np.float32), epsilon=1e-12))
        if a.shape[1] != b.shape[1]:
            raise TaskError(f"Features must be [B, E]. Received: {a.shape} and {b.shape}.")
        return a @ b.T


class ImageEncoder(Encoder, ImageTask):
    """Features of images.

    Args:
        model: `zoo.models.ViT` with ``num_classes=0``.
        preprocessing: `zoo.data.preprocessing.ImagePreprocessing`.
    """

    description_file = "image_encoder.json"

    def __call__(self, images):
        """The features of images: float32 [B, E].

        Args:
            images: list of paths, PIL images and arrays [H, W] or [H, W, C] of values in 0..255.

        Raises:
            FileNotFoundError, ImageError: if an image is missing or cannot be read.
            TaskError: if `images` is not such a list, or outputs are NaN.
        """
        return self.outputs_of_images(images)


class TextEncoder(Encoder, EncodedTextTask):
    """Features of texts.

    Args:
        model: `zoo.models.EncoderClassifier` with ``num_classes=0``.
        tokenizer, special_tokens: see `zoo.tasks.classifier.TextClassifier`.
        normalize: whether features are scaled to length 1.
    """

    description_file = "text_encoder.json"
    saved_arguments = ("normalize",)

    def __init__(self, model, tokenizer, special_tokens=SPECIAL_TOKENS, normalize=False):
        check_bool("normalize", normalize)
        self.normalize = normalize
        super().__init__(model, tokenizer, special_tokens)

    def __call__(self, texts, too_long="error"):
        """The features of texts: float32 [B, E].

        Args:
            texts: list of str.
            too_long: "error"; or "truncate", to encode the beginning of a text that has more tokens
                than the model takes.

        Raises:
            TaskError: if `texts` is not a list of str, a text is too long, or outputs are NaN.
        """
        return self._outputs(texts, too_long)
