"""Scores of classifiers. Axes: n items, K classes."""

import numpy as np


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
