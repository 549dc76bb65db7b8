"""Exports to SavedModels that take encoded images or strings."""

import numpy as np
import tensorflow as tf

from zoo.deploy import checks
from zoo.deploy.classifier_signatures import ClassifierSignatures, TextClassifierSignatures
from zoo.deploy.generator_signatures import GeneratorSignatures
from zoo.deploy.plain_graphs import tensor
from zoo.deploy.translator_signatures import TranslatorSignatures
from zoo.errors import ExportError
from zoo.files import without_pattern
from zoo.tasks.classifier import EncodedTextTask, ImageTask
from zoo.tasks.padded_batches import BATCH_SIZES
from zoo.tasks.translator import Translator

# The model and its export run the same operations in different graphs. Half precision has about 3
# digits; in int8, rounding can change an integer by one.
_TOLERANCE = 1e-4
_LOW_TOLERANCE = 5e-2


def write(task, folder, dtype, options):
    """Writes a SavedModel; `options` are `zoo.deploy.export.ExportOptions`."""
    task_signatures = _signatures_of(task, options)
    signatures = task_signatures.signatures()
    graphs = {
        name: tf.function(signature.function, signature.inputs, autograph=False)
        for name, signature in signatures.items()
    }
    tf.saved_model.save(task_signatures.tracked, str(folder), graphs)
    inputs, expected = task_signatures.examples()
    [spec] = signatures["serving_default"].inputs
    _write_warm_up_requests(folder, spec.name, inputs[:1])
    with without_pattern(folder) as readable:
        loaded = tf.saved_model.load(str(readable))
    found = loaded.signatures["serving_default"](tf.constant(inputs))
    is_exact = dtype == "float32"
    measured = {"largest_difference": _largest_difference(found, inputs, expected, is_exact)}
    tolerance = _TOLERANCE if is_exact else _LOW_TOLERANCE * task_signatures.summands
    needs = ["tensorflow"]
    if task_signatures.tracked.texts:
        needs.append("tensorflow-text")
    return {
        "needs": needs,
        "signatures": {
            name: {
                "what": signature.what,
                "inputs": {spec.name: _described(spec) for spec in signature.inputs},
                "outputs": {
                    output: _described(spec)
                    for output, spec in sorted(loaded.signatures[name].structured_outputs.items())
                },
            }
            for name, signature in signatures.items()
        },
        "checked": checks.report("tensorflow", measured, tolerance),
    }


def _signatures_of(task, options):
    if isinstance(task, ImageTask):
        return ClassifierSignatures(task, options.top_k, options.dynamic_size)
    if isinstance(task, EncodedTextTask):
        return TextClassifierSignatures(task, options.top_k)
    if isinstance(task, Translator):
        return TranslatorSignatures(
            task, options.n_best, options.beam_size, options.length_penalty, options.sentences
        )
    return GeneratorSignatures(
        task, options.n_best, options.beam_size, options.length_penalty, options.max_new_tokens
    )


def _described(spec):
    return tensor(spec.dtype.name, *spec.shape)


def _write_warm_up_requests(folder, name, inputs):
    """Writes the requests that a server makes before it is ready: `inputs`, in full batches.

    Source: TensorFlow Serving, "SavedModel Warmup" (tensorflow.org/tfx/serving). The fields of its
    `PredictionLog` are written by number, as its package is not needed for anything else.
    """
    path = folder / "assets.extra" / "tf_serving_warmup_requests"
    path.parent.mkdir()
    spec = _field(3, b"serving_default")  # ModelSpec.signature_name
    with tf.io.TFRecordWriter(str(path)) as writer:
        for rows in BATCH_SIZES:  # for which searches are compiled
            values = tf.make_tensor_proto(inputs * rows).SerializeToString()
            item = _field(1, name.encode()) + _field(2, values)
            request = _field(1, spec) + _field(2, item)  # PredictRequest.model_spec, .inputs
            writer.write(_field(6, _field(1, request)))  # PredictionLog.predict_log.request


def _field(number, content):
    """Serializes a field of bytes of a protocol buffer: its tag, then its length and content."""
    return bytes([number << 3 | 2]) + tf.train.BytesList(value=[content]).SerializeToString()[1:]


def _largest_difference(found, inputs, expected, is_exact):
    """Compares the outputs of the SavedModel with the expected answers, see `Signatures`.

    Returns the largest difference of numbers. If `is_exact`, texts and labels must be the same.
    """
    found = {name: output.numpy() for name, output in found.items()}
    error = max(found.pop("error")).decode()
    if error:
        raise ExportError(f"The SavedModel cannot read an input: {error}")
    if "features" in found:
        scale = np.maximum(1.0, np.abs(expected).max())  # features may be of any size
        return float(np.abs(found["features"] - expected).max() / scale)
    [all_texts] = [output for output in found.values() if output.dtype == object]
    [all_numbers] = [output for output in found.values() if output.dtype != object]
    differences = [0.0]
    for given, texts, numbers, answers in zip(inputs, all_texts, all_numbers, expected):
        for text, number, (_, best) in zip(texts, numbers, answers):
            # Answers with nearly equal numbers may be swapped, and several may have the same text.
            text = text.decode(errors="replace")
            same = [abs(number - other) for label, other in answers if label == text]
            if is_exact and not same:
                raise ExportError(
                    f"The answer of the SavedModel to {given[:60]!r} is {text!r}, that of the "
                    f"original model {answers[0][0]!r}. The export was not saved."
                )
            differences += [abs(number - best), min(same, default=0.0)]
    return float(np.max(differences))  # NaN if one is NaN
