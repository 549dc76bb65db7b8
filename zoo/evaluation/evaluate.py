"""`zoo.evaluate`: scores of models, and of their exports, on labeled data.

Axes: n items, K classes, B windows, T tokens, V vocabulary.
"""

import dataclasses
import os
import sys
import time

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from zoo.data.images import unreadable_images_named
from zoo.data.plain_text import concatenated_tokens, evaluation_windows, read_texts
from zoo.data.text_rows import clean
from zoo.deploy.export import DESCRIPTION_FILE
from zoo.errors import CheckpointError, DataError, UserError, needed
from zoo.evaluation.data import (
    Labeled,
    is_of_training,
    labeled_images,
    labeled_texts,
    model_labels,
    sentence_pairs,
)
from zoo.evaluation.exported import Exported
from zoo.files import as_path
from zoo.loading import load
from zoo.text.encoding import altered
from zoo.training.report_scores import (
    class_scores,
    cross_entropy,
    image_probabilities,
    label_scores,
    likelihood_scores,
)
from zoo.training.report_translation_scores import bleu_tokenizer, compared_translations

_OPTIONS = {  # the options of each kind of model
    "classifier": {"labels", "data_dir"},
    "multi_label_classifier": {"labels", "data_dir"},
    "text_classifier": set(),
    "translator": {"target", "bleu_tokenize"},
    "text_to_text": {"target", "bleu_tokenize"},
    "generator": set(),
}
_WINDOWS = 4  # batch size
_OTHER_SPLIT = (
    "The model may have been trained on some of these items: they are those that runs with seed {} "
    "hold out, and its run had another seed, or is not known."
)
_TRAINED_ON = "The model was trained on {}, or on a part of it."


def evaluate(
    model, data, *, target=None, labels=None, data_dir=None, bleu_tokenize=None, **options
):
    """Evaluates a model, or several on the same data.

    Args:
        model: what `zoo.load` returns, a path or name that it takes, or the folder of a SavedModel
            that `zoo.export` wrote; or a list of these, each compared with the first.
        data: path or name of the data. For image classifiers, a folder with a folder for each
            class, the name of a TFDS data set, or "digits"; for text classifiers, a TSV file of
            label, tab, text; for translators, a TSV file of source, tab, reference, a file of
            sources with `target`, or a test set in the cache of sacrebleu, such as
            "sacrebleu:wmt14/full/en-de"; for text generators, a text file.
        target: path of the reference translations, one per line; or a list of such paths, if a
            source has several references. Empty lines are no references.
        labels: path of a table of images and labels, see `zoo.data.image_table`, or of a file with
            the class numbers of each image, see `zoo.evaluation.data.read_labels`; required with
            several labels per image.
        data_dir: folder of prepared TFDS data.
        bleu_tokenize: name of sacrebleu's tokenizer of BLEU; by default that of the script of the
            references.
        **options: of `zoo.load` for paths and names, such as `dtype`, `engine` and `src_lang`.

    Returns:
        dict of the scores, "items", "seconds" (compilation at the first use included),
        "items_per_second", and "peak_memory_mib", the peak memory of this process so far. For a
        list of models, a list of these. Translators translate each text as a whole, and are
        compared by sacrebleu's paired bootstrap test.

    Raises:
        DataError: if the data cannot be read, are empty, or have a class that the model does not
            have.
        UserError: if this kind of model cannot be evaluated, the models are of several kinds, or an
            option is for another kind.
    """
    are_several = isinstance(model, (list, tuple))
    models = model if are_several else [model]
    tasks = [_loaded(each, options) for each in models]
    kinds = {_kind(task) for task in tasks}
    if len(kinds) != 1:
        raise UserError("Pass one or several models of the same kind.")
    [kind] = kinds
    received = {
        "target": target,
        "labels": labels,
        "data_dir": data_dir,
        "bleu_tokenize": bleu_tokenize,
    }
    wrong = {name for name, value in received.items() if value is not None} - _OPTIONS[kind]
    if wrong:
        raise UserError(f"{', '.join(sorted(wrong))}: not an option for a {kind}.")
    if bleu_tokenize:
        bleu_tokenizer((), bleu_tokenize)  # an error before the work

    data = os.path.expanduser(data)
    if data_dir is not None and (data == "digits" or os.path.isdir(data)):
        raise UserError(f"data_dir is for a TensorFlow data set, by its name. Received: {data}.")
    if kind == "multi_label_classifier" and labels is None and "classes" not in options:
        raise UserError("With several labels per image, pass labels, a table of them.")
    if kind in ("classifier", "multi_label_classifier"):
        items = labeled_images(data, labels, data_dir, tasks[0].settings, tasks[0].problem)
        reports = _classifications(tasks, items)
    elif kind == "text_classifier":
        items = labeled_texts(data, tasks[0].settings)
        reports = _classifications(tasks, items)
    elif kind == "generator":
        items = Labeled(read_texts([data]), [], path=data)
        reports = [_measured(_likelihood, task, items) for task in tasks]
    else:
        is_path = isinstance(target, (str, os.PathLike))
        targets = [target] if is_path else target or ()
        items = sentence_pairs(data, targets, tasks[0].settings)
        needed("sacrebleu")
        reports = [_measured(_translations, task, items) for task in tasks]
        translations = [report.pop("translations") for report in reports]
        compared = compared_translations(translations, items.labels, bleu_tokenize)
        reports = [{**scores, **report} for scores, report in zip(compared, reports)]
    return reports if are_several else reports[0]


