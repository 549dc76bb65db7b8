"""Compares the outputs of an exported model with those of the original model.

Axes: B images or sentences, S source tokens, T target tokens, K hypotheses, V vocabulary.
"""

import numpy as np
import tensorflow as tf
from keras import ops

from zoo.deploy.errors import ExportError

# Float32 sums in a different order: differences of 1e-6 in shallow models, more in deep ones.
_EXACT = {"probability": 1e-4, "log_prob": 1e-3}
# For quantized weights or half precision. This detects broken exports only; measure the loss of
# accuracy on test data.
_QUANTIZED = 0.2


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
    return _report(found, expected, "probability", exact, runtime)


def check_translator(translator, encode, decode, shapes, runtime, int8=False):
    """Compares the log-probabilities of a few decoding steps.

    Args:
        translator: `zoo.translator.Translator`.
        encode, decode: functions of the export, like the methods of
            `zoo.deploy.plain_graphs.StepGraphs` but for arrays; `decode` takes a dict.
        shapes: list of (B, K) to compare.
        runtime, int8: see `check_classifier`.

    Returns:
        dict for export.json.

    Raises:
        ExportError: if the outputs differ by more than the tolerance.
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
        with tf.device("CPU"):
            expected += _original_steps(model, source, tokens, parents)
        found += _exported_steps(encode, decode, source, tokens, parents)
    exact = not int8 and model.compute_dtype == "float32"
    return _report(np.concatenate(found), np.concatenate(expected), "log_prob", exact, runtime)


def _original_steps(model, source, tokens, parents):
    """Runs the original model: log-probabilities [B·K, V] of each step."""
    cache = model.start(source, len(tokens), tokens.shape[2])
    answers = []
    for step_tokens, step_parents in zip(tokens, parents):
        logits, cache = model.step(tf.constant(step_tokens), cache)
        cache = cache.follow(tf.constant(step_parents))
        answers.append(ops.convert_to_numpy(ops.log_softmax(ops.cast(logits, "float32"))))
    return [answer.reshape(-1, answer.shape[-1]) for answer in answers]


def _exported_steps(encode, decode, source, tokens, parents):
    """Runs the export: log-probabilities [B·K, V] of each step."""
    memory = encode(source)
    length, batch, beams = tokens.shape
    state = {"paths": np.zeros((batch, beams, length), np.int32)}
    for name, heads in memory.items():
        if name != "memory_mask":  # a target buffer for each memory tensor
            shape = (*heads.shape[:2], length * beams, heads.shape[3])
            state[name.replace("memory", "target")] = np.zeros(shape, np.float32)
    answers = []
    for position in range(length):
        step = {"tokens": tokens[position], "position": np.int32(position)}
        found = decode({**step, **state, **memory})
        state = {name: found[f"next_{name}"] for name in state}
        state["paths"] = np.take_along_axis(state["paths"], parents[position][:, :, None], axis=1)
        answers.append(found["log_probs"].reshape(batch * beams, -1))
    return answers


def _report(found, expected, what, exact, runtime):
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
    if not measured[compared] <= tolerance:  # also catches NaN
        raise ExportError(
            f"{runtime}: the outputs of the export differ from those of the original model: "
            f"{compared} of each {what} is {measured[compared]:.2g}, the tolerance is "
            f"{tolerance:g}. The export was not saved."
        )
    return {"with": runtime, **measured, "compared": compared, "tolerance": tolerance}
