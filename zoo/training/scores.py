"""Scores of classifiers and language models. Axes: n items, K classes."""

import collections
import math

import numpy as np
from tqdm import tqdm

from zoo.data.image_batches import evaluation_batches
from zoo.training.callbacks import best_index

_SMALLEST = 1e-30  # lower bound of probabilities in a loss
_IMAGES = 256  # of a batch


def image_probabilities(classifier, images):
    """Computes the probabilities of test images, with a progress bar.

    Args:
        classifier: `zoo.tasks.classifier.ImageClassifier`.
        images: `zoo.data.images.Images`.

    Returns:
        float32 [n, K].
    """
    batches, parts = evaluation_batches(images, 1, _IMAGES), []
    progress = tqdm(batches.whole(), "testing", batches.num_batches, leave=False, disable=None)
    for pixels, *_ in progress:
        parts.append(classifier.outputs(classifier.preprocessing.normalize(pixels).numpy()))
    return np.concatenate(parts)[: len(images)]  # the last batch is filled up


def label_scores(labels, probabilities, class_names, threshold=0.5):
    """Computes average precision and F1 of items with any number of labels.

    Args:
        labels: [n, K], 1 for each label of an item.
        probabilities: [n, K].
        class_names: the names of the K classes.
        threshold: minimum probability of a predicted class, a number or one for each class.

    Returns:
        dict of "mean_average_precision" and "f1_macro", means over the classes that occur in the
        labels; "f1_micro", over all items and classes together; "average_precision" of each class
        that occurs; and "items", the number of items of each class.
    """
    from sklearn.metrics import average_precision_score

    true, probabilities = np.asarray(labels) > 0, np.asarray(probabilities)
    given = probabilities >= np.float32(threshold)
    right, counts, names = (true & given).sum(axis=0), true.sum(axis=0), np.array([*class_names])
    sizes, known = counts + given.sum(axis=0), counts > 0
    columns = zip(true.T[known], probabilities.T[known])
    precisions = [average_precision_score(*column) for column in columns]
    return {
        "mean_average_precision": float(np.mean(precisions)),
        "f1_macro": float(np.mean(2 * right[known] / sizes[known])),
        "f1_micro": float(2 * right.sum() / max(sizes.sum(), 1)),
        "average_precision": dict(zip(names[known].tolist(), precisions)),
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
    right, counts, train_counts = (
        np.bincount(items, minlength=len(names)).tolist()
        for items in (labels[labels == predicted], labels, train_labels)
    )
    shares = [share / count if count else None for share, count in zip(right, counts)]
    seen = collections.Counter(names)  # ImageNet has two classes "crane"
    names = [f"{name} ({i})" if seen[name] > 1 else name for i, name in enumerate(names)]
    return {
        "test_accuracy": sum(right) / len(labels),
        "balanced_accuracy": float(np.mean([share for share in shares if share is not None])),
        "class_accuracy": dict(zip(names, shares)),
        "test_counts": dict(zip(names, counts)),
        "train_counts": dict(zip(names, train_counts)),
    }


def cross_entropy(probabilities):
    """The mean of -log p over an array of the probabilities of the labels: float."""
    return float(-np.log(np.maximum(probabilities, _SMALLEST)).mean())


def likelihood_scores(loss, tokens, size):
    """Perplexity and bits per byte, given the mean loss of `tokens` in a text of `size` bytes."""
    bits = loss / math.log(2.0) * tokens
    return {"perplexity": math.exp(min(loss, 700.0)), "bits_per_byte": bits / size}


def epoch_scores(history, restored=False):
    """Returns metrics, and a phrase, that say which epoch was best and which one was tested."""
    best, epochs = best_index(history["val_loss"]) + 1, len(history["epoch"])
    tested = best if restored else epochs
    words = f"after epoch {tested} of {epochs} (best: {best})"
    return {"best_epoch": best, "tested_epoch": tested}, words
