"""Exports to SavedModels that take encoded images or strings and need only TensorFlow.

Axes: B images or texts.
"""

import pathlib
import tempfile

import numpy as np
import tensorflow as tf

from zoo.classifier import encode_texts
from zoo.deploy.classifier_signatures import ClassifierSignatures
from zoo.deploy.errors import ExportError
from zoo.deploy.generator_signatures import GeneratorSignatures
from zoo.deploy.text_classifier_signatures import TextClassifierSignatures
from zoo.deploy.translator_signatures import TranslatorSignatures
from zoo.deploy.warm_up_requests import write_warm_up_requests
from zoo.generator import NEW_TOKENS
from zoo.translation_search import BATCHES

# The same operations in a different graph; half precision has about 3 digits.
_TOLERANCE, _HALF_TOLERANCE = 1e-4, 5e-2
_FILES = {
    "saved_model.pb": "the graph",
    "variables/": "the weights",
    "assets/": "empty; lookup tables are part of the graph",
    "assets.extra/": "requests that a server makes before it is ready",
}
_WARM_UP_TEXTS = {"texts": ["hello"]}


def write_classifier(classifier, folder, top_k):
    """Writes a classifier and compares its outputs for a few image files.

    Args:
        classifier: `zoo.classifier.ImageClassifier`.
        folder: path of an existing folder.
        top_k: number of classes to return.

    Returns:
        dict for export.json: "files", "signatures", "checked".

    Raises:
        ExportError: if the outputs of the SavedModel differ from those of the classifier.
    """
    signatures = ClassifierSignatures(classifier, top_k)
    grey = np.full((*classifier.preprocessing.image_size, 3), 128, np.uint8)
    loaded = _write(signatures, folder, {"image_bytes": [tf.io.encode_png(grey).numpy()]})
    with tempfile.TemporaryDirectory() as images:
        paths = _images(pathlib.Path(images), classifier.preprocessing.image_size)
        data = tf.constant([path.read_bytes() for path in paths])
        expected = classifier.probabilities(paths)
    difference = _of_classes(classifier, loaded, data, expected)
    return _report(signatures, loaded, difference, classifier.model)


def write_text_classifier(classifier, folder, top_k):
    """Writes a text classifier and compares its outputs for a few texts.

    Args:
        classifier: `zoo.classifier.TextClassifier`.
        folder, top_k: see `write_classifier`.

    Returns, raises: see `write_classifier`.
    """
    signatures = TextClassifierSignatures(classifier, top_k)
    loaded = _write(signatures, folder, _WARM_UP_TEXTS)
    texts, limit = _texts(classifier.tokenizer), classifier.model.max_length
    rows = encode_texts(classifier.tokenizer, texts, classifier.special_tokens)
    texts = [text for text, row in zip(texts, rows) if len(row) <= limit]
    expected = classifier.probabilities(texts)
    difference = _of_classes(classifier, loaded, tf.constant(texts), expected)
    return _report(signatures, loaded, difference, classifier.model)


def write_translator(translator, folder, n_best, beam_size, length_penalty):
    """Writes a translator and compares translations and scores of a few texts.

    Args:
        translator: `zoo.translator.Translator`.
        folder: path of an existing folder.
        n_best, beam_size, length_penalty: fixed search arguments; see `Translator.n_best`.

    Returns, raises: see `write_classifier`.
    """
    signatures = TranslatorSignatures(translator, n_best, beam_size, length_penalty)
    loaded = _write(signatures, folder, _WARM_UP_TEXTS)
    texts = _texts(translator.source_tokenizer)
    expected = translator.n_best(texts, n_best, beam_size, length_penalty)
    difference = _of_searches(translator, loaded, texts, expected, "translations")
    return _report(signatures, loaded, difference, translator.model)


def write_generator(generator, folder, n_best, beam_size, length_penalty, max_new_tokens):
    """Writes a text generator and compares continuations and scores of a few texts.

    Args:
        generator: `zoo.generator.TextGenerator`.
        folder: path of an existing folder.
        n_best, beam_size, length_penalty, max_new_tokens: fixed search arguments; see
            `TextGenerator.n_best`.

    Returns, raises: see `write_classifier`.
    """
    search = (n_best, beam_size, length_penalty, max_new_tokens)
    signatures = GeneratorSignatures(generator, *search)
    loaded = _write(signatures, folder, _WARM_UP_TEXTS)
    texts, limit = _texts(generator.tokenizer), generator.max_prompt_length(max_new_tokens)
    rows = generator.tokenizer.encode(texts)
    texts = [text for text, row in zip(texts, rows) if len(row) < limit]
    expected = generator.n_best(texts, *search)
    difference = _of_searches(generator, loaded, texts, expected, "generated_texts")
    tokens = max_new_tokens or NEW_TOKENS  # a score is the sum of their log-probabilities
    return _report(signatures, loaded, difference, generator.model, _HALF_TOLERANCE * tokens)


