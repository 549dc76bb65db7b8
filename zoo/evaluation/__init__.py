"""`zoo.evaluate`: scores of models, and of their exports, on labeled data.

Axes: n items, K classes, B windows, T tokens.
"""

import dataclasses
import os
import sys
import time

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from zoo.data.pipeline import test_batches
from zoo.data.plain_text import encode_texts
from zoo.errors import DataError, UserError
from zoo.evaluation import data as evaluation_data
from zoo.evaluation.exported import Exported, is_exported
from zoo.loading import load
from zoo.tasks.task import Task
from zoo.training.scores import class_scores, cross_entropy, likelihood_scores
from zoo.training.translation_scores import bleu_tokenizer, compared_translations

_TEXTS, _IMAGES, _WINDOWS = 512, 256, 4  # that are computed at once


def evaluate(
    model, data, *, target=None, labels=None, data_dir=None, bleu_tokenize=None, **options
):
    """Evaluates a model, or several on the same data.

    Args:
        model: what `zoo.load` returns, a path or name that it takes, or the folder of a SavedModel
            that `zoo.export` wrote; or a list of these, each compared with the first.
        data: path or name of the data, see `zoo.evaluation.data`. For classifiers of images, a
            folder with a folder for each class, a data set of TFDS or "digits"; for classifiers of
            texts, a TSV file: label, tab, text; for translators, a TSV file: source, tab,
            reference, a file of sources with `target`, or "sacrebleu:wmt14/full/en-de", a test set
            in the cache of sacrebleu; for text generators, a text file.
        target: path of the reference translations, one per line.
        labels: path of the numbers of the right classes of each image, see `read_labels`.
        data_dir: folder of prepared TFDS data.
        bleu_tokenize: sacrebleu's tokenizer of BLEU; by default that of the references' script.
        **options: of `zoo.load` for paths and names, such as `dtype`, `engine` and `src_lang`.

    Returns:
        dict of the scores, "items", "seconds" (first-time compilation included),
        "items_per_second" and "peak_memory_mib", that of this process so far; for a list of models
        a list of them. Translations are as they are without `sentences`, and are compared by
        sacrebleu's paired bootstrap test.

    Raises:
        DataError: if data cannot be read, are empty, or have classes that the model does not have.
        UserError: if this kind of model has no evaluation, or the models are of several kinds.
    """
    several = isinstance(model, (list, tuple))
    tasks = [_loaded(each, options) for each in (model if several else [model])]
    kinds = {_kind(task) for task in tasks}
    if len(kinds) != 1:
        raise UserError("Pass one or several models of the same kind.")
    [kind] = kinds
    settings = {"labels": labels, "data_dir": data_dir, "target": target}
    for name, value in {**settings, "bleu_tokenize": bleu_tokenize}.items():
        whose = "classifier" if name in ("labels", "data_dir") else "translator"
        if value is not None and kind != whose:
            raise UserError(f"{name} is for a {whose}. Received: a {kind}.")
    if bleu_tokenize is not None:
        bleu_tokenizer((), bleu_tokenize)  # an error before the work
    data = os.fspath(data)
    read, score = _KINDS[kind]
    reports, translations = [], []
    for task in tasks:
        items = read(task, data, **settings)
        start = time.perf_counter()
        scores = score(task, items)
        seconds = time.perf_counter() - start
        translations.append(scores.pop("translations", None))
        speed = {"seconds": seconds, "items_per_second": scores["items"] / seconds}
        reports.append({**scores, **speed, "peak_memory_mib": _peak_memory()})
    if kind == "translator":
        compared = compared_translations(translations, items.right, bleu_tokenize)
        reports = [{**scores, **report} for scores, report in zip(compared, reports)]
    return reports if several else reports[0]


def _peak_memory():
    """The largest resident memory of this process so far in MiB; None on Windows."""
    try:
        import resource
    except ModuleNotFoundError:
        return None
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # KiB, on macOS bytes
    return size / 2 ** (20 if sys.platform == "darwin" else 10)


def _loaded(model, options):
    has_path = isinstance(model, (str, os.PathLike))
    is_read = not has_path or is_exported(model)
    if options and is_read:
        raise UserError(f"{', '.join(options)}: only what zoo.load reads takes options.")
    if isinstance(model, Task):
        return model
    if not has_path:
        raise UserError(
            "model must be what zoo.load returns, a path or a name. Received: "
            f"{type(model).__name__}."
        )
    return Exported(model) if is_read else load(model, **options)


def _kind(task):
    kind = task.description_file.removesuffix(".json")
    if kind not in _KINDS:
        raise UserError(
            "Classifiers, translators and text generators can be evaluated. Received: "
            f"{type(task).__name__}."
        )
    if getattr(task, "problem", "single_label") != "single_label":
        raise UserError(
            "Models of several labels are evaluated by zoo.training.scores.label_scores of "
            "classifier.probabilities(...)."
        )
    return kind


def _batches(items, size, unit):
    """Yields lists of up to `size` items, with a progress bar of items."""
    with tqdm(total=len(items), unit=unit, desc="evaluating", leave=False, disable=None) as bar:
        for start in range(0, len(items), size):
            batch = items[start : start + size]
            yield batch
            bar.update(len(batch))


# --- functions of a model and of what `zoo.evaluation.data` read for it ---------------------------


