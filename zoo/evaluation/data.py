"""Labeled data for `zoo.evaluate`: each function reads them for a model."""

import json
import pathlib
from typing import NamedTuple

import numpy as np

from zoo.data.image_folder import TEST, TRAIN, by_name, class_folders, subfolder
from zoo.data.images import StreamedImages, digits
from zoo.data.parallel_text import file_pair, tsv_pairs
from zoo.data.plain_text import read_texts
from zoo.data.text_rows import Rows, empty_notes, read_lines, read_tsv
from zoo.data.tfds_images import tfds_images
from zoo.errors import DataError, needed

_TEST_SET = "sacrebleu:"


class Labeled(NamedTuple):
    """Items with what is right.

    Fields:
        items: images, texts or sentences.
        right: of each image or text a list of the numbers of its classes, perhaps empty; of
            sentences one or several lists of references of all.
        notes: lines about what is not used.
    """

    items: StreamedImages | list[str]
    right: list
    notes: tuple[str, ...] = ()


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
            (images, notes), names = by_name(folder), []
    else:
        is_tfds = data != "digits"
        source = tfds_images(data, data_dir, False) if is_tfds else digits(_seed(classifier))
        images, names, notes = source.test, source.class_names, source.notes
    if labels is None:
        numbers, about = _class_numbers(data, names, classifier.class_names)
        return Labeled(images, [[numbers[label]] for label in images.labels], (*notes, *about))
    right = read_labels(labels, len(images), len(classifier.class_names))
    return Labeled(images, right, notes)


def _seed(classifier):
    """The seed of a model's run, by which the built-in data are divided; 0 without a run."""
    path = classifier.run_folder and pathlib.Path(classifier.run_folder, "config.json")
    return json.loads(path.read_text())["config"]["seed"] if path and path.is_file() else 0


def _class_numbers(data, names, class_names):
    """The number of each class of the data in the model, and lines about that."""
    for same in (str, str.casefold):
        places = {same(name): number for number, name in enumerate(class_names)}
        is_clear = same is str or len(places) == len(class_names)
        if is_clear and all(same(name) in places for name in names):
            return [places[same(name)] for name in names], ()
    if all(name.isdecimal() and int(name) < len(class_names) for name in names):
        return [int(name) for name in names], ()
    if len(names) == len(class_names) and places.keys().isdisjoint(map(str.casefold, names)):
        some = ", ".join(map("{} is {}".format, names[:3], class_names))
        return range(len(names)), (f"The classes, by their order: {some}. Check that.",)
    unknown = [name for name in names if name not in class_names]
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
    """Reads a TSV file: label, tab, text."""
    rows = Rows(lambda: read_tsv(data, "label, tab, text"))
    labels, texts = _columns(rows, data, "texts")
    names = sorted({*labels})
    numbers, about = _class_numbers(data, names, classifier.class_names)
    numbers = dict(zip(names, numbers))
    return Labeled(texts, [[numbers[label]] for label in labels], (*empty_notes(rows), *about))


def _columns(rows, data, what):
    """Both columns of rows, as lists."""
    found = list(rows)
    if not found:
        raise DataError(f"{data} has no {what}.")
    return map(list, zip(*found))


def sentence_pairs(translator, data, target=None, **unused):
    """Reads a TSV file, a pair of files, or a test set that sacrebleu has downloaded before."""
    if data.startswith(_TEST_SET):
        return _test_set(data.removeprefix(_TEST_SET))
    rows = Rows(file_pair(data, target)[0] if target else lambda: tsv_pairs(data))
    sources, references = _columns(rows, data, "sentences")
    return Labeled(sources, [references], empty_notes(rows))


def _test_set(name):
    needed("sacrebleu")
    from sacrebleu.dataset import DATASETS
    from sacrebleu.utils import SACREBLEU_DIR

    name, _, languages = name.rpartition("/")
    known = DATASETS.get(name)
    if known is None or languages not in known.langpairs:
        raise DataError(
            f"sacrebleu has no test set {name!r} with the languages {languages!r}. "
            "`sacrebleu --list` names test sets, with `--test-set NAME` their languages."
        )
    folder = pathlib.Path(SACREBLEU_DIR, name)
    if len([*folder.glob(f"*.{languages}.*")]) < len(known.fieldnames(languages)):
        command = f"sacrebleu --test-set {name} --language-pair {languages} --echo src"
        raise DataError(f"{folder} does not have {languages}. Download it: {command}")
    references = map(list, zip(*known.references(languages)))
    return Labeled([*known.source(languages)], [*references])


def plain_text(generator, data, **unused):
    """Reads a text file."""
    return read_texts([data])[0]