def _of_classes(classifier, loaded, inputs, expected):
    """The largest difference of the probabilities of returned labels from those expected."""
    found = loaded.signatures["serving_default"](inputs)
    labels, error = (_strings(found[name]) for name in ("labels", "error"))
    if any(error):
        raise ExportError(f"The SavedModel cannot read an input: {error.max()}")
    probabilities, names = found["probabilities"].numpy(), np.asarray(classifier.class_names)
    best = np.sort(expected)[:, ::-1][:, : probabilities.shape[1]]
    # classes with equal probabilities may be swapped
    of_labels = [np.where(names == label, row, 0).max() for row, label in _each(expected, labels)]
    differences = probabilities - best, probabilities.reshape(-1) - of_labels
    return max(np.abs(difference).max() for difference in differences)


def _of_searches(original, loaded, texts, expected, output):
    """The largest difference of the scores from those expected, of the same texts in float32."""
    found = loaded.signatures["serving_default"](tf.constant(texts))
    exact, difference = original.model.compute_dtype == "float32", 0.0
    for text, strings, scores, answer in zip(
        texts, _strings(found[output]), found["scores"].numpy(), expected
    ):
        if exact and [*strings[: len(answer)]] != [best.text for best in answer]:
            raise ExportError(
                f"The answer of the SavedModel to {text!r} is {strings[0]!r}, that of the original "
                f"model {answer[0].text!r}. The export was not saved."
            )
        differences = [abs(score - best.score) for score, best in zip(scores, answer)]
        difference = max([difference, *differences])
    return difference


def _write(signatures, folder, example):
    """Saves the signatures and loads the SavedModel again.

    Args:
        signatures: such as `ClassifierSignatures`.
        folder: path of an existing folder.
        example: inputs of the default signature, {name: list of one item}, to warm it up with.
    """
    functions = {
        name: tf.function(function, input_signature=inputs, autograph=False)
        for name, (function, inputs, _) in signatures.functions().items()
    }
    tf.saved_model.save(signatures.tracked, str(folder), functions)
    # in batches of the sizes that searches are compiled for
    requests = [{name: item * rows for name, item in example.items()} for rows in BATCHES]
    write_warm_up_requests(folder, requests)
    return tf.saved_model.load(str(folder))


def _report(signatures, loaded, difference, model, half_tolerance=_HALF_TOLERANCE):
    tolerance = _TOLERANCE if model.compute_dtype == "float32" else half_tolerance
    if not difference <= tolerance:  # also catches NaN
        raise ExportError(
            f"The outputs of the SavedModel differ from those of the original model by "
            f"{difference:.2g}; the tolerance is {tolerance:g}. The export was not saved."
        )
    described = {}
    for name, (_, inputs, what) in signatures.functions().items():
        outputs = loaded.signatures[name].structured_outputs.items()
        described[name] = {
            "what": what,
            "inputs": {spec.name: _described(spec) for spec in inputs},
            "outputs": {name: _described(spec) for name, spec in sorted(outputs)},
        }
    checked = {
        "with": f"tensorflow {tf.__version__}",
        "largest_difference": float(difference),
        "tolerance": tolerance,
    }
    return {"files": _FILES, "signatures": described, "checked": checked}


def _described(spec):
    return {"dtype": spec.dtype.name, "shape": spec.shape.as_list()}


def _images(folder, size):
    """Writes a few image files: smaller, larger, wider and higher than the model's size."""
    random, paths = np.random.default_rng(0), []
    for index, (height, width) in enumerate(((1.0, 1.0), (0.4, 0.7), (3.0, 1.7), (1.2, 4.0))):
        shape = (max(1, int(size[0] * height)), max(1, int(size[1] * width)))
        coarse = random.integers(0, 256, (4, 4, 3)).astype("float32")
        pixels = tf.cast(tf.image.resize(coarse, shape, "bicubic"), tf.uint8)
        encode = tf.io.encode_png if index % 2 else tf.io.encode_jpeg
        paths.append(folder / f"{index}.{'png' if index % 2 else 'jpg'}")
        paths[-1].write_bytes(encode(pixels).numpy())
    return paths


def _texts(tokenizer):
    """Texts of random tokens, an empty text and a text of other characters."""
    spelled, random = tokenizer.token_bytes, np.random.default_rng(0)
    known = [id for id, piece in enumerate(spelled) if piece]
    learned = [id for id in known if len(spelled[id]) > 1] or known
    ids = [random.choice(learned, length) for length in (1, 3, 5, 8)]
    return [*tokenizer.decode(ids), "", "e\u0301 \u4f60 5."]


def _strings(tensor):
    return np.vectorize(lambda item: item.decode(errors="replace"), otypes=[object])(tensor.numpy())


def _each(rows, labels):
    """Pairs each row with each of its labels."""
    return [(row, label) for row, of_row in zip(rows, labels) for label in of_row]
