"""Compares the outputs of an exported model with those of the original model."""

import numpy as np
import tensorflow as tf

from zoo.deploy.errors import ExportError
from zoo.tasks.classifier import TextClassifier

# Float32 sums in a different order: differences of 1e-6 in shallow models, more in deep ones.
_EXACT = 1e-4
# For quantized weights or half precision. It detects broken exports only; measure the loss of
# accuracy on test data.
_QUANTIZED = 0.2


def check_classes(classifier, run, runtime, dtype="float32", dynamic_size=False):
    """Compares the probabilities of a few random images or texts.

    Args:
        classifier: `zoo.tasks.classifier.ImageClassifier` or `TextClassifier`.
        run: the export as a function from "pixels" or "tokens" to a dict of "probabilities".
        runtime: name and version of the runtime of the export.
        dtype: of the weight matrices.
        dynamic_size: whether images of another size are compared, too.

    Returns:
        dict for export.json.

    Raises:
        ExportError: if the outputs differ by more than the tolerance.
    """
    random, model = np.random.default_rng(0), classifier.model
    with tf.device("CPU"):  # on a GPU products may be rounded to TensorFloat-32
        if isinstance(classifier, TextClassifier):
            lengths = random.integers(1, min(12, model.max_length) + 1, 5)
            rows = [random.integers(0, model.vocab_size, (1, n), np.int32) for n in lengths]
            parts = [run(tokens=row) for row in rows]
            expected = [classifier.run(classifier.probabilities_of_inputs, row) for row in rows]
        else:
            images = random.integers(0, 256, (5, *model.input_shape), dtype=np.uint8)
            parts = [run(pixels=part) for part in (images[:1], images[1:])]
            expected = [classifier.probabilities(list(images))]
            if dynamic_size:
                more = [(0, 0), (0, model.patch_size), (0, 2 * model.patch_size), (0, 0)]
                images = np.pad(images, more, "wrap")
                parts.append(run(pixels=images))
                inputs = classifier.preprocessing.normalize(images)
                expected.append(classifier.probabilities_of_inputs(inputs))
    found = np.concatenate([part["probabilities"] for part in parts])
    expected = np.concatenate(expected)
    difference, total = np.abs(found - expected), (found + expected).sum(axis=-1)
    measured = {
        "largest_difference": float(difference.max()),
        # of the probability of all classes, which is one or, for several labels, any number
        "mean_shifted_probability": float((difference.sum(-1) / np.maximum(total, 2)).mean()),
        "same_best": float(np.mean(found.argmax(axis=-1) == expected.argmax(axis=-1))),
    }
    if {dtype, model.compute_dtype} == {"float32"}:
        return report(runtime, measured, _EXACT)
    return report(runtime, measured, _QUANTIZED, "mean_shifted_probability")


def report(runtime, measured, tolerance, compared="largest_difference"):
    """Describes the numbers `measured` for export.json, of which one is compared.

    Raises:
        ExportError: if the number named `compared` exceeds the tolerance.
    """
    if not measured[compared] <= tolerance:  # also catches NaN
        raise ExportError(
            f"{runtime}: the outputs of the export differ from those of the original model: "
            f"{compared} is {measured[compared]:.2g}, the tolerance is {tolerance:g}. The export "
            "was not saved."
        )
    return {"with": runtime, **measured, "compared": compared, "tolerance": tolerance}
