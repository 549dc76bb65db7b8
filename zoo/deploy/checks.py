"""Compares the outputs of an exported model with those of the original model.

Axes: B images or sentences, S source tokens, T target tokens, K hypotheses, V vocabulary.
"""

import numpy as np
import tensorflow as tf
from keras import ops

from zoo.deploy.errors import ExportError
from zoo.deploy.programs.search import Steps
from zoo.tasks.classifier import ImageClassifier

# Float32 sums in a different order: differences of 1e-6 in shallow models, more in deep ones.
_EXACT, _EXACT_LOGARITHM = 1e-4, 1e-3
# For quantized weights or half precision. These detect broken exports only; measure the loss of
# accuracy on test data.
_QUANTIZED = {"mean_shifted_probability": 0.2, "mean_difference": 0.5}


def check(original, runners, shapes, runtime, dtype="float32"):
    """Compares the outputs of a few random inputs.

    Args:
        original: `zoo.tasks.classifier.ImageClassifier` or `zoo.tasks.translator.Translator`.
        runners: functions of the export from a dict of arrays to a dict of arrays, named as the
            graphs of `zoo.deploy.plain_graphs`.
        shapes: list of (B, K) to compare; of a translator only.
        runtime: name and version of the runtime of the export.
        dtype: of the weight matrices.

    Returns:
        dict for export.json.

    Raises:
        ExportError: if the outputs differ by more than the tolerance.
    """
    with tf.device("CPU"):  # on a GPU products may be rounded to TensorFloat-32
        if isinstance(original, ImageClassifier):
            found, expected = shares = _probabilities(original, *runners.values())
            tolerance = _EXACT
        else:
            found, expected = _log_probs(original.model, **runners, shapes=shapes)
            shares, tolerance = np.exp([found, expected]), _EXACT_LOGARITHM
    measured = {
        "largest_difference": float(np.abs(found - expected).max()),
        "mean_shifted_probability": float(0.5 * np.abs(np.subtract(*shares)).sum(axis=-1).mean()),
        "same_best": float(np.mean(found.argmax(axis=-1) == expected.argmax(axis=-1))),
    }
    low = "mean_shifted_probability"
    return _report(original, measured, runtime, dtype, tolerance, low)


def check_tokens(original, log_probs, runtime, dtype="float32"):
    """Compares the log-probabilities of the tokens of a few random translations.

    Args:
        original: `zoo.tasks.translator.Translator`.
        log_probs: function of lists of sources and targets, each a list of ids with the end token,
            to a list of arrays [T].
        runtime, dtype: see `check`.

    Returns, raises: see `check`.
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


def _probabilities(classifier, run):
    """The probabilities of random images, in batches of different sizes."""
    shape = (5, *classifier.model.input_shape)
    images = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    parts = [run({"pixels": part})["probabilities"] for part in (images[:1], images[1:])]
    return np.concatenate(parts), classifier.probabilities(list(images))


def _log_probs(model, encode, decode, shapes):
    """The log-probabilities of a few decoding steps, float32 [any, V]."""
    found, expected, length = [], [], min(5, model.max_length)
    for batch, beams in shapes:
        random = np.random.default_rng(len(found))
        width = min(random.integers(4, 12), model.max_length)
        source = random.integers(3, model.source_vocab_size, (batch, width)).astype(np.int32)
        source[1:, -(width // 2) :] = model.pad_id
        tokens = random.integers(3, model.target_vocab_size, (length, batch, beams), np.int32)
        parents = random.integers(0, beams, (length, batch, beams))
        steps, cache = Steps(encode, decode, source, beams), model.start(source, length, beams)
        for step_tokens, step_parents in zip(tokens, parents):
            logits, cache = model.step(tf.constant(step_tokens), cache)
            cache = cache.follow(tf.constant(step_parents))
            log_probs = ops.convert_to_numpy(ops.log_softmax(ops.cast(logits, "float32")))
            expected.append(log_probs.reshape(batch * beams, -1))
            found.append(steps.log_probs(step_tokens).reshape(batch * beams, -1))
            steps.follow(step_parents)
    return np.concatenate(found), np.concatenate(expected)


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
