"""Compares the outputs of an exported model with those of the original model.

Axes: B images or sentences, S source tokens, T target tokens, K hypotheses, V vocabulary.
"""

import numpy as np
import tensorflow as tf
from keras import ops

from zoo.deploy.errors import ExportError
from zoo.deploy.onnx_driver.search import Steps

# Float32 sums in a different order: differences of 1e-6 in shallow models, more in deep ones.
_EXACT = {"probability": 1e-4, "log_prob": 1e-3}
# For quantized weights or half precision. This detects broken exports only; measure the loss of
# accuracy on test data.
_QUANTIZED = 0.2


def check(original, runners, shapes, runtime, int8):
    """`check_classifier` or `check_translator`.

    Args:
        original: `zoo.classifier.ImageClassifier` or `zoo.translator.Translator`.
        runners: functions of the export from a dict of arrays to a dict of arrays, named as the
            graphs of `zoo.deploy.plain_graphs`.
        shapes, runtime, int8: of these two.
    """
    if "probabilities" in runners:
        run = runners["probabilities"]
        answer = lambda pixels: run({"pixels": pixels})["probabilities"]  # noqa: E731
        return check_classifier(original, answer, runtime, int8)
    return check_translator(original, **runners, shapes=shapes, runtime=runtime, int8=int8)


def check_classifier(classifier, answer, runtime, int8=False):
    """Compares the probabilities of random images, in batches of different sizes.

    Args:
        classifier: `zoo.classifier.ImageClassifier`.
        answer: function of the export: uint8 [B, H, W, C] -> float32 [B, classes].
        runtime: name and version of the runtime of the export.
        int8: whether the weights are quantized.

    Returns:
        dict for export.json.

    Raises:
        ExportError: if the outputs differ by more than the tolerance.
    """
    random = np.random.default_rng(0)
    shape = (5, *classifier.model.input_shape)
    images = random.integers(0, 256, shape, dtype=np.uint8)
    with tf.device("CPU"):  # on a GPU products may be rounded to TensorFloat-32
        expected = classifier.probabilities(list(images))
    found = np.concatenate([answer(images[:1]), answer(images[1:])])
    exact = not int8 and classifier.model.compute_dtype == "float32"
    return _of_rows(found, expected, "probability", exact, runtime)


def check_translator(translator, encode, decode, shapes, runtime, int8=False):
    """Compares the log-probabilities of a few decoding steps.

    Args:
        translator: `zoo.translator.Translator`.
        encode, decode: functions of the export, like the methods of
            `zoo.deploy.plain_graphs.StepGraphs` but from a dict of arrays to a dict of arrays.
        shapes: list of (B, K) to compare.
        runtime, int8: see `check_classifier`.

    Returns, raises: see `check_classifier`.
    """
    model, found, expected = translator.model, [], []
    length = min(5, model.max_length)
    for batch, beams in shapes:
        random = np.random.default_rng(len(found))
        width = min(random.integers(4, 12), model.max_length)
        source = random.integers(3, model.source_vocab_size, (batch, width)).astype(np.int32)
        source[1:, -(width // 2) :] = model.pad_id
        tokens = random.integers(3, model.target_vocab_size, (length, batch, beams), np.int32)
        parents = random.integers(0, beams, (length, batch, beams))
        steps = Steps(encode, decode, source, beams)
        with tf.device("CPU"):
            cache = model.start(source, length, beams)
            for step_tokens, step_parents in zip(tokens, parents):
                logits, cache = model.step(tf.constant(step_tokens), cache)
                cache = cache.follow(tf.constant(step_parents))
                expected.append(ops.log_softmax(ops.cast(logits, "float32")))
                found.append(steps.log_probs(step_tokens))
                steps.follow(step_parents)
    exact = not int8 and model.compute_dtype == "float32"
    return _of_rows(*map(_rows, (found, expected)), "log_prob", exact, runtime)


def _rows(answers):
    """Log-probabilities [B, K, V] of all steps, as one array [any, V]."""
    arrays = map(ops.convert_to_numpy, answers)
    return np.concatenate([array.reshape(-1, array.shape[-1]) for array in arrays])


def _of_rows(found, expected, what, exact, runtime):
    """Compares rows of probabilities, or of log-probabilities."""
    probabilities = (np.exp(found), np.exp(expected)) if what == "log_prob" else (found, expected)
    measured = {
        "largest_difference": float(np.abs(found - expected).max()),
        "mean_shifted_probability": float(
            0.5 * np.abs(np.subtract(*probabilities)).sum(axis=-1).mean()
        ),
        "same_best": float(np.mean(found.argmax(axis=-1) == expected.argmax(axis=-1))),
    }
    compared = "largest_difference" if exact else "mean_shifted_probability"
    tolerance = _EXACT[what] if exact else _QUANTIZED
    return report(runtime, measured, tolerance, compared)


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