def _image_scores(classifier, items):
    images, compute = items.items, _served if isinstance(classifier, Exported) else _computed
    parts, readable = zip(*compute(classifier, images))
    right = [classes for classes, read in zip(items.right, np.concatenate(readable)) if read]
    scores = _class_scores(np.concatenate(parts), right, classifier.class_names)
    return {**scores, "skipped": [*images.skipped.values()], "notes": [*items.notes]}


def _computed(classifier, images):
    """Yields the probabilities of images in parts, and bool [any]: which of them can be read."""
    fit, count = classifier.preprocessing, len(classifier.class_names)
    batches = test_batches(dataclasses.replace(images, preprocessing=fit), 1, _IMAGES)
    progress = tqdm(batches.whole(), "evaluating", batches.num_batches, leave=False, disable=None)
    for pixels, _, weights in progress:
        readable = weights.numpy() > 0
        inputs = fit.normalize(pixels.numpy()[readable]).numpy()
        yield classifier.computed(inputs, classifier.probabilities_of_inputs, count), readable


def _served(classifier, images):
    """Like `_computed`, by a SavedModel, which takes encoded images."""
    for numbers in _batches(images.numbers, _IMAGES, "image"):
        found = classifier.probabilities([images.read(number)[0].numpy() for number in numbers])
        readable = ~np.isnan(found[:, 0])
        images.skip(numbers[~readable])
        yield found[readable], readable


def _text_scores(classifier, items):
    batches = _batches(items.items, _TEXTS, "text")
    parts = [classifier.probabilities(texts, too_long="truncate") for texts in batches]
    found = np.concatenate(parts)
    right = [classes for classes, row in zip(items.right, found) if not np.isnan(row[0])]
    scores = _class_scores(found[~np.isnan(found[:, 0])], right, classifier.class_names)
    return {**scores, "notes": [*items.notes, *_errors(classifier, "Not used")]}


def _errors(task, what):
    """A line about the texts that an export did not compute, if there were some."""
    errors = getattr(task, "errors", ())
    return [f"{what}: {len(errors):,}, such as {errors[0]}"] if errors else []


def _class_scores(probabilities, right, names):
    """Scores of probabilities [n, K] with the right classes of each item: lists, perhaps empty."""
    known = np.array([len(classes) > 0 for classes in right])
    if not known.any():
        raise DataError("None of the items has a class.")
    probabilities, right = probabilities[known], [classes for classes in right if len(classes)]
    order = np.argsort(-probabilities, axis=1, kind="stable")
    scores = {"items": len(right), "items_without_class": int((~known).sum())}
    for name, count in {"accuracy": 1, "top_5_accuracy": 5}.items():
        if count < len(names):
            hits = [
                not {*best}.isdisjoint(classes) for best, classes in zip(order[:, :count], right)
            ]
            scores[name] = float(np.mean(hits))
    if max(map(len, right)) > 1:
        return scores
    labels = np.array(right, np.int64)[:, 0]
    shares = np.take_along_axis(probabilities, labels[:, None], axis=1)
    by_class = class_scores(labels, order[:, 0], names, labels[:0])
    return {
        **scores,
        "loss": cross_entropy(shares),
        "balanced_accuracy": by_class["balanced_accuracy"],
        "class_accuracy": by_class["class_accuracy"],
        "class_items": by_class["test_counts"],
    }


def _translations(translator, items):
    batches = _batches(items.items, _TEXTS, "sentence")
    is_exported = isinstance(translator, Exported)
    options = {} if is_exported else {"sentences": False, "too_long": "split"}
    texts = [text for batch in batches for text in translator(batch, **options)]
    notes = [*items.notes, *_errors(translator, "Without a translation")]
    return {"items": len(texts), "notes": notes, "translations": texts}


def _text_likelihood(generator, text):
    """Perplexity of a text in windows of the model's length, which begin with the start token."""
    special, length = generator.special_tokens, generator.model.max_length
    tokens = encode_texts(generator.tokenizer, [text], special.end)
    length = min(length, len(tokens))
    windows = np.pad(tokens, (0, -len(tokens) % length), constant_values=special.pad)
    windows = windows.reshape(-1, length)
    counted = (np.arange(windows.size) < len(tokens)).reshape(windows.shape)
    before = np.pad(windows[:, :-1], [(0, 0), (1, 0)], constant_values=special.start)
    rows, total, right = range(len(windows)), 0.0, 0

    def graph(inputs, labels, weights):
        logits = tf.cast(generator.model(inputs, training=False), tf.float32)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        hits = tf.argmax(logits, axis=-1, output_type=labels.dtype) == labels
        return tf.reduce_sum(losses * weights), tf.reduce_sum(tf.cast(hits, tf.float32) * weights)

    for numbers in _batches(rows, _WINDOWS, "window"):
        batch = (before[numbers], windows[numbers], counted[numbers].astype(np.float32))
        loss, hits = generator.run(graph, *batch)
        total, right = total + float(loss), right + float(hits)
    loss = total / len(tokens)
    return {
        "items": len(tokens),
        "loss": loss,
        **likelihood_scores(loss, len(tokens), len(text.encode())),
        "token_accuracy": right / len(tokens),
    }


_KINDS = {  # of models: functions that read the data, and score
    "classifier": (evaluation_data.labeled_images, _image_scores),
    "text_classifier": (evaluation_data.labeled_texts, _text_scores),
    "translator": (evaluation_data.sentence_pairs, _translations),
    "generator": (evaluation_data.plain_text, _text_likelihood),
}
