"""Classifiers of images and texts, and the base classes that they share with encoders.

Axes: B images or texts, T tokens.
"""

import math
import os
import warnings

import keras
import numpy as np
import tensorflow as tf

from zoo.data.preprocessing import ImagePreprocessing
from zoo.errors import TaskError, as_number
from zoo.tasks.task import Task, TextTask, without_nan
from zoo.text.encoding import encode
from zoo.text.special_tokens import SPECIAL_TOKENS, truncated

# How logits become probabilities: an item has one class, or any number of classes.
PROBLEMS = {"single_label": keras.ops.softmax, "multi_label": keras.ops.sigmoid}
_IMAGES_IN_BATCH = 64


class ImageReader(Task):
    """Base class of classifiers and encoders of images.

    A subclass defines `compute_outputs`, from inputs of the model to [B, `num_outputs`].
    """

    def __init__(self, model, preprocessing):
        self.preprocessing = preprocessing
        super().__init__(model)

    def preprocess(self, images):
        """Preprocesses images for `model`: float32 [B, H, W, C]; see `__call__` for images."""
        is_array = getattr(images, "ndim", None) == 3 and images.shape[-1] in (1, 3, 4)
        is_pillow = hasattr(images, "convert")
        if is_array or is_pillow or isinstance(images, (str, bytes, os.PathLike)):
            raise TaskError(
                "images must be a list, or an array [B, H, W, C]. Pass [image] for one image."
            )
        pixels = [self.preprocessing.read(image) for image in images]
        if not pixels:
            return np.zeros((0, *self.model.input_shape), np.float32)
        return self.preprocessing.normalize(np.stack(pixels)).numpy()

    def outputs(self, inputs):
        """The outputs for preprocessed images, of the engine if there is one.

        Args:
            inputs: float32 [B, H, W, C].

        Returns:
            [B, num_outputs].
        """
        if not len(inputs):
            return np.zeros((0, self.num_outputs), np.float32)
        parts = np.split(inputs, range(_IMAGES_IN_BATCH, len(inputs), _IMAGES_IN_BATCH))
        if self.engine is not None:
            return np.concatenate([without_nan(self.engine(part)) for part in parts])
        # `Model.predict` has an overhead of tens of milliseconds per call.
        spec = tf.TensorSpec((None, *self.model.input_shape), tf.float32)
        outputs = [self.run(self.compute_outputs, part, specs=(spec,)) for part in parts]
        return np.concatenate(outputs)

    def description(self):
        return {"preprocessing": self.preprocessing.to_dict(), **super().description()}

    @classmethod
    def from_description(cls, description, model):
        preprocessing = ImagePreprocessing.from_dict(description["preprocessing"])
        return super().from_description(description, model, preprocessing)


class TextReader(TextTask):
    """Base class of classifiers and encoders of texts; see `ImageReader`."""

    tokenizer_names = {"tokenizer": "text"}

    def __init__(self, model, tokenizer, special_tokens):
        self.tokenizer = tokenizer
        super().__init__(model, special_tokens)

    def encode(self, texts, too_long="error"):
        """Tokenizes texts, with the start and the end token.

        Args:
            texts: list of str.
            too_long: see `__call__`.

        Returns:
            A list of ids (int) for each text.

        Raises:
            TaskError: see `__call__`.
        """
        if too_long not in ("error", "truncate"):
            raise TaskError(
                f'too_long must be "error" or "truncate". Received: too_long={too_long!r}.'
            )
        limit = self.model.max_length
        rows = encode(
            self.tokenizer,
            texts,
            limit if too_long == "error" else math.inf,
            self.special_tokens.end,
            prefix=[self.special_tokens.start],
            advice='Shorten it, or pass too_long="truncate" for its beginning.',
        )
        num_long = sum(len(row) > limit for row in rows)
        if num_long:
            warnings.warn(
                f"{num_long} of {len(rows)} texts are truncated to {limit} tokens.", stacklevel=2
            )
        return [truncated(row, limit) for row in rows]

    def _outputs(self, texts, too_long):
        """The outputs for texts: float32 [B, num_outputs]."""
        rows = [[tokens] for tokens in self.encode(texts, too_long)]

        def compute(batch):
            return [self.run(self.compute_outputs, *batch.tokens)]

        outputs = np.asarray(self.compute(rows, compute), np.float32)
        return outputs.reshape(-1, self.num_outputs)


