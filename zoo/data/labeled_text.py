"""Labeled texts: the built-in phrasebook, TSV files and TFDS data sets."""

import math
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from zoo.data.text_rows import divided, empty_notes, read_tsv
from zoo.data.tfds_download import supervised_examples
from zoo.data.token_store import Sequences, by_length
from zoo.errors import DataError
from zoo.text.special_tokens import SPECIAL_TOKENS, truncated
from zoo.text.translation_text import encode

_HELD_OUT = 0.1  # share of the texts, for validation and test each


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


class TextDataset(NamedTuple):
    """Training, validation and test texts.

    Fields:
        train, valid, test: `LabeledTexts`.
        class_names: the name of each label.
        notes: lines about rows that are not used.
    """

    train: LabeledTexts
    valid: LabeledTexts
    test: LabeledTexts
    class_names: list[str]
    notes: tuple[str, ...] = ()


def phrasebook(seed=0):
    """Generates 20,000 English sentences, labeled with the kind of sentence.

    The kinds are those of `zoo.data.phrasebook.sentence_kinds`. Validation and test sentences are
    held out as described in `tsv`.
    """
    from zoo.data.phrasebook import sentence_kinds

    return _divided(sentence_kinds(seed=seed), seed, "The phrasebook")


def tsv(path, seed=0, separator=None):
    """Reads a UTF-8 file without a header, one text per line: label, tab, text.

    Blank lines, and lines without a label or a text, are skipped. With a `separator`, such as "|",
    the first column contains any number of labels, separated by it.

    Validation and test get about 10 % of the texts each, at most about 2,000. The split is decided
    by a hash of `seed` and the case-folded text, so a text that occurs several times is in one
    split only.

    Raises:
        DataError: if the file cannot be read or is not UTF-8, if a line has no tab, if there are
            fewer than two labels (with a separator, none), or if a split has no text.
    """
    rows = [(text, label) for label, text in read_tsv(path, "label, tab, text")]
    if separator:  # rows with an empty side are skipped, but those without labels are kept
        rows = [(text, f"\0{labels}") for text, labels in rows]
    return _divided(rows, seed, path, separator=separator)


def tfds_texts(name, data_dir=None, seed=0):
    """Loads a text classification data set of TensorFlow Datasets into memory.

    Args:
        name: TFDS name, such as "imdb_reviews" or "ag_news_subset". Its supervised keys must be a
            text and a class label. The data set needs a "train" split; if it has no "validation"
            or "test" split, that is held out from the training texts as described in `tsv`.
        data_dir: folder of prepared TFDS data; nothing is written there. By default TFDS's own
            folder, to which missing data are downloaded.
        seed: seed of the held-out splits.

    Raises:
        DataError: if the data set is unknown, unavailable, or has no labeled texts.
    """
    import tensorflow_datasets as tfds

    types, description = (tfds.features.Text, tfds.features.ClassLabel), "texts with a class label"
    features, parts = supervised_examples(name, data_dir, "--tsv FILE", types, description)
    names = list(features[1].names)
    parts = [part and [(text, names[number]) for text, number in part] for part in parts]
    return _divided(parts[0], seed, name, *parts[1:], names)


def _divided(rows, seed, name, valid=None, test=None, class_names=None, separator=None):
    """Builds a `TextDataset` from rows (text, label), see `divided`.

    By default the classes are the labels that occur. For `separator` see `tsv`.
    """

    def named(label):
        names = label.strip("\0").split(separator) if separator else [label]
        return [name.strip() for name in names if name.strip()]

    *parts, empty, _ = divided(rows, _HELD_OUT, seed, name, valid, test)
    found = [[named(label) for _, label in part] for part in parts]
    class_names = class_names or sorted({label for part in found for one in part for label in one})
    if len(class_names) < (1 if separator else 2):
        least = "a label" if separator else "at least two labels"
        raise DataError(f"{name} must have {least}. Received: {class_names}.")
    unseen = {*class_names} - {label for one in found[0] for label in one}
    if unseen:
        raise DataError(
            f"{name}: the class {min(unseen)!r} has no text to train on. Add texts, or remove it."
        )
    numbers = {label: number for number, label in enumerate(class_names)}
    texts = [[text for text, _ in part] for part in parts]
    if separator:
        labels = [np.float32([np.isin(class_names, one) for one in part]) for part in found]
    else:
        labels = [np.array([numbers[label] for [label] in part], np.int32) for part in found]
    return TextDataset(*map(LabeledTexts, texts, labels), class_names, empty_notes(empty))


class EncodedTexts:
    """Tokenized texts with their labels, for `zoo.data.token_batches`.

    Args:
        texts: `LabeledTexts`.
        tokenizer: see `zoo.tasks.classifier.TextClassifier`.
        max_length: maximum number of tokens of a text, including control ids; longer texts are
            truncated.

    Attributes:
        longest_first: uint32 [n], the texts by descending length.
        length_counts: int64 [longest + 1], number of texts of each length, including control ids.
        num_tokens: number of labels, n.
        truncated: number of texts that were truncated.
        signature: `tf.TensorSpec` of the outputs of `batch`.
    """

    def __init__(self, texts, tokenizer, max_length):
        special = SPECIAL_TOKENS
        rows = encode(tokenizer, texts.texts, math.inf, special.end, special.start)
        self.truncated = sum(len(row) > max_length for row in rows)
        self._tokens = Sequences.concatenated([truncated(row, max_length) for row in rows])
        self._labels = texts.labels
        self.signature = (
            tf.TensorSpec((None, None), tf.int32),
            tf.TensorSpec((None, *self._labels.shape[1:]), self._labels.dtype),
            tf.TensorSpec((None,), tf.float32),
        )
        self.longest_first, self.length_counts = by_length(np.diff(self._tokens.offsets))
        self.num_tokens = len(self)

    def __len__(self):
        return len(self._labels)

    def batch(self, texts, shape):
        """Builds a batch of the `shape` (B, T) of up to B texts, given by their indices.

        Returns (tokens int32 [B, T], labels [B] or [B, classes], weights float32 [B], 1 for each
        text); the other rows are padding.
        """
        labels = np.zeros((shape[0], *self._labels.shape[1:]), self._labels.dtype)
        weights = np.zeros(shape[0], np.float32)
        labels[: len(texts)], weights[: len(texts)] = self._labels[texts], 1
        return self._tokens.padded(texts, shape), labels, weights
