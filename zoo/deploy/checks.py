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
    """Compares the probabilities of a few random images or texts.

    Args:
        classifier: `zoo.tasks.classifier.ImageClassifier` or `TextClassifier`.
        run: the export, as a function of "pixels" or "tokens" that returns a dict of
            "probabilities".
        package: name of the package that runs the export.
        dtype: dtype of the weight matrices.
        dynamic_size: whether to also compare images of another size.

    Returns:
        dict for export.json.

    Raises:
        ExportError: if the outputs differ by more than the tolerance.
    """
    random, model = np.random.default_rng(0), classifier.model
    if isinstance(classifier, TextClassifier):
        name, kind, most = "tokens", "int32", model.vocab_size
        shapes = [(1, length) for length in random.integers(1, min(12, model.max_length) + 1, 5)]
    else:
        name, kind, most = "pixels", "uint8", 256
        height, width, channels = model.input_shape
        shapes = [(count, height, width, channels) for count in (1, 4)]
        if dynamic_size:
            more = model.patch_size
            shapes.append((5, height + more, width + 2 * more, channels))
    inputs = [random.integers(0, most, shape, kind) for shape in shapes]
    found = np.concatenate([run(**{name: array})["probabilities"] for array in inputs])
    if name == "pixels":
        inputs = map(classifier.preprocessing.normalize, inputs)
    with tf.device("CPU"):  # on a GPU products may be rounded to TensorFloat-32
        expected = np.concatenate([*map(classifier.compute_outputs, inputs)])
    difference, total = np.abs(found - expected), (found + expected).sum(axis=-1)
    measured = {
        "largest_difference": float(difference.max()),
        # relative to the sum of the probabilities, which is not one for several labels
        "mean_shifted_probability": float((difference.sum(-1) / np.maximum(total, 2)).mean()),
    }
    if {dtype, model.compute_dtype} == {"float32"}:
        return report(package, measured, _EXACT)
    return report(package, measured, _QUANTIZED, "mean_shifted_probability")


def report(package, measured, tolerance, compared="largest_difference"):
    """Returns `measured`, a dict of numbers, with the runtime and the tolerance, for export.json.

    Raises:
        ExportError: if the number named `compared` exceeds the tolerance.
    """
    runtime = f"{package} {version(package)}"
    if not measured[compared] <= tolerance:  # also catches NaN
        raise ExportError(
            f"{runtime}: the outputs of the export differ from those of the original model: "
            f"{compared} is {measured[compared]:.2g}, but the tolerance is {tolerance:g}. The "
            "export was not saved."
        )
    return {"with": runtime, **measured, "compared": compared, "tolerance": tolerance}