def _measured(score, *arguments):
    """The scores that a function computes of a model, with the time and memory that it takes."""
    start = time.perf_counter()
    scores = score(*arguments)
    seconds = time.perf_counter() - start
    return {
        **scores,
        "seconds": seconds,
        "items_per_second": scores["items"] / seconds,
        "peak_memory_mib": _peak_memory(),
    }


def _peak_memory():
    """The largest resident memory of this process so far in MiB; None on Windows."""
    try:
        import resource
    except ModuleNotFoundError:
        return None
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if sys.platform == "darwin":
        return size / 2**20  # bytes
    return size / 2**10  # KiB


def _loaded(model, options):
    """The model to evaluate; `options` are for those that `zoo.load` reads."""
    is_path = isinstance(model, (str, os.PathLike))
    is_exported = is_path and (as_path(model) / DESCRIPTION_FILE).is_file()
    if is_path and not is_exported:
        try:
            return load(model, **options)
        except (CheckpointError, FileNotFoundError) as error:
            raise type(error)(f"{error} The data are named last, after the models.") from None
    if options:
        raise UserError(f"{', '.join(options)}: only what zoo.load reads takes options.")
    return Exported(model) if is_exported else model


def _kind(task):
    kind = getattr(task, "description_file", "").removesuffix(".json")
    if getattr(task, "problem", None) == "multi_label":
        kind = f"multi_label_{kind}"
    if kind not in _OPTIONS:
        raise UserError(
            "Translators, text generators and classifiers can be evaluated, as zoo.load returns "
            "them, or by a path or name. For several labels per text, use "
            f"zoo.training.report_scores.label_scores. Received: {type(task).__name__}."
        )
    return kind


# --- scores of one model --------------------------------------------------------------------------


def _classifications(classifiers, data):
    """The report of each classifier; all must have the classes of the data, before the work."""
    matched = [model_labels(data, classifier.class_names) for classifier in classifiers]
    return [
        _measured(_classification, classifier, data, labels, notes)
        for classifier, (labels, notes) in zip(classifiers, matched)
    ]


def _classification(classifier, data, labels, notes):
    """The scores of a classifier; `labels` and `notes` are results of `model_labels`."""
    probabilities = _probabilities(classifier, data.items)
    unlabeled = sum(not row for row in labels)
    if classifier.problem == "multi_label":
        scores = _several_label_scores(probabilities, labels, classifier.class_names)
    else:
        scores = _class_scores(probabilities, labels, classifier.class_names)
    if unlabeled and classifier.problem == "single_label":
        notes = (*notes, f"Not counted, without a label: {unlabeled:,} of {len(labels):,}.")
    notes = [*data.notes, *notes, *_not_held_out(classifier, data), *_refused(classifier, data)]
    return {**scores, "notes": notes}


def _not_held_out(task, data):
    """Returns lines about items that the run of a task may have trained on: none, or one line."""
    settings = task.settings or {}
    if data.path is not None and is_of_training(data.path, settings):
        return (_TRAINED_ON.format(data.path),)
    if data.seed is None or data.seed == settings.get("seed"):
        return ()
    return (_OTHER_SPLIT.format(data.seed),)


def _probabilities(classifier, items):
    """Probabilities [n, K] of texts or images; NaN for items that an export refuses."""
    if isinstance(items, list):
        return classifier.probabilities(items, too_long="truncate")
    if isinstance(classifier, Exported):  # it takes encoded images

        def read(number):
            image, *_ = items.read(number)
            return image.numpy()

        return classifier.probabilities(items.numbers, read=read)
    images = dataclasses.replace(items, preprocessing=classifier.preprocessing)
    with unreadable_images_named(images):
        return image_probabilities(classifier, images)


