"""Classifiers as functions of numeric tensors, for formats without strings and image decoding.

Axes: B images or texts, H image height, W image width, C channels, T tokens.
"""

from collections.abc import Callable
from typing import NamedTuple

import keras
import tensorflow as tf

from zoo.models.copying import copy_model
from zoo.tasks.classifier import TextClassifier
from zoo.text.saved_tokenizers import save_tokenizer


class Graph(NamedTuple):
    """A function of one tensor that returns {"probabilities": float32 [B, classes]}."""

    model: keras.Model  # has the weights of the function
    function: Callable
    spec: tf.TensorSpec  # of its argument
    tensors: dict  # {"inputs": {name: `tensor`}, "outputs": {name: `tensor`}} for export.json


def classifier_graph(classifier, preprocessed=False, batch="B", dynamic_size=False):
    """Returns the `Graph` of a `zoo.tasks.classifier.ImageClassifier` or `TextClassifier`.

    Its argument is "pixels", uint8 [B, H, W, C], or "tokens", int32 [B, T].

    Args:
        classifier: the classifier.
        preprocessed: whether the argument is "images", float32 [B, H, W, C], instead of pixels.
        batch: B, if it is static.
        dynamic_size: whether H and W are dynamic.
    """
    model = plain_copy(classifier.model)
    if isinstance(classifier, TextClassifier):
        name = "tokens"
        dtype = "int32"
        shape = [batch, "T"]
    else:
        name = "images" if preprocessed else "pixels"
        dtype = "float32" if preprocessed else "uint8"
        height, width, channels = classifier.image_shape
        if dynamic_size:
            height, width = "H", "W"
        shape = [batch, height, width, channels]

    def probabilities(values):
        if name == "pixels":
            values = classifier.preprocessing.normalize(values)
        logits = model(values, training=False)
        return {"probabilities": classifier.probabilities_of_logits(logits)}

    outputs = {"probabilities": tensor("float32", batch, len(classifier.class_names))}
    sizes = [None if isinstance(size, str) else size for size in shape]
    return Graph(
        model=model,
        function=probabilities,
        spec=tf.TensorSpec(sizes, dtype, name),
        tensors={"inputs": {name: tensor(dtype, *shape)}, "outputs": outputs},
    )


def plain_copy(model):
    """Copies a model in float32, with LoRA merged, and softmax in place of blockwise attention.

    The results are the same, but converters do not support the loops of blockwise attention.
    """
    if model.get_config().get("attention") == "blockwise":
        return copy_model(model, dtype="float32", attention="softmax")
    return copy_model(model, dtype="float32")


def tensor(dtype, *shape):
    """Describes a tensor for export.json; a dynamic dimension is given by its letter."""
    return {"dtype": dtype, "shape": [*shape]}


def write_data(classifier, folder):
    """Writes the class names, one per line, and the tokenizer of texts."""
    lines = [" ".join(name.split()) for name in classifier.class_names]
    (folder / "labels.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    if isinstance(classifier, TextClassifier):
        save_tokenizer(classifier.tokenizer, folder, "text")
