"""Trained classifiers of images and of texts, with what prepares their inputs and class names.

Axes: B images or texts, T tokens.
"""

import json
import os
import pathlib

import keras
import numpy as np
import tensorflow as tf

from zoo.data.preprocessing import ImagePreprocessing
from zoo.errors import TextError
from zoo.tasks.search import Programs, without_nan
from zoo.text.loading import load_tokenizer
from zoo.text.special_tokens import SPECIAL_TOKENS, encode_texts, truncated

MODEL_FILE = "model.keras"
DESCRIPTION_FILE, TEXT_DESCRIPTION_FILE = "classifier.json", "text_classifier.json"
TOKENIZER_FILE = "tokenizer.json"


class ImageClassifier:
    """Classifies images with a Keras model, its preprocessing and its class names.

    Args:
        model: `zoo.models.ViT`, `zoo.models.ResNet`, or another `keras.Model` from preprocessed
            images to logits [B, `num_classes`] with that attribute and `input_shape`, (H, W, C).
            Another one may be assigned later.
        preprocessing: `zoo.data.preprocessing.ImagePreprocessing`.
        class_names: list of class names, in the order of the logits.

    Attributes:
        engine: function from preprocessed images to probabilities, in place of the model; see
            `zoo.load`. None by default.

    Raises:
        ValueError: if the number of class names is not the number of logits.
    """

    def __init__(self, model, preprocessing, class_names):
        self.preprocessing = preprocessing
        self.class_names = list(class_names)
        self.model = model
        self.run_folder = None  # the directory it was loaded from

    def __call__(self, images, top_k=1):
        """Classifies images.

        Args:
            images: list of paths, PIL images and arrays [H, W] or [H, W, C] of values in 0..255.
            top_k: number of classes to return for each image.

        Returns:
            For each image a list of (class name, probability), the most likely first.

        Raises:
            FileNotFoundError, ImageError: if an image is missing or cannot be read.
            ValueError: if `top_k` is not positive.
        """
        return _most_likely(self.probabilities, images, self.class_names, top_k)

    def preprocess(self, images):
        """Preprocesses images to the inputs of `model`: float32 [B, H, W, C]."""
        if isinstance(images, (str, os.PathLike)) or hasattr(images, "convert"):
            raise ValueError(f"images must be a list. Pass [{images!r}] for one image.")
        if getattr(images, "ndim", None) == 3 and images.shape[-1] in (1, 3, 4):
            raise ValueError(
                "images must be a list, or an array [B, H, W, C]. Received: an array "
                f"{tuple(images.shape)}. Pass [image] for one image."
            )
        pixels = [self.preprocessing.read(image) for image in images]
        if not pixels:
            return np.zeros((0, *self.model.input_shape), np.float32)
        return self.preprocessing.normalize(np.stack(pixels)).numpy()

    def probabilities(self, images):
        """Returns the probability of each class for each image: float32 [B, classes].

        Raises:
            TextError: if the model computes NaN.
        """
        inputs = self.preprocess(images)
        if not len(inputs):
            return np.zeros((0, len(self.class_names)), np.float32)
        compute = self.engine or self._probabilities
        parts = [compute(inputs[i : i + 64]) for i in range(0, len(inputs), 64)]
        return without_nan(np.concatenate(parts))

    @property
    def model(self):
        return self._model

    @model.setter
    def model(self, model):
        _check_classes(model, self.class_names)

        # `Model.predict` has an overhead of tens of milliseconds per call.
        def probabilities(inputs):
            logits = model(inputs, training=False)
            return keras.ops.softmax(keras.ops.cast(logits, "float32"))

        inputs = tf.TensorSpec((None, *model.input_shape), tf.float32)
        self._model, self.engine = model, None
        self._probabilities = tf.function(probabilities, input_signature=[inputs], autograph=False)

    def description(self):
        """Returns preprocessing and class names as a dict that can be stored as JSON."""
        return {"preprocessing": self.preprocessing.to_dict(), "class_names": self.class_names}

    def save(self, folder):
        """Writes the model, its preprocessing and its class names into `folder`."""
        _save(self, folder, DESCRIPTION_FILE)

    @classmethod
    def load(cls, folder):
        """Loads a classifier that `save` wrote."""
        folder = pathlib.Path(folder)
        description = json.loads((folder / DESCRIPTION_FILE).read_text())
        classifier = cls(
            keras.saving.load_model(folder / MODEL_FILE, compile=False),
            ImagePreprocessing.from_dict(description["preprocessing"]),
            description["class_names"],
        )
        classifier.run_folder = folder
        return classifier


