"""Classifiers of images and texts, and the base classes that they share with encoders.

Axes: B images or texts, T tokens.
"""

import math
import os
import warnings
from collections.abc import Mapping, Set

import keras
import numpy as np
import tensorflow as tf
from tqdm import tqdm

from zoo.data.preprocessing import ImagePreprocessing
from zoo.errors import TaskError, as_number
from zoo.tasks.task import Task, TextTask, without_nan
from zoo.text.encoding import encode
from zoo.text.special_tokens import SPECIAL_TOKENS, truncated
from zoo.text.tokenizer import as_texts

# How logits become probabilities: an item has one class, or any number of classes.
PROBLEMS = {"single_label": keras.ops.softmax, "multi_label": keras.ops.sigmoid}
_IMAGES_IN_BATCH = 64


class ImageTask(Task):
    """Base class of classifiers and encoders of images.

    A subclass defines `compute_outputs`, from inputs of the model to [B, `output_width`].
    """

    def __init__(self, model, preprocessing):
        self.preprocessing = preprocessing
        super().__init__(model)

    @property
    def image_shape(self):
        """The shape (H, W, C) of preprocessed images."""
        return (*self.preprocessing.image_size, self.preprocessing.channels)

    def check_model(self, model):
        super().check_model(model)
        shape = getattr(model, "input_shape", self.image_shape)[-3:]
        if any(size not in (None, own) for size, own in zip(shape, self.image_shape)):
            raise TaskError(
                f"The model takes images of the shape {shape}. The preprocessing makes "
                f"{self.image_shape}."
            )

    def preprocess(self, images):
        """Preprocesses images, see `__call__`, for the model: float32 [B, H, W, C]."""
        self._check_list(images)
        return self.normalized([self.preprocessing.read(image) for image in images])

    def normalized(self, pixels):
        """Normalizes images that `preprocessing.read` returned: float32 [B, H, W, C]."""
        if not len(pixels):
            return np.zeros((0, *self.image_shape), np.float32)
        return self.preprocessing.normalize(np.stack(pixels)).numpy()

    @staticmethod
    def _check_list(images):
        is_array = getattr(images, "ndim", None) == 3 and images.shape[-1] in (1, 3, 4)
        is_pillow = hasattr(images, "convert")
        if is_array or is_pillow or isinstance(images, (str, bytes, os.PathLike, Set, Mapping)):
            raise TaskError(
                "images must be a list, or an array [B, H, W, C]. Pass [image] for one image."
            )

    def outputs_of_images(self, images):
        """The outputs [B, output_width] for images, see `__call__`, read in batches."""
        self._check_list(images)
        images = list(images)
        outputs = [np.zeros((0, self.output_width), np.float32)]
        # A bar is shown on a terminal, for work that takes longer than a moment.
        with tqdm(total=len(images), unit="image", delay=1.0, leave=False, disable=None) as bar:
            for start in range(0, len(images), _IMAGES_IN_BATCH):
                batch = images[start : start + _IMAGES_IN_BATCH]
                outputs.append(self.outputs(self.preprocess(batch)))
                bar.update(len(batch))
        return np.concatenate(outputs)

    def outputs(self, inputs):
        """The outputs [B, output_width] for preprocessed images, float32 [B, H, W, C]."""
        if not len(inputs):
            return np.zeros((0, self.output_width), np.float32)
        parts = np.split(inputs, range(_IMAGES_IN_BATCH, len(inputs), _IMAGES_IN_BATCH))
        if self.engine is not None:
            return np.concatenate([without_nan(self.engine(part)) for part in parts])
        # `Model.predict` has an overhead of tens of milliseconds per call.
        spec = tf.TensorSpec((None, *self.image_shape), tf.float32)
        outputs = [self.run(self.compute_outputs, part, specs=(spec,)) for part in parts]
        return np.concatenate(outputs)

    def description(self):
        return {"preprocessing": self.preprocessing.to_dict(), **super().description()}

    @classmethod
    def from_description(cls, description, model):
        preprocessing = ImagePreprocessing.from_dict(description["preprocessing"])
        return super().from_description(description, model, preprocessing)


