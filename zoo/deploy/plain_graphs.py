"""Classifiers as functions of numeric tensors, for formats without strings and image decoding.

Axes: B images, H image height, W image width, C channels.
"""

from collections.abc import Callable
from typing import NamedTuple

import keras
import tensorflow as tf
from keras import ops

from zoo.models.base import copy_model


class Graph(NamedTuple):
    """A function of one tensor that returns {"probabilities": float32 [B, classes]}.

    Fields:
        model: Keras model with the weights of the function.
        inputs, outputs: {name: `tensor`}, as in export.json.
    """

    model: keras.Model
    function: Callable
    inputs: dict
    outputs: dict

    def specs(self):
        """The `tf.TensorSpec` of each input."""
        return [
            tf.TensorSpec([None if n == "B" else n for n in of["shape"]], of["dtype"], name)
            for name, of in self.inputs.items()
        ]

    def description(self):
        """The tensors for export.json."""
        return {"inputs": self.inputs, "outputs": self.outputs}


def classifier_graph(classifier, preprocessed=False):
    """The `Graph` of a `zoo.tasks.classifier.ImageClassifier`.

    Args:
        preprocessed: whether it takes what the model takes, "images" float32 [B, H, W, C], in place
            of "pixels" uint8 of that shape.
    """
    model, normalize = plain_copy(classifier.model), classifier.preprocessing.normalize
    name, dtype = ("images", "float32") if preprocessed else ("pixels", "uint8")

    def probabilities(images):
        inputs = images if preprocessed else normalize(images)
        return {"probabilities": ops.softmax(model(inputs, training=False))}

    found = {"probabilities": tensor("float32", "B", len(classifier.class_names))}
    return Graph(model, probabilities, {name: tensor(dtype, "B", *model.input_shape)}, found)


def plain_copy(model):
    """A copy of a model in float32, without LoRA and the loops of blockwise attention.

    Converters do not support these loops; softmax attention computes the same.
    """
    is_blockwise = model.get_config().get("attention") == "blockwise"
    return copy_model(model, dtype="float32", **({"attention": "softmax"} if is_blockwise else {}))


def tensor(dtype, *shape):
    """A tensor as described in export.json; a dynamic dimension is given by its letter."""
    return {"dtype": dtype, "shape": [*shape]}


def write_labels(classifier, folder):
    """Writes the class names; returns {name of the file: description}."""
    lines = [" ".join(name.split()) for name in classifier.class_names]
    (folder / "labels.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return {"labels.txt": "the class names, one per line"}
