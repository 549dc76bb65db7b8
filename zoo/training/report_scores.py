"""Scores of classifiers and language models at the end of a run, or of `zoo.evaluate`.

For a metric after each epoch, see `zoo.training.callbacks`. Axes: n items, K classes.
"""

import collections
import math

import numpy as np
from tqdm import tqdm

from zoo.data.image_batches import evaluation_batches
from zoo.errors import DataError, as_number
from zoo.training.callbacks import best_index

_SMALLEST = 1e-30  # lower bound of probabilities in a loss
_BATCH_SIZE = 256  # images


def image_probabilities(classifier, images):
    """Computes the probabilities of `zoo.data.images.Images`: float32 [n, K]."""
    batches = evaluation_batches(images, 1, _BATCH_SIZE)
    progress = tqdm(batches.whole(), "testing", batches.num_batches, leave=False, disable=None)
    parts = []
    for pixels, *_ in progress:
        normalized = classifier.preprocessing.normalize(pixels).numpy()
        parts.append(classifier.outputs(normalized))
    return np.concatenate(parts)[: len(images)]  # the last batch is filled up


def label_scores(labels, probabilities, class_names, threshold=0.5):
    """Computes average precision and F1 of items with any number of labels.

    Args:
        labels: [n, K], 1 for each label of an item, 0 for all others.
        probabilities: [n, K].
        class_names: the names of the K classes.
        threshold: minimum probability of a predicted class, from 0 to 1: a number, or one for each
            class.

    Returns:
        dict of "loss", the sigmoid cross-entropy; "mean_average_precision" and "f1_macro", means
        over the classes that occur in the labels; "f1_micro", over all items and classes together;
        "average_precision" of each class that occurs; and "items", the number of each class.
    """
    from sklearn.metrics import average_precision_score

    labels = np.asarray(labels)
    if not np.isin(labels, (0, 1)).all():
        found = np.setdiff1d(labels, (0, 1)).tolist()
        raise DataError(
            f"Each label must be 1 or 0: an item has it, or not. Received: {found[:5]}."
        )
    thresholds = [as_number("threshold", x, float, 0, 1) for x in np.ravel(threshold).tolist()]
    true = labels > 0  # [n, K]
    probabilities = np.asarray(probabilities)
    predicted = probabilities >= np.float32(thresholds)  # [n, K]
    correct = (true & predicted).sum(axis=0)  # [K]
    counts = true.sum(axis=0)  # [K]
    sizes = counts + predicted.sum(axis=0)  # [K]
    occurs = counts > 0
    f1 = 2 * correct[occurs] / sizes[occurs]
    names = np.array(_told_apart(class_names))
    precisions = [
        average_precision_score(true[:, k], probabilities[:, k]) for k in np.flatnonzero(occurs)
    ]
    return {
        "loss": cross_entropy(np.where(true, probabilities, 1 - probabilities)),
        "mean_average_precision": float(np.mean(precisions)),
        "f1_macro": float(np.mean(f1)),
        "f1_micro": float(2 * correct.sum() / max(sizes.sum(), 1)),
        "average_precision": dict(zip(names[occurs].tolist(), precisions)),
        "items": dict(zip(names.tolist(), counts.tolist())),
    }


def class_scores(labels, predicted, names, train_labels):
    """Computes the accuracy and the number of items of each class.

    Args:
        labels, predicted: int [n], the classes of the test items.
        names: the names of the K classes.
        train_labels: int [any], the classes of the training items.

    Returns:
        dict of "test_accuracy"; "balanced_accuracy", the mean over the classes with test items;
        and dicts by class: "class_accuracy", None without test items, "test_counts" and
        "train_counts".
    """
    num_classes = len(names)
    correct = np.bincount(labels[labels == predicted], minlength=num_classes).tolist()
    counts = np.bincount(labels, minlength=num_classes).tolist()
    train_counts = np.bincount(train_labels, minlength=num_classes).tolist()
    accuracies = [share / count if count else None for share, count in zip(correct, counts)]
    known = [accuracy for accuracy in accuracies if accuracy is not None]
    names = _told_apart(names)
    return {
        "test_accuracy": sum(correct) / len(labels),
        "balanced_accuracy": float(np.mean(known)),
        "class_accuracy": dict(zip(names, accuracies)),
        "test_counts": dict(zip(names, counts)),
        "train_counts": dict(zip(names, train_counts)),
    }


def _told_apart(names):
    """Names with their numbers where several are equal: ImageNet has two classes "crane"."""
    occurrences = collections.Counter(names)
    return [f"{name} ({i})" if occurrences[name] > 1 else name for i, name in enumerate(names)]


def cross_entropy(probabilities):
    """The mean of -log p over an array of the probabilities of the labels: float."""
    return float(-np.log(np.maximum(probabilities, _SMALLEST)).mean())


def likelihood_scores(loss, tokens, size):
    """Perplexity and bits per byte, given the mean loss of `tokens` in a text of `size` bytes."""
    bits = loss / math.log(2.0) * tokens
    return {
        "perplexity": math.exp(min(loss, 700.0)),  # the exponential of a larger number overflows
        "bits_per_byte": bits / size,
    }


def epoch_scores(history, restored=False):
    """Returns metrics, and a phrase, that say which epoch was best and which one was tested."""
    best = best_index(history["val_loss"]) + 1
    epochs = len(history["epoch"])
    tested = best if restored else epochs
    words = f"after epoch {tested} of {epochs} (best: {best})"
    return {"best_epoch": best, "tested_epoch": tested}, words