class Classifier:
    """Base class of classifiers: from probabilities to class names."""

    verb = "classify"
    saved_arguments = ("class_names", "problem")
    graph_constants = ("problem",)

    @property
    def problem(self):
        return self._problem

    @problem.setter
    def problem(self, problem):
        self._problem = problem
        self.engine = None  # it computes the probabilities of the old problem

    @property
    def num_outputs(self):
        return len(self.class_names)

    def check(self, model):
        if self.problem not in (*PROBLEMS,):
            raise TaskError(f"problem must be one of {(*PROBLEMS,)}. Received: {self.problem!r}.")
        if model.num_classes != len(self.class_names):
            raise TaskError(
                f"The model has {model.num_classes} classes. "
                f"Received {len(self.class_names)} class names."
            )
        super().check(model)

    def compute_outputs(self, inputs):
        """The probability of each class as a graph: float32 [B, classes].

        Args:
            inputs: those of the model: images [B, H, W, C], or tokens int32 [B, T].
        """
        return self.probabilities_of_logits(self.model(inputs, training=False))

    def probabilities_of_logits(self, logits):
        """The probability of each class: float32, of the shape of the logits."""
        return PROBLEMS[self.problem](keras.ops.cast(logits, "float32"))

    def _least(self, top_k, threshold):
        """The minimum probability of each class in an answer: float32 [classes]."""
        classes = len(self.class_names)
        if threshold is None:
            is_default = top_k is None and self.problem == "multi_label"
            threshold = 0.5 if is_default else 0.0
        least = np.asarray(threshold)
        if least.shape not in ((), (classes,)):
            raise TaskError(
                f"threshold must be a number, or one for each of the {classes} classes. "
                f"Received: {least.size} numbers."
            )
        least = [as_number("threshold", number, float, 0, 1) for number in least.ravel().tolist()]
        return np.broadcast_to(np.float32(least), classes)

    def _most(self, top_k, threshold):
        """The maximum number of classes in an answer."""
        if top_k is not None:
            return as_number("top_k", top_k, int, 1)
        is_default = threshold is None and self.problem == "single_label"
        return 1 if is_default else len(self.class_names)

    def _answers(self, probabilities, most, least):
        """The classes of each row of probabilities [B, classes]: lists of (name, probability)."""
        answers = []
        for row in probabilities:
            order = np.argsort(-row, kind="stable")
            best = order[row[order] >= least[order]][:most]
            answers.append([(self.class_names[index], float(row[index])) for index in best])
        return answers


class ImageClassifier(Classifier, ImageReader):
    """Classifies images with a Keras model, its preprocessing and its class names.

    Args:
        model: `zoo.models.ViT`, or another `keras.Model` from preprocessed
            images to logits [B, `num_classes`] with that attribute and `input_shape`, (H, W, C).
            Another one may be assigned later.
        preprocessing: `zoo.data.preprocessing.ImagePreprocessing`.
        class_names: list of class names, in the order of the logits.
        problem: "single_label", each image has one class: probabilities are the softmax of the
            logits; or "multi_label", each image has any number of classes: they are sigmoids.

    Attributes:
        problem: as given; it can be assigned.
        engine: function from preprocessed images to probabilities, in place of the model; see
            `zoo.load`. None by default.

    Raises:
        TaskError: if the number of class names is not the number of logits, or `problem` is
            unknown.
    """

    description_file = "classifier.json"

    def __init__(self, model, preprocessing, class_names, problem="single_label"):
        self.class_names = list(class_names)
        self.problem = problem
        super().__init__(model, preprocessing)

    def __call__(self, images, top_k=None, threshold=None):
        """Classifies images.

        Args:
            images: list of paths, PIL images and arrays [H, W] or [H, W, C] of values in 0..255.
            top_k: maximum number of classes to return for each image.
            threshold: minimum probability of returned classes, from 0 to 1: a number, or one for
                each class. Without `top_k` and `threshold`, the most likely class is returned, or
                with ``problem="multi_label"`` all classes with a probability of at least 0.5.

        Returns:
            For each image a list of (class name, probability), the most likely first, which may be
            empty with a threshold. The result of an image does not depend on the others.

        Raises:
            FileNotFoundError, ImageError: if an image is missing or cannot be read.
            TaskError: if `images` is not such a list, `top_k` is not positive, thresholds are not
                from 0 to 1 or not one for each class, or outputs are NaN.
        """
        most = self._most(top_k, threshold)
        least = self._least(top_k, threshold)
        return self._answers(self.probabilities(images), most, least)

    def probabilities(self, images):
        """The probability of each class for each image: float32 [B, classes]; see `__call__`."""
        return self.outputs(self.preprocess(images))


class TextClassifier(Classifier, TextReader):
    """Classifies texts with a Keras model, its tokenizer and its class names.

    Args:
        model: `zoo.models.EncoderClassifier`. Another one may be assigned later.
        tokenizer: `zoo.text.sentencepiece.SentencePieceTokenizer` or
            `zoo.text.library_tokenizer.LibraryTokenizer`.
        class_names: list of class names, in the order of the logits.
        special_tokens: `zoo.decoding.SpecialTokens`: a text is between start and end.
        problem: see `ImageClassifier`.

    Raises:
        TaskError: if the number of class names, the vocabulary or the padding token is not that of
            the model, or `problem` is unknown.
    """

    description_file = "text_classifier.json"

    def __init__(
        self, model, tokenizer, class_names, special_tokens=SPECIAL_TOKENS, problem="single_label"
    ):
        self.class_names = list(class_names)
        self.problem = problem
        super().__init__(model, tokenizer, special_tokens)

    def __call__(self, texts, top_k=None, threshold=None, too_long="error"):
        """Classifies texts.

        Args:
            texts: list of str.
            top_k, threshold: see `ImageClassifier.__call__`.
            too_long: "error"; or "truncate", to classify the beginning of a text that has more
                tokens than the model takes.

        Returns:
            See `ImageClassifier.__call__`.

        Raises:
            TaskError: if `texts` is not a list of str, `top_k` is not positive, thresholds are not
                from 0 to 1 or not one for each class, a text is too long, or outputs are NaN.
        """
        most = self._most(top_k, threshold)
        least = self._least(top_k, threshold)
        return self._answers(self.probabilities(texts, too_long), most, least)

    def probabilities(self, texts, too_long="error"):
        """The probability of each class for each text: float32 [B, classes]; see `__call__`."""
        return self._outputs(texts, too_long)