class TextClassifier:
    """Classifies texts with a Keras model, its tokenizer and its class names.

    Args:
        model: `zoo.models.EncoderClassifier`. Another one may be assigned later.
        tokenizer: `zoo.text.tokenizer.Tokenizer` or `zoo.text.published.BertWordPieceTokenizer`.
        class_names: list of class names, in the order of the logits.
        special_tokens: `zoo.decoding.SpecialTokens`: a text is between start and end.

    Raises:
        ValueError: if the number of class names, the vocabulary or the padding token is not that of
            the model.
    """

    def __init__(self, model, tokenizer, class_names, special_tokens=SPECIAL_TOKENS):
        self.tokenizer = tokenizer
        self.class_names = list(class_names)
        self.special_tokens = special_tokens
        self.model = model
        self.run_folder = None  # the directory it was loaded from

    @property
    def model(self):
        return self._programs.model

    @model.setter
    def model(self, model):
        _check_classes(model, self.class_names)
        pad = self.special_tokens.pad
        if (model.vocab_size, model.pad_id) != (self.tokenizer.vocab_size, pad):
            raise ValueError(
                f"The model has {model.vocab_size} tokens and pad_id={model.pad_id}. Received a "
                f"tokenizer with {self.tokenizer.vocab_size} tokens and the padding token {pad}."
            )
        self._programs = Programs(model, self.special_tokens, model.vocab_size)

    def __call__(self, texts, top_k=1, too_long="error"):
        """Classifies texts.

        Args:
            texts: list of str.
            top_k: number of classes to return for each text.
            too_long: "error"; or "truncate", which classifies the beginning of a text that has more
                tokens than the model takes.

        Returns:
            For each text a list of (class name, probability), the most likely first. It does not
            depend on the other texts.

        Raises:
            TextError: if a text is too long.
            ValueError: if `top_k` is not positive or `too_long` is unknown.
        """

        def probabilities(texts):
            return self.probabilities(texts, too_long)

        return _most_likely(probabilities, texts, self.class_names, top_k)

    def probabilities(self, texts, too_long="error"):
        """Returns the probability of each class for each text: float32 [B, classes]."""
        rows = self.encode(texts, too_long)
        if not rows:
            return np.zeros((0, len(self.class_names)), np.float32)
        found = self._programs.each([[row] for row in rows], self._run)
        return np.stack([probabilities for [probabilities] in found])

    def encode(self, texts, too_long="error"):
        """Returns the tokens of each text: the start token, those of the text, the end token.

        Raises: see `__call__`.
        """
        if isinstance(texts, str):
            raise ValueError(f"texts must be a list. Pass [{texts!r:.80}] for one text.")
        if too_long not in ("error", "truncate"):
            raise ValueError(
                f'too_long must be "error" or "truncate". Received: too_long={too_long!r}.'
            )
        limit = self.model.max_length
        rows = encode_texts(self.tokenizer, texts, self.special_tokens)
        for index, row in enumerate(rows):
            if len(row) > limit and too_long == "error":
                raise TextError(
                    f"Text {index} is too long: {len(row)} tokens, and the model takes {limit}. "
                    'Shorten it, or classify its beginning with too_long="truncate". '
                    f"It begins: {texts[index][:60]!r}."
                )
        return [truncated(row, limit) for row in rows]

    def probabilities_of_tokens(self, tokens):
        """The probability of each class as a graph: int32 [B, T] to float32 [B, classes]."""
        logits = self.model(tokens, training=False)
        return keras.ops.softmax(keras.ops.cast(logits, "float32"))

    def description(self):
        """Returns tokenizer and class names as a dict that can be stored as JSON."""
        return {
            "tokenizer": {"kind": self.tokenizer.kind, "vocab_size": self.tokenizer.vocab_size},
            "special_tokens": self.special_tokens._asdict(),
            "class_names": self.class_names,
        }

    def save(self, folder):
        """Writes the model, its tokenizer and its class names into `folder`."""
        _save(self, folder, TEXT_DESCRIPTION_FILE)
        self.tokenizer.save(pathlib.Path(folder) / TOKENIZER_FILE)

    @classmethod
    def load(cls, folder):
        """Loads a classifier that `save` wrote."""
        folder = pathlib.Path(folder)
        description = json.loads((folder / TEXT_DESCRIPTION_FILE).read_text())
        classifier = cls(
            keras.saving.load_model(folder / MODEL_FILE, compile=False),
            load_tokenizer(folder / TOKENIZER_FILE),
            description["class_names"],
            SPECIAL_TOKENS._replace(**description.get("special_tokens", {})),
        )
        classifier.run_folder = folder
        return classifier

    def _run(self, indices, tokens):
        return [self._programs.run(self.probabilities_of_tokens, tokens)]


def _check_classes(model, class_names):
    if model.num_classes != len(class_names):
        raise ValueError(
            f"The model has {model.num_classes} classes. Received {len(class_names)} class names."
        )


def _most_likely(probabilities, items, class_names, top_k):
    """For each item a list of (class name, probability), the most likely first."""
    if top_k < 1:
        raise ValueError(f"top_k must be at least 1. Received: top_k={top_k}.")
    found = probabilities(items)
    best = np.argsort(-found, axis=1, kind="stable")[:, :top_k]
    return [[(class_names[k], float(row[k])) for k in order] for row, order in zip(found, best)]


def _save(classifier, folder, description_file):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    classifier.model.save(folder / MODEL_FILE, include_optimizer=False)
    text = json.dumps(classifier.description(), indent=2)
    (folder / description_file).write_text(text + "\n")
