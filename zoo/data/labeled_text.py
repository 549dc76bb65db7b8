"""Labeled texts: the built-in phrasebook, TSV files and TFDS data sets.

Each function returns a `zoo.data.text_rows.TextDataset` of `LabeledTexts`. If there are no
validation or test texts, about 10 % of the texts of each class are held out for each, at most about
2,000, and a class of one text is trained on. A hash of `seed` and the text decides, so a text that
occurs several times, maybe in another case or with other spaces, is in one part only. Texts whose
label is -1 in TFDS have none.
A function raises `DataError` if the data cannot be read, if there are fewer than two labels, or if
a part or a class has no text.
"""

import collections
import math
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from zoo.data.tables import read_table
from zoo.data.text_rows import TextDataset, clean, divided, unused
from zoo.data.tfds_data import supervised_examples
from zoo.data.token_store import Sequences, TokenExamples
from zoo.errors import DataError
from zoo.text.encoding import encode
from zoo.text.special_tokens import SPECIAL_TOKENS, truncated

_HELD_OUT = 0.1  # share of the texts, for validation and test each
_NO_LABEL = "\0"  # before a column of labels that may be empty


class LabeledTexts(NamedTuple):
    """Texts and their labels.

    Fields:
        texts: list of str.
        labels: int32 [n]; with several labels per text, float32 [n, classes] with 1 for each.
    """

    texts: list[str]
    labels: np.ndarray

    def __len__(self):
        return len(self.labels)


def phrasebook(seed=0):
    """Generates 20,000 English sentences, labeled with the kind of sentence.

    For the kinds see `zoo.data.phrasebook.sentence_kinds`.
    """
    from zoo.data.phrasebook import sentence_kinds

    return _divided("The phrasebook", seed, sentence_kinds(seed=seed))


def tsv(path, seed=0, separator=None):
    """Reads a UTF-8 file, one text per line: label, tab, text; see `zoo.data.tables.read_table`.

    Blank lines, and lines without a label or a text, are skipped. With a `separator`, such as "|",
    the first column contains any number of labels, separated by it; one label is then enough.
    """
    # A row with an empty column is skipped; with a separator, a text may have no label.
    before = _NO_LABEL if separator else ""
    table = read_table(path, "label", "text")
    rows = [(text, before + label) for label, text in table.rows]
    data = _divided(path, seed, rows, separator=separator)
    return data._replace(notes=(*table.notes, *data.notes))


def tfds_texts(name, data_dir=None, seed=0):
    """Loads a data set of TensorFlow Datasets, such as "imdb_reviews" or "ag_news_subset".

    Its supervised keys must be a text and a class label. It needs a "train" split; missing
    "validation" and "test" splits are held out. For `data_dir` see `prepared_builder`.
    """
    import tensorflow_datasets as tfds

    types = (tfds.features.Text, tfds.features.ClassLabel)
    (_, label), parts = supervised_examples(name, data_dir, types, "texts with a class label")
    names = [clean(name) for name in label.names]
    labeled = []
    unlabeled = 0
    for part in parts:
        examples = list(part or ())
        rows = [(text, names[number]) for text, number in examples if number >= 0]
        unlabeled += len(examples) - len(rows)
        labeled.append(rows or None)  # a part without labels is held out
    train, valid, test = labeled
    if train is None:
        raise DataError(f"{name}: none of the training texts has a label: all are -1.")
    data = _divided(name, seed, train, valid, test, class_names=names)
    return data._replace(notes=(*unused(unlabeled, "as their label is -1"), *data.notes))


def _divided(name, seed, rows, valid=None, test=None, class_names=None, separator=None):
    """Builds a `TextDataset` from rows (text, label), see `divided`.

    By default the classes are the labels that occur. For `separator` see `tsv`.
    """

    def labels_of(column):
        if not separator:
            return {column}
        names = column.removeprefix(_NO_LABEL).split(separator)
        return {name.strip() for name in names} - {""}

    rows = list(rows)
    counts = collections.Counter(label for _, column in rows for label in labels_of(column))

    def rarest(column):
        return min(labels_of(column), key=lambda label: (counts[label], label), default="")

    parts = divided(name, _HELD_OUT, seed, rows, valid, test, class_of=rarest)
    divided_rows = (parts.train, parts.valid, parts.test)
    found = [[labels_of(column) for _, column in part] for part in divided_rows]
    if class_names is None:
        class_names = sorted(set().union(*found[0], *found[1], *found[2]))
    if len(class_names) < (1 if separator else 2):
        least = "a label" if separator else "at least two labels"
        raise DataError(f"{name} must have {least}. Received: {class_names}.")
    unseen = {*class_names}.difference(*found[0])
    if unseen:
        raise DataError(
            f"{name}: the class {min(unseen)!r} has no text to train on. Add texts, or remove it."
        )
    if separator:
        labels = [np.float32([np.isin(class_names, [*row]) for row in part]) for part in found]
    else:
        numbers = {label: number for number, label in enumerate(class_names)}
        labels = [np.int32([numbers[label] for [label] in part]) for part in found]
    texts = [[text for text, _ in part] for part in divided_rows]
    train, valid, test = map(LabeledTexts, texts, labels)
    return TextDataset(train, valid, test, parts.notes, class_names, parts.seed)


class EncodedTexts(TokenExamples):
    """Tokenized texts with their labels.

    Args:
        texts: `LabeledTexts`.
        tokenizer: see `zoo.tasks.classifier.TextClassifier`.
        max_length: maximum number of tokens of a text, including control ids; longer texts are
            truncated.
        special: `zoo.decoding.SpecialTokens`.

    Attributes:
        truncated: number of texts that were truncated.
    """

    def __init__(self, texts, tokenizer, max_length, special=SPECIAL_TOKENS):
        rows = encode(tokenizer, texts.texts, math.inf, special.end, [special.start])
        self._pad = special.pad
        self.truncated = sum(len(row) > max_length for row in rows)
        self._labels = texts.labels
        sequences = Sequences.concatenated([truncated(row, max_length) for row in rows])
        super().__init__(sequences, np.diff(sequences.offsets), len(texts))
        self.signature = (
            tf.TensorSpec((None, None), tf.int32),
            tf.TensorSpec((None, *self._labels.shape[1:]), self._labels.dtype),
            tf.TensorSpec((None,), tf.float32),
        )

    def batch(self, numbers, shape):
        """Returns (tokens [B, S], labels [B] or [B, classes], weights [B]); see `TokenExamples`."""
        count = len(numbers)
        labels = np.zeros((shape[0], *self._labels.shape[1:]), self._labels.dtype)
        labels[:count] = self._labels[numbers]
        weights = np.zeros(shape[0], np.float32)
        weights[:count] = 1
        return self.sequences.padded(numbers, shape, self._pad), labels, weights
