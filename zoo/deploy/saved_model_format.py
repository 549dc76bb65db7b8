"""Exports to SavedModels that take encoded images or strings.

Axes: B images or texts.
"""

import numpy as np
import tensorflow as tf

from zoo.deploy import checks
from zoo.deploy.classifier_signatures import ClassifierSignatures
from zoo.deploy.errors import ExportError
from zoo.deploy.generator_signatures import GeneratorSignatures
from zoo.deploy.plain_graphs import tensor
from zoo.deploy.text_classifier_signatures import TextClassifierSignatures
from zoo.deploy.translator_signatures import TranslatorSignatures
from zoo.deploy.warm_up_requests import write_warm_up_requests
from zoo.models.base import dtype_name
from zoo.tasks.classifier import ImageClassifier, TextClassifier
from zoo.tasks.generator import TextGenerator
from zoo.tasks.padded_batches import BATCH_SIZES
from zoo.tasks.translator import Translator

_SIGNATURES = {
    ImageClassifier: ClassifierSignatures,
    TextClassifier: TextClassifierSignatures,
    Translator: TranslatorSignatures,
    TextGenerator: GeneratorSignatures,
}
# The same operations in a different graph. Half precision has about 3 digits; in int8, rounding can
# change an integer by one.
_TOLERANCE, _LOW_TOLERANCE = 1e-4, 5e-2
_FILES = {
    "saved_model.pb": "the graph",
    "variables/": "the weights",
    "assets/": "empty; lookup tables are part of the graph",
    "assets.extra/": "requests that a server makes before it is ready",
}


def write(original, folder, **options):
    """Writes a SavedModel and compares its outputs for a few images or texts.

    Args:
        original: `zoo.tasks.classifier.ImageClassifier`, `zoo.tasks.classifier.TextClassifier`,
            `zoo.tasks.translator.Translator` or `zoo.tasks.generator.TextGenerator`.
        folder: path of an existing folder.
        **options: those of the signatures, such as `top_k`.

    Returns:
        dict for export.json: "files", "signatures", "checked".

    Raises:
        ExportError: if the outputs of the SavedModel differ from those of the original.
    """
    make = next(make for kind, make in _SIGNATURES.items() if isinstance(original, kind))
    signatures = make(original, **options)
    functions = signatures.functions()
    graphs = {
        name: tf.function(function, input_signature=inputs, autograph=False)
        for name, (function, inputs, _) in functions.items()
    }
    tf.saved_model.save(signatures.tracked, str(folder), graphs)
    inputs, expected = signatures.examples()
    # in batches of the sizes that searches are compiled for
    _, [spec], _ = functions["serving_default"]
    requests = [{spec.name: inputs[:1] * rows} for rows in BATCH_SIZES]
    write_warm_up_requests(folder, requests)
    loaded = tf.saved_model.load(str(folder))
    outputs = loaded.signatures["serving_default"](tf.constant(inputs))
    found = {name: _array(output) for name, output in outputs.items()}
    if any(found["error"]):
        raise ExportError(f"The SavedModel cannot read an input: {max(found['error'])}")
    is_exact = dtype_name(original.model) == "float32"
    if "labels" in found:
        difference = _class_difference(found, expected, np.asarray(original.class_names))
    else:
        difference = _score_difference(found, expected, inputs, is_exact)
    tolerance = _TOLERANCE if is_exact else _LOW_TOLERANCE * signatures.summands
    measured = {"largest_difference": float(difference)}
    described = {}
    for name, (_, inputs, what) in functions.items():
        outputs = sorted(loaded.signatures[name].structured_outputs.items())
        described[name] = {
            "what": what,
            "inputs": {spec.name: tensor(spec.dtype.name, *spec.shape) for spec in inputs},
            "outputs": {name: tensor(spec.dtype.name, *spec.shape) for name, spec in outputs},
        }
    return {
        "files": _FILES,
        "signatures": described,
        "checked": checks.report(f"tensorflow {tf.__version__}", measured, tolerance),
    }


def _class_difference(found, expected, class_names):
    """The largest difference of the probabilities of returned labels from those expected."""
    probabilities = found["probabilities"]
    best = np.sort(expected)[:, ::-1][:, : probabilities.shape[1]]
    # classes with equal probabilities may be swapped
    by_label = [
        [np.where(class_names == label, row, 0).max() for label in labels]
        for row, labels in zip(expected, found["labels"])
    ]
    return max(np.abs(probabilities - other).max() for other in (best, by_label))


def _score_difference(found, expected, texts, is_exact):
    """The largest difference of the scores from those expected, of the same texts in float32."""
    [results] = (found[name] for name in ("translations", "generated_texts") if name in found)
    difference = 0.0
    for text, answers, scores, hypotheses in zip(texts, results, found["scores"], expected):
        for answer, score, best in zip(answers, scores, hypotheses):
            if is_exact and answer != best.text:
                raise ExportError(
                    f"The answer of the SavedModel to {text!r} is {answer!r}, that of the original "
                    f"model {best.text!r}. The export was not saved."
                )
            difference = max(difference, abs(score - best.score))
    return difference


def _array(tensor):
    """Of strings, if it is of bytes."""
    array = tensor.numpy()
    decode = np.vectorize(lambda item: item.decode(errors="replace"), otypes=[object])
    return decode(array) if array.dtype == object else array
