"""Exports to SavedModels that take encoded images or strings."""

import numpy as np
import tensorflow as tf

from zoo.deploy import checks
from zoo.deploy.classifier_signatures import ClassifierSignatures, TextClassifierSignatures
from zoo.deploy.generator_signatures import GeneratorSignatures
from zoo.deploy.plain_graphs import tensor
from zoo.deploy.translator_signatures import TranslatorSignatures
from zoo.errors import ExportError
from zoo.tasks.padded_batches import BATCH_SIZES

_SIGNATURES = {  # by the description files of the tasks
    "classifier.json": ClassifierSignatures,
    "image_encoder.json": ClassifierSignatures,
    "text_classifier.json": TextClassifierSignatures,
    "text_encoder.json": TextClassifierSignatures,
    "translator.json": TranslatorSignatures,
    "generator.json": GeneratorSignatures,
}
# Both run the same operations in different graphs. Half precision has about 3 digits; in int8,
# rounding can change an integer by one.
_TOLERANCE, _LOW_TOLERANCE = 1e-4, 5e-2


def write(original, folder, dtype, **options):
    """Writes a SavedModel, see `zoo.deploy.export`; `options` are arguments of its signatures."""
    signatures = _SIGNATURES[original.description_file](original, **options)
    functions = signatures.functions()
    graphs = {
        name: tf.function(function, input_signature=inputs, autograph=False)
        for name, (function, inputs, _) in functions.items()
    }
    tf.saved_model.save(signatures.tracked, str(folder), graphs)
    inputs, expected = signatures.examples()
    _, [spec], _ = functions["serving_default"]
    _write_warm_up_requests(folder, spec.name, inputs[:1])
    loaded = tf.saved_model.load(str(folder))
    found = loaded.signatures["serving_default"](tf.constant(inputs))
    is_exact = dtype == "float32"
    difference = _largest_difference(found, inputs, expected, is_exact)
    tolerance = _TOLERANCE if is_exact else _LOW_TOLERANCE * signatures.summands
    measured, described = {"largest_difference": difference}, {}
    for name, (_, inputs, what) in functions.items():
        outputs = sorted(loaded.signatures[name].structured_outputs.items())
        described[name] = {
            "what": what,
            "inputs": {spec.name: tensor(spec.dtype.name, *spec.shape) for spec in inputs},
            "outputs": {name: tensor(spec.dtype.name, *spec.shape) for name, spec in outputs},
        }
    return {
        "needs": ["tensorflow", *["tensorflow-text"] * bool(signatures.tracked.texts)],
        "signatures": described,
        "checked": checks.report("tensorflow", measured, tolerance),
    }


def _write_warm_up_requests(folder, name, inputs):
    """Writes requests that a server makes before it is ready: `inputs`, repeated to full batches.

    Source: TensorFlow Serving, "SavedModel Warmup" (tensorflow.org/tfx/serving), and its
    `PredictionLog`, whose fields are written here by number: the export needs TensorFlow alone.
    """
    path = folder / "assets.extra" / "tf_serving_warmup_requests"
    path.parent.mkdir()
    spec = _field(3, b"serving_default")  # ModelSpec.signature_name
    with tf.io.TFRecordWriter(str(path)) as writer:
        for rows in BATCH_SIZES:  # that searches are compiled for
            tensor = tf.make_tensor_proto(inputs * rows).SerializeToString()
            item = _field(1, name.encode()) + _field(2, tensor)
            request = _field(1, spec) + _field(2, item)  # PredictRequest.model_spec, .inputs
            writer.write(_field(6, _field(1, request)))  # PredictionLog.predict_log.request


def _field(number, content):
    """Serializes a field of bytes of a protocol buffer: its tag, then its length and content."""
    return bytes([number << 3 | 2]) + tf.train.BytesList(value=[content]).SerializeToString()[1:]


def _largest_difference(found, inputs, expected, is_exact):
    """The largest difference from expected numbers; in float32, texts must also be expected."""
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