class EncodedTextTask(TextTask):
    """Base class of classifiers and encoders of texts; see `ImageTask`."""

    tokenizer_names = {"tokenizer": "text"}

    def __init__(self, model, tokenizer, special_tokens):
        self.tokenizer = tokenizer
        super().__init__(model, special_tokens)

    def encode(self, texts, too_long="error"):
        """Tokenizes texts, see `__call__`: a list of ids for each, from start to end token."""
        if too_long not in ("error", "truncate"):
            raise TaskError(
                f'too_long must be "error" or "truncate". Received: too_long={too_long!r}.'
            )
        limit = self.model.max_length
        beginnings = as_texts(texts)
        if too_long == "truncate":  # tokenizing all of a huge text would take long
            most = (limit + 1) * self.tokenizer.longest_token
            beginnings = [text[:most] for text in beginnings]
        rows = encode(
            self.tokenizer,
            beginnings,
            limit if too_long == "error" else math.inf,
            self.special_tokens.end,
            prefix=[self.special_tokens.start],
            advice='Shorten it, or pass too_long="truncate" for its beginning.',
        )
        num_long = sum(
            len(row) > limit or len(beginning) < len(text)
            for row, beginning, text in zip(rows, beginnings, texts)
        )
        if num_long:
            warnings.warn(
                f"{num_long} of {len(rows)} texts are truncated to {limit} tokens.", stacklevel=2
            )
        return [truncated(row, limit) for row in rows]

    def _outputs(self, texts, too_long):
        """The outputs for texts: float32 [B, output_width]."""
        rows = [[tokens] for tokens in self.encode(texts, too_long)]

        def compute(batch):
            return [self.run(self.compute_outputs, *batch.tokens)]

        outputs = np.asarray(self.map_batches(rows, compute), np.float32)
        return outputs.reshape(-1, self.output_width)


class Classifier:
    """What classifiers of images and of texts share. A mixin; list it before the other bases."""

    verb = "classify"
    saved_arguments = ("class_names", "problem")
    graph_constants = ("problem",)

    @property
    def problem(self):
        return self._problem

    @problem.setter
    def problem(self, problem):
        if problem not in (*PROBLEMS,):
            raise TaskError(f"problem must be one of {(*PROBLEMS,)}. Received: {problem!r}.")
        self._problem = problem
        self.engine = None  # it computes the probabilities of the old problem

    @property
    def output_width(self):
        return len(self.class_names)

    def check_model(self, model):
        super().check_model(model)
        num_classes = getattr(model, "num_classes", None)
        if num_classes is None:  # another Keras model
            num_classes = _num_logits(model, self.image_shape)
        if num_classes != len(self.class_names):
            raise TaskError(
                f"The model has {num_classes} classes. "
                f"Received {len(self.class_names)} class names."
            )

    def compute_outputs(self, inputs):
        """The probability of each class as a graph: float32 [B, classes]."""
        return self.probabilities_of_logits(self.model(inputs, training=False))

    def probabilities_of_logits(self, logits):
        """The probability of each class: float32, of the shape of the logits."""
        return PROBLEMS[self.problem](keras.ops.cast(logits, "float32"))

    def _limits(self, top_k, threshold):
        """The maximum number of classes in an answer, and the minimum probability of each."""
        classes = len(self.class_names)
        if top_k is None and threshold is None:
            if self.problem == "single_label":
                top_k = 1
            else:
                threshold = 0.5
        max_classes = classes if top_k is None else as_number("top_k", top_k, int, 1)
        numbers = np.asarray(0.0 if threshold is None else threshold)
        if numbers.shape not in ((), (classes,)):
            raise TaskError(
                f"threshold must be a number, or one for each of the {classes} classes. "
                f"Received: {numbers.size} numbers."
            )
        numbers = [as_number("threshold", x, float, 0, 1) for x in numbers.ravel().tolist()]
        return max_classes, np.broadcast_to(np.float32(numbers), classes)

    def _answers(self, probabilities, max_classes, thresholds):
        """The classes of each row of probabilities [B, classes]: lists of (name, probability)."""
        answers = []
        for row in probabilities:
            order = np.argsort(-row, kind="stable")
            best = order[row[order] >= thresholds[order]][:max_classes]
            answers.append([(self.class_names[index], float(row[index])) for index in best])
        return answers


def _as_list(class_names):
    """The class names as a list; raises `TaskError` if they have no order, or are one string."""
    if isinstance(class_names, (str, bytes, Set, Mapping)):
        raise TaskError(
            "class_names must be a list, in the order of the logits. "
            f"Received: class_names={class_names!r}."
        )
    return [str(name) for name in class_names]  # they may be numbers


