"""Labeled data for `zoo.evaluate`: each function reads them for a model."""

import json
import pathlib
from typing import NamedTuple

import numpy as np

from zoo.data.image_folder import TEST, TRAIN, by_name, class_folders, subfolder
from zoo.data.images import StreamedImages, digits
from zoo.data.labeled_text import LabeledTexts
from zoo.data.parallel_text import file_pair, tsv_pairs
from zoo.data.plain_text import read_texts
from zoo.data.text_rows import Rows, read_lines, read_tsv
from zoo.data.tfds_images import tfds_images
from zoo.errors import DataError, needed

_TEST_SET = "sacrebleu:"


class LabeledImages(NamedTuple):
    """Images, and the numbers of the right classes of each: int lists, perhaps empty."""

    images: StreamedImages
    right: list
    notes: tuple[str, ...] = ()


class SentencePairs(NamedTuple):
    """Source sentences, lists of one or several references of them, and how many pairs were left
    out because a side is empty."""

    sources: list[str]
    references: list[list[str]]
    empty: int = 0


def labeled_images(classifier, data, labels=None, data_dir=None, target=None):
    """Finds images: see `zoo.evaluate`. Those in folders have the order of their file names."""
    path = pathlib.Path(data)
    if path.is_dir():
        folder = subfolder(path, TEST) or path
        if folder is path and subfolder(path, TRAIN):
            raise DataError(f"{path} has training images, but no folder test or val to test on.")
        if labels is None:
            images, names, notes = class_folders(folder)
        else:
            images, names, notes = by_name(folder), [], ()
    else:
        is_tfds = data != "digits"
        source = tfds_images(data, data_dir, False) if is_tfds else digits(_seed(classifier))
        images, names, notes = source.test, source.class_names, source.notes
    if labels is None:
        numbers = _class_numbers(data, names, classifier.class_names)
        return LabeledImages(images, [[numbers[label]] for label in images.labels], notes)
    right = read_labels(labels, len(images), len(classifier.class_names))
    return LabeledImages(images, right, notes)


def _seed(classifier):
    """The seed of a model's run, by which the built-in data are divided; 0 without a run."""
    path = classifier.run_folder and pathlib.Path(classifier.run_folder, "config.json")
    return json.loads(path.read_text())["config"]["seed"] if path and path.is_file() else 0


def _class_numbers(data, names, class_names):
    """The number of each class of the data in the model."""
    places = {name: number for number, name in enumerate(class_names)}
    if all(name in places for name in names):
        return [places[name] for name in names]
    if all(name.isdecimal() and int(name) < len(class_names) for name in names):
        return [int(name) for name in names]
    if len(names) == len(class_names) and not any(name in places for name in names):
        return range(len(names))
    unknown = [name for name in names if name not in places]
    raise DataError(
        f"{data} has {len(unknown)} classes that the model does not have, such as {unknown[0]!r}. "
        f"Those of the model begin with: {', '.join(class_names[:5])}."
    )


def read_labels(path, count, num_classes):
    """Reads the right classes of `count` images: a JSON list, or a line of numbers for each image.

    Returns:
        list of lists of int; an empty one for an image that does not count.
    """
    text = "".join(read_lines(path))
    try:
        if text.lstrip().startswith("["):
            found = [np.ravel(row).astype(int).tolist() for row in json.loads(text)]
        else:
            found = [[*map(int, line.split())] for line in text.removesuffix("\n").split("\n")]
    except (ValueError, TypeError) as error:
        raise DataError(f"{path} must have numbers of classes: {error}.") from None
    if len(found) != count:
        raise DataError(f"{path} has labels of {len(found):,} images, the data {count:,} images.")
    for number in (number for row in found for number in row):
        if not 0 <= number < num_classes:
            raise DataError(f"{path} has the class {number}; the model has {num_classes} classes.")
    return found


def labeled_texts(classifier, data, **unused):
    """Reads a TSV file, label, tab, text, into `zoo.data.labeled_text.LabeledTexts`."""
    rows = list(Rows(lambda: read_tsv(data, "label, tab, text")))
    if not rows:
        raise DataError(f"{data} has no texts.")
    names = sorted({label for label, _ in rows})
    numbers = dict(zip(names, _class_numbers(data, names, classifier.class_names)))
    return LabeledTexts([text for _, text in rows], np.array([numbers[x] for x, _ in rows]))


def sentence_pairs(translator, data, target=None, **unused):
    """Reads a TSV file, a pair of files, or a test set that sacrebleu has downloaded before."""
    if data.startswith(_TEST_SET):
        return _test_set(data.removeprefix(_TEST_SET))
    rows = Rows(file_pair(data, target)[0] if target else lambda: tsv_pairs(data))
    pairs = list(rows)
    if not pairs:
        raise DataError(f"{data} has no sentences.")
    sources, references = map(list, zip(*pairs))
    return SentencePairs(sources, [references], rows.empty)


def _test_set(name):
    needed("sacrebleu")
    from sacrebleu.dataset import DATASETS
    from sacrebleu.utils import SACREBLEU_DIR

    name, _, languages = name.rpartition("/")
    known = DATASETS.get(name)
    if known is None or languages not in known.langpairs:
        some = [f"{_TEST_SET}{name}/{pair}" for pair in [*known.langpairs][:3]] if known else []
        raise DataError(
            f"sacrebleu has no test set {name!r} with the languages {languages!r}. "
            + (f"Others are {', '.join(some)}." if some else "`sacrebleu --list` names them.")
        )
    folder = pathlib.Path(SACREBLEU_DIR, name)
    if len([*folder.glob(f"*.{languages}.*")]) < len(known.fieldnames(languages)):
        command = f"sacrebleu --test-set {name} --language-pair {languages} --echo src"
        raise DataError(f"{folder} does not have {languages}. Download it: {command}")
    references = map(list, zip(*known.references(languages)))
    return SentencePairs([*known.source(languages)], [*references])


def plain_text(generator, data, **unused):
    """Reads a text file."""
    return read_texts([data])[0]