def _class_scores(probabilities, labels, names):
    """Scores of classes.

    Args:
        probabilities: [n, K]; NaN for items that are not counted.
        labels: for each item the list of its class numbers.
        names: the names of the classes.
    """
    computed = np.flatnonzero(~np.isnan(probabilities[:, 0]))
    known = [item for item in computed if labels[item]]
    if not known:
        raise DataError("None of the items has a class.")
    labels = [labels[item] for item in known]
    probabilities = probabilities[known]
    order = np.argsort(-probabilities, axis=1, kind="stable")  # [n, K], the likeliest class first
    hits = np.array([np.isin(best, row) for best, row in zip(order[:, :5], labels)])  # [n, 5]
    scores = {
        "items": len(known),
        "items_without_class": len(computed) - len(known),
        "accuracy": float(hits[:, 0].mean()),
    }
    if len(names) > 5:
        scores["top_5_accuracy"] = float(hits.any(axis=1).mean())
    if max(map(len, labels)) > 1:
        return scores
    labels = np.array(labels)  # [n, 1]
    by_class = class_scores(labels[:, 0], order[:, 0], names, train_labels=np.zeros(0, int))
    return {
        **scores,
        "loss": cross_entropy(np.take_along_axis(probabilities, labels, axis=1)),
        "balanced_accuracy": by_class["balanced_accuracy"],
        "class_accuracy": by_class["class_accuracy"],
        "class_items": by_class["test_counts"],
    }


def _several_label_scores(probabilities, labels, names):
    """Scores of items with any number of classes each; for the arguments see `_class_scores`."""
    computed = np.flatnonzero(~np.isnan(probabilities[:, 0]))
    true = np.array([np.isin(range(len(names)), labels[item]) for item in computed])  # [n, K]
    if not true.any():
        raise DataError("None of the items has a class.")
    scores = label_scores(true, probabilities[computed], names)
    class_items = scores.pop("items")
    if np.all(true.sum(axis=1) == 1):
        best = probabilities[computed].argmax(axis=1)
        scores = {"accuracy": float(true[range(len(true)), best].mean()), **scores}
    return {"items": len(computed), **scores, "class_items": class_items}


def _translations(translator, data):
    if isinstance(translator, Exported):
        texts = translator(data.items)
    else:
        texts = translator(data.items, sentences=False, too_long=translator.long_texts)
    notes = [*data.notes, *_not_held_out(translator, data), *_refused(translator, data)]
    if not isinstance(translator, Exported):
        references = [text for texts in data.labels for text in texts if text]
        notes += altered(translator.target_tokenizer, references, "references")
    texts = [clean(text) for text in texts]  # as the references are
    return {"items": len(texts), "notes": notes, "translations": texts}


def _refused(task, data):
    """A line about the items that an export refused, if there are any."""
    if not isinstance(task, Exported) or not task.refused:
        return []
    index, reason = task.refused[0]
    if isinstance(data.items, list):
        name = repr(data.items[index][:60])
    else:
        name = data.items.name(int(data.items.numbers[index]))
    return [f"Refused by the export: {len(task.refused):,}, such as {name}: {reason}"]


def _likelihood(generator, data):
    """Scores of a text that is cut into windows of the model's length."""
    texts = data.items
    special = generator.special_tokens
    tokens = concatenated_tokens(generator.tokenizer, texts, special.end)
    length = min(generator.model.max_length, len(tokens))
    windows = evaluation_windows(tokens, _WINDOWS, length, special)

    def sums_of_batch(inputs, labels, weights):
        """The sums of the losses and of the hits; the arguments are [B, T]."""
        logits = tf.cast(generator.model(inputs, training=False), tf.float32)  # [B, T, V]
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)  # [B, T]
        hits = tf.argmax(logits, axis=-1, output_type=labels.dtype) == labels  # [B, T]
        return tf.reduce_sum(losses * weights), tf.reduce_sum(tf.cast(hits, tf.float32) * weights)

    progress = tqdm(windows.whole(), "evaluating", windows.num_batches, leave=False, disable=None)
    sums = np.array([generator.run(sums_of_batch, *batch) for batch in progress], float)
    loss, accuracy = (sums.sum(axis=0) / len(tokens)).tolist()
    changed = altered(generator.tokenizer, texts, "texts, whose bytes are counted")
    notes = [*_not_held_out(generator, data), *changed]
    return {
        "items": len(tokens),
        "loss": loss,
        **likelihood_scores(loss, len(tokens), len(texts[0].encode())),
        "token_accuracy": accuracy,
        "notes": notes,
    }