def _num_logits(model, image_shape):
    """The number of logits of a Keras model of images; `TaskError` if it returns others."""
    shape = model.compute_output_shape((None, *image_shape))
    is_matrix = isinstance(shape, tuple) and len(shape) == 2 and not isinstance(shape[0], tuple)
    if not is_matrix:
        raise TaskError(f"The model must return logits [B, classes]. It returns: {shape}.")
    if hasattr(model, "outputs"):  # a functional or sequential model, whose last layer is known
        last = model.layers[-1]
        function = getattr(last, "activation", None)
        to_probabilities = (keras.activations.softmax, keras.activations.sigmoid)
        if isinstance(last, keras.layers.Softmax) or function in to_probabilities:
            raise TaskError(
                f"The model returns probabilities, by its last layer {last.name}. Logits are "
                "needed: create the layer without activation, or a model of keras.applications "
                "with classifier_activation=None."
            )
    return shape[1]


class ImageClassifier(Classifier, ImageTask):
    """Classifies images with a Keras model, its preprocessing and its class names.

    Args:
        model: `zoo.models.ViT`, or another built `keras.Model` from images, as `preprocessing`
            gives them, to logits [B, classes].
        preprocessing: `zoo.data.preprocessing.ImagePreprocessing`.
        class_names: list of class names, in the order of the logits.
        problem: "single_label", each image has one class: probabilities are the softmax of the
            logits; or "multi_label", each image has any number of classes: they are sigmoids.

    Model and problem can be assigned later.

    Raises:
        TaskError: if the class names are not a list with a name for each logit, the model returns
            probabilities, or `problem` is unknown.
    """

    description_file = "classifier.json"

    def __init__(self, model, preprocessing, class_names, problem="single_label"):
        self.class_names = _as_list(class_names)
        self.problem = problem
        super().__init__(model, preprocessing)

    def __call__(self, images, top_k=None, threshold=None):
        """Classifies images.

        Args:
            images: list of paths, PIL images and arrays [H, W] or [H, W, C] of values in 0..255.
                They are read in batches.
            top_k: maximum number of classes to return for each image.
            threshold: minimum probability of returned classes, from 0 to 1: a number, or one for
                each class. Without `top_k` and `threshold`, the most likely class is returned, or
                with ``problem="multi_label"`` all classes with a probability of at least 0.5.

        Returns:
            For each image a list of (class name, probability), the most likely first, which may be
            empty with a threshold.

        Raises:
            FileNotFoundError, ImageError: if an image is missing or cannot be read.
            TaskError: if an argument is invalid, or outputs are NaN.
        """
        max_classes, thresholds = self._limits(top_k, threshold)
        return self._answers(self.probabilities(images), max_classes, thresholds)

    def probabilities(self, images):
        """The probability of each class for each image: float32 [B, classes]."""
        return self.outputs_of_images(images)

    def classes_of_inputs(self, inputs, top_k=None, threshold=None):
        """As `__call__`, for images that are preprocessed: float32 [B, H, W, C]."""
        max_classes, thresholds = self._limits(top_k, threshold)
        return self._answers(self.outputs(inputs), max_classes, thresholds)


class TextClassifier(Classifier, EncodedTextTask):
    """Classifies texts with a Keras model, its tokenizer and its class names.

    Args:
        model: `zoo.models.EncoderClassifier`.
        tokenizer: `zoo.text.sentencepiece.SentencePieceTokenizer` or
            `zoo.text.library_tokenizer.LibraryTokenizer`.
        class_names: list of class names, in the order of the logits.
        special_tokens: `zoo.decoding.SpecialTokens`: a text is between start and end.
        problem: see `ImageClassifier`.

    Raises:
        TaskError: if class names, tokenizer and special tokens do not match the model, or `problem`
            is unknown.
    """

    description_file = "text_classifier.json"

    def __init__(
        self, model, tokenizer, class_names, special_tokens=SPECIAL_TOKENS, problem="single_label"
    ):
        self.class_names = _as_list(class_names)
        self.problem = problem
        super().__init__(model, tokenizer, special_tokens)

    def __call__(self, texts, top_k=None, threshold=None, too_long="error"):
        """Classifies texts: a list of (class name, probability) for each.

        Args:
            texts: list of str.
            top_k, threshold: see `ImageClassifier.__call__`.
            too_long: "error"; or "truncate", to classify the beginning of a text that has more
                tokens than the model takes.

        Raises:
            TaskError: if an argument is invalid, a text is too long, or outputs are NaN.
        """
        max_classes, thresholds = self._limits(top_k, threshold)
        return self._answers(self.probabilities(texts, too_long), max_classes, thresholds)

    def probabilities(self, texts, too_long="error"):
        """The probability of each class for each text: float32 [B, classes]."""
        return self._outputs(texts, too_long)
