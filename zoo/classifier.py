"""A trained image classifier as people use it: images in, named classes out."""

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
    """A Keras model together with its preprocessing and the names of its classes.

    Args:
        model: takes images as `preprocessing` makes them, returns logits [B, classes].
        preprocessing: `zoo.data.preprocessing.ImagePreprocessing`.
        class_names: the name of each class, in the order of the logits.

    Raises:
        ValueError: if there are not as many names as logits.
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
        self.run_folder = None  # where it was loaded from

    def __call__(self, images, top_k=1):
        """Classifies images.

        Args:
            images: list of paths, PIL images and arrays [H, W] or [H, W, C] of values in 0..255.
            top_k: number of classes to return for each image.

        Returns:
            For each image a list of (class name, probability), the likeliest first.

        Raises:
            FileNotFoundError, ImageError: if an image is missing or cannot be read; it is named.
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
        """Images as `model` takes them: float32 [B, H, W, C]."""
        if isinstance(images, (str, os.PathLike)) or hasattr(images, "convert"):
            raise ValueError(f"Images are given as a list: [{images!r}].")
        pixels = [self.preprocessing.read(image) for image in images]
        if not pixels:
            return np.zeros((0, *self.model.input_shape), np.float32)
        return self.preprocessing.normalise(np.stack(pixels)).numpy()

    def probabilities(self, images):
        """The probability of each class for each image: float32 [B, classes]."""
        inputs = self.preprocess(images)
        if not len(inputs):
            return np.zeros((0, len(self.class_names)), np.float32)
        parts = [self._probabilities(inputs[i : i + 64]) for i in range(0, len(inputs), 64)]
        return np.concatenate(parts)

    @functools.cached_property
    def _probabilities(self):
        # `Model.predict` takes tens of milliseconds even for one image.
        def probabilities(inputs):
            logits = self.model(inputs, training=False)
            return keras.ops.softmax(keras.ops.cast(logits, "float32"))

        inputs = tf.TensorSpec((None, *self.model.input_shape), tf.float32)
        return tf.function(probabilities, input_signature=[inputs], autograph=False)

    def description(self):
        """What it is beside the model, as JSON can hold it."""
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
        """Reads what `save` wrote."""
        import zoo.models  # noqa: F401  Keras finds our classes once they are imported

        folder = pathlib.Path(folder)
        description = json.loads((folder / DESCRIPTION_FILE).read_text())
        classifier = cls(
            keras.saving.load_model(folder / MODEL_FILE, compile=False),
            ImagePreprocessing.from_dict(description["preprocessing"]),
            description["class_names"],
        )
        classifier.run_folder = folder
        return classifier
