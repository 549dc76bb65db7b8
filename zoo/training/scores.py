"""Scores of classifiers. Axes: n items, K classes."""

import collections
import math

import numpy as np

from zoo.training.callbacks import best_index

_SMALLEST = 1e-30  # probability that counts in a loss
_NOTABLE = 0.01  # difference of accuracy and balanced accuracy that is printed


def label_scores(labels, probabilities, class_names, threshold=0.5):
    """Computes average precision, by scikit-learn, and F1 of any number of labels per item.

    Args:
        labels: [n, K], 1 for each label of an item.
        probabilities: [n, K].
        class_names: the names of the K classes.
        threshold: least probability of a class that an item is given, or one for each class.

    Returns:
        dict of "mean_average_precision" and "f1_macro", means over the classes that some item has;
        "f1_micro", of all items and classes together; "average_precision" of each of these classes;
        and "items", the number of items that have a class.
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
    """Computes the accuracy of each class, and counts its items.

    Args:
        labels, predicted: int [n], of the test items.
        names: of the classes.
        train_labels: int [any].

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
    """The mean of -log p over the probabilities of what is right, an array: float."""
    return float(-np.log(np.maximum(probabilities, _SMALLEST)).mean())


def likelihood_scores(loss, tokens, size):
    """The perplexity, and the bits per byte of `size` bytes, by the mean loss of `tokens`."""
    bits = loss / math.log(2.0) * tokens
    return {"perplexity": math.exp(min(loss, 700.0)), "bits_per_byte": bits / size}


def accuracy_lines(scores, after):
    """The lines of the summary, {name: text}: also balanced accuracy, if it differs notably."""
    accuracy, balanced = scores["test_accuracy"], scores["balanced_accuracy"]
    lines = {"test accuracy": f"{accuracy:.2%}{after}"}
    if abs(balanced - accuracy) >= _NOTABLE:
        shares = {name: x for name, x in scores["class_accuracy"].items() if x is not None}
        worst = min(shares, key=shares.get)
        lines["balanced accuracy"] = f"{balanced:.2%}, the lowest: {shares[worst]:.2%} of {worst}"
    return lines


def epoch_scores(history, restored=False):
    """(Metrics, words): which epoch was the best, and whether it or the last one was tested."""
    best, epochs = best_index(history["val_loss"]) + 1, len(history["epoch"])
    words = f"best, {best}," if restored else "last" if best == epochs else f"last (best: {best})"
    metrics = {"best_epoch": best, "tested_epoch": best if restored else epochs}
    return metrics, f"after the {words} of {epochs} epochs"
