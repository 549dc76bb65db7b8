"""Compares the outputs of an exported model with those of the original model."""

from importlib.metadata import version

import numpy as np
import tensorflow as tf

from zoo.errors import ExportError
from zoo.tasks.classifier import TextClassifier

# For float32, summed in another order: differences are 1e-6 in shallow models, more in deep ones.
_EXACT = 1e-4
# For quantized weights or half precision. It only detects broken exports: measure the accuracy on
# test data.
_QUANTIZED = 0.2


def check_classes(classifier, run, package, dtype="float32", dynamic_size=False):
    """Compares the probabilities of a few random images or texts; see `report`.

    Args:
        classifier: `zoo.tasks.classifier.ImageClassifier` or `TextClassifier`.
        run: the export, a function that is called with `pixels=` or `tokens=` and returns a dict
            with "probabilities".
        package: see `report`.
        dtype: dtype of the weight matrices.
        dynamic_size: whether to also compare images of another size.
    """
    random = np.random.default_rng(0)
    model = classifier.model
    if isinstance(classifier, TextClassifier):
        lengths = random.integers(1, min(12, model.max_length) + 1, 5)
        inputs = [random.integers(0, model.vocab_size, (1, n), "int32") for n in lengths]
        found = [run(tokens=tokens)["probabilities"] for tokens in inputs]
    else:
        height, width, channels = classifier.image_shape
        shapes = [(1, height, width, channels), (4, height, width, channels)]
        if dynamic_size:
            more = model.patch_size
            shapes.append((5, height + more, width + 2 * more, channels))
        images = [random.integers(0, 256, shape, "uint8") for shape in shapes]
        inputs = [classifier.preprocessing.normalize(pixels) for pixels in images]
        found = [run(pixels=pixels)["probabilities"] for pixels in images]
    with tf.device("CPU"):  # on a GPU products may be rounded to TensorFloat-32
        expected = [classifier.compute_outputs(each) for each in inputs]
    found = np.concatenate(found)  # [all images or texts, classes]
    expected = np.concatenate(expected)
    difference = np.abs(found - expected)
    total = (found + expected).sum(axis=-1)
    measured = {
        "largest_difference": float(difference.max()),
        # relative to the sum of the probabilities, which is not one for several labels
        "mean_shifted_probability": float((difference.sum(-1) / np.maximum(total, 2)).mean()),
    }
    if dtype == "float32" and model.compute_dtype == "float32":
        return report(package, measured, _EXACT)
    return report(package, measured, _QUANTIZED, compared="mean_shifted_probability")


def report(package, measured, tolerance, compared="largest_difference"):
    """Describes measured differences for export.json.

    Args:
        package: name of the package that runs the export.
        measured: {name: number}.
        tolerance: maximum of the number `compared`.
        compared: a name in `measured`.

    Raises:
        ExportError: if the tolerance is exceeded.
    """
    runtime = f"{package} {version(package)}"
    if not measured[compared] <= tolerance:  # also catches NaN
        raise ExportError(
            f"{runtime}: the outputs of the export differ from those of the original model: "
            f"{compared} is {measured[compared]:.2g}, but the tolerance is {tolerance:g}. The "
            "export was not saved."
        )
    return {"with": runtime, **measured, "compared": compared, "tolerance": tolerance}
