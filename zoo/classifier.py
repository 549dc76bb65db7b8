"""A trained image classifier with its preprocessing and class names."""

import functools
import json
import os
import pathlib

import keras
import numpy as np
import tensorflow as tf

from zoo.data.preprocessing import ImagePreprocessing

MODEL_FILE = "model.keras"
DESCRIPTION_FILE = "classifier.json"


class ImageClassifier:
    """Classifies images with a Keras model, its preprocessing and its class names.

    Args:
        model: `keras.Model` from preprocessed images to logits [B, classes].
        preprocessing: `zoo.data.preprocessing.ImagePreprocessing`.
        class_names: list of class names, in the order of the logits.

    Raises:
        ValueError: if the number of class names is not the number of logits.
    """

    def __init__(self, model, preprocessing, class_names):
        if model.num_classes != len(class_names):
            raise ValueError(
                f"The model has {model.num_classes} classes. "
                f"Received {len(class_names)} class names."
            )
        self.model = model
        self.preprocessing = preprocessing
        self.class_names = list(class_names)
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
        if top_k < 1:
            raise ValueError(f"top_k must be at least 1. Received: top_k={top_k}.")
        probabilities = self.probabilities(images)
        best = np.argsort(-probabilities, axis=1, kind="stable")[:, :top_k]
        return [
            [(self.class_names[k], float(row[k])) for k in order]
            for row, order in zip(probabilities, best)
        ]

    def preprocess(self, images):
        """Preprocesses images to the inputs of `model`: float32 [B, H, W, C]."""
        if isinstance(images, (str, os.PathLike)) or hasattr(images, "convert"):
            raise ValueError(f"images must be a list. Pass [{images!r}] for one image.")
        pixels = [self.preprocessing.read(image) for image in images]
        if not pixels:
            return np.zeros((0, *self.model.input_shape), np.float32)
        return self.preprocessing.normalise(np.stack(pixels)).numpy()

    def probabilities(self, images):
        """Returns the probability of each class for each image: float32 [B, classes]."""
        inputs = self.preprocess(images)
        if not len(inputs):
            return np.zeros((0, len(self.class_names)), np.float32)
        parts = [self._probabilities(inputs[i : i + 64]) for i in range(0, len(inputs), 64)]
        return np.concatenate(parts)

    @functools.cached_property
    def _probabilities(self):
        # `Model.predict` has an overhead of tens of milliseconds per call.
        def probabilities(inputs):
            logits = self.model(inputs, training=False)
            return keras.ops.softmax(keras.ops.cast(logits, "float32"))

        inputs = tf.TensorSpec((None, *self.model.input_shape), tf.float32)
        return tf.function(probabilities, input_signature=[inputs], autograph=False)

    def description(self):
        """Returns preprocessing and class names as a dict that can be stored as JSON."""
        return {"preprocessing": self.preprocessing.to_dict(), "class_names": self.class_names}

    def save(self, folder):
        """Writes the model, its preprocessing and its class names into `folder`."""
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.model.save(folder / MODEL_FILE, include_optimizer=False)
        text = json.dumps(self.description(), indent=2)
        (folder / DESCRIPTION_FILE).write_text(text + "\n")

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
