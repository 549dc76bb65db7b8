"""Compares the outputs of an exported model with those of the original model.

Axes: T target tokens.
"""

import numpy as np
import tensorflow as tf
from keras import ops

from zoo.deploy.errors import ExportError
from zoo.tasks.classifier import TextClassifier

# Float32 sums in a different order: differences of 1e-6 in shallow models, more in deep ones.
_EXACT, _EXACT_LOGARITHM = 1e-4, 1e-3
# For quantized weights or half precision. These detect broken exports only; measure the loss of
# accuracy on test data.
_QUANTIZED = {"mean_shifted_probability": 0.2, "mean_difference": 0.5}


def check_classes(classifier, run, runtime, dtype="float32"):
    """Compares the probabilities of a few random images or texts.

    Args:
        classifier: `zoo.tasks.classifier.ImageClassifier` or `TextClassifier`.
        run: the export as a function from "pixels" or "tokens" to a dict of "probabilities".
        runtime: name and version of the runtime of the export.
        dtype: of the weight matrices.

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
            expected = [classifier.run(classifier.probabilities_of_tokens, row) for row in rows]
        else:
            images = random.integers(0, 256, (5, *model.input_shape), dtype=np.uint8)
            parts = [run(pixels=part) for part in (images[:1], images[1:])]
            expected = [classifier.probabilities(list(images))]
    found = np.concatenate([part["probabilities"] for part in parts])
    expected = np.concatenate(expected)
    difference = np.abs(found - expected)
    measured = {
        "largest_difference": float(difference.max()),
        "mean_shifted_probability": float(0.5 * difference.sum(axis=-1).mean()),
        "same_best": float(np.mean(found.argmax(axis=-1) == expected.argmax(axis=-1))),
    }
    return _report(classifier, measured, runtime, dtype, _EXACT, "mean_shifted_probability")


def check_tokens(original, log_probs, runtime, dtype="float32"):
    """Compares the log-probabilities of the tokens of a few random translations.

    Args:
        original: `zoo.tasks.translator.Translator`.
        log_probs: function of lists of sources and targets, each a list of ids with the end token,
            to a list of arrays [T].
        runtime, dtype: see `check_classes`.

    Returns, raises: see `check_classes`.
    """
    model, special, random = original.model, original.special_tokens, np.random.default_rng(0)
    pairs, expected = [], []
    for _ in range(8):
        lengths = random.integers(1, min(12, model.max_length), 2)
        sizes = (model.source_vocab_size, model.target_vocab_size)
        ids = [random.integers(3, size, n) for size, n in zip(sizes, lengths)]
        pairs.append([[*side.tolist(), special.end] for side in ids])
        source, target = (np.array([side], np.int32) for side in pairs[-1])
        with tf.device("CPU"):
            before = np.insert(target[:, :-1], 0, special.start, axis=1)
            logits = ops.cast(model({"source": source, "target": before}), "float32")
            found = ops.take_along_axis(ops.log_softmax(logits), target[..., None], axis=-1)
        expected.append(ops.convert_to_numpy(found).ravel())
    found, expected = np.concatenate(log_probs(*zip(*pairs))), np.concatenate(expected)
    measured = {
        "largest_difference": float(np.abs(found - expected).max()),
        "mean_difference": float(np.abs(found - expected).mean()),
    }
    # Random tokens have so small probabilities that only their logarithms differ.
    return _report(original, measured, runtime, dtype, _EXACT_LOGARITHM, "mean_difference")


def _report(original, measured, runtime, dtype, tolerance, low):
    """The report, in low precision of the number named `low`."""
    if {dtype, original.model.compute_dtype} != {"float32"}:
        return report(runtime, measured, _QUANTIZED[low], low)
    return report(runtime, measured, tolerance)


def report(runtime, measured, tolerance, compared="largest_difference"):
    """Describes differences for export.json.

    Args:
        runtime: name and version of the runtime of the export.
        measured: {name: number}.
        tolerance: of the number named `compared`.

    Raises:
        ExportError: if the number exceeds the tolerance.
    """
    if not measured[compared] <= tolerance:  # also catches NaN
        raise ExportError(
            f"{runtime}: the outputs of the export differ from those of the original model: "
            f"{compared} is {measured[compared]:.2g}, the tolerance is {tolerance:g}. The export "
            "was not saved."
        )
    return {"with": runtime, **measured, "compared": compared, "tolerance": tolerance}
