"""Labeled data for `zoo.evaluate`: a function for each kind of model reads them."""

import json
import os
import pathlib
import re
from typing import NamedTuple

import numpy as np

from zoo.data import labeled_text, parallel_text
from zoo.data.class_names import matched_classes
from zoo.data.image_folder import (
    TEST,
    TRAIN,
    by_name,
    class_folders,
    class_parent,
    image_folder,
    subfolder,
)
from zoo.data.image_table import image_table
from zoo.data.images import Images, digits
from zoo.data.parallel_text import file_pair
from zoo.data.tables import read_table
from zoo.data.text_rows import clean, cleaned, read_lines, unused
from zoo.data.tfds_data import tfds_images
from zoo.errors import DataError, needed
from zoo.training.run_folder import checksum_of_lines, fingerprint

_TEST_SET = "sacrebleu:"
_CHANGED_IMAGES = "The model may have been trained on some of these images: {} has changed."


class Labeled(NamedTuple):
    """Labeled data, for any model of a kind.

    Fields:
        items: images or texts.
        labels: for each item the list of its class numbers, which may be empty; or the lists of
            references of a translation.
        class_names: None if the class numbers are those of the model.
        notes: lines about what is not used.
        seed: the seed by which the items were held out of training data, if they were.
        path: the file or folder with these items; None if they are what a run held out.
    """

    items: Images | list[str]
    labels: list
    class_names: list[str] | None = None
    notes: tuple[str, ...] = ()
    seed: int | None = None
    path: str | None = None


def is_of_training(path, settings):
    """Whether a run with these settings was trained on a file or folder, or on one that has it."""
    folder = settings.get("data_dir")
    if folder is not None:
        folder = class_parent(folder) or folder
    names = ("tsv", "source", "monolingual")
    paths = [folder, *map(settings.get, names), *settings.get("text", ())]
    path = pathlib.Path(os.path.realpath(path))
    return any(path.is_relative_to(os.path.realpath(one)) for one in paths if one)


def model_labels(data, class_names):
    """Matches classes of the data with those of a model.

    Args:
        data: `Labeled`, whose classes are matched as `matched_classes` does.
        class_names: names of the classes of the model.

    Returns:
        (the labels of the data as class numbers of the model, lines about how they were matched).

    Raises:
        DataError: if the model does not have a class of the data, or several of its name.
    """
    if data.class_names is None:
        highest = max((max(row, default=0) for row in data.labels), default=0)
        if highest >= len(class_names):
            raise DataError(
                f"The data have the class {highest}. The model has {len(class_names)} classes."
            )
        return data.labels, ()
    advice = "Each line must be: label, tab, text." if isinstance(data.items, list) else ""
    numbers, notes = matched_classes(data.class_names, class_names, advice)
    if any(number >= len(data.class_names) for row in data.labels for number in row):
        raise DataError(f"The data have labels that are not among {len(data.class_names)} classes.")
    labels = []
    for row in data.labels:
        labels.append([numbers[number] for number in row])
    return labels, notes


def labeled_images(data, labels=None, data_dir=None, settings=None, problem="single_label"):
    """Finds images. Images in folders are in the order of their file names.

    Args:
        data, labels, data_dir: see `zoo.evaluate`.
        settings: of the run of the model, or None. Of data without test images, such as the
            built-in digits, the images are those that this run held out, or a run with seed 0.
        problem: of the model, see `zoo.data.image_table.image_table`.

    Returns:
        `Labeled`.
    """
    path = pathlib.Path(data)
    settings = settings or {}
    seed = settings.get("seed", 0)
    if path.is_dir() and labels is not None and _is_table(labels):
        return _table_of_images(data, labels, settings, problem)
    if path.is_dir():
        folder = subfolder(path, TEST)
        if folder is None and labels is None and _is_same(settings.get("data_dir"), data):
            return _held_out_images(data, settings, seed)
        if folder is None and subfolder(path, TRAIN):
            raise DataError(f"{path} has training images, but no folder test or val to test on.")
        if folder is None:
            folder = path
        if labels is not None:
            images, notes = by_name(folder)
            rows = read_labels(labels, len(images))
            return Labeled(images, rows, notes=notes, path=folder)
        images, class_names, notes = class_folders(folder)
        return _with_labels(images, class_names, notes)._replace(path=folder)
    if data == "digits":
        source = digits(seed)
    else:
        # A run on a data set without labels to test on has held a part of its images out.
        is_of_run = settings.get("dataset") == data
        source = tfds_images(data, data_dir, seed, to_train=is_of_run)
    if labels is not None:
        rows = read_labels(labels, len(source.test))
        return Labeled(source.test, rows, notes=source.notes, seed=source.seed)
    return _with_labels(source.test, source.class_names, source.notes, source.seed)


def _held_out_images(data, settings, seed):
    """The test images of a run that was trained on other images of the same folder."""
    source = image_folder(data, seed)
    notes = source.notes
    train = source.held_out(settings.get("validation_split"), seed).train
    is_same = settings.get("data", "").startswith(f"{len(train):,} images")
    if not (is_same or settings.get("train_examples")):
        notes += (_CHANGED_IMAGES.format(data),)
    return _with_labels(source.test, source.class_names, notes, seed)


def _is_table(path):
    """Whether a file of labels has other content than numbers, after a header or in a JSON list."""
    text = "".join(read_lines(path))
    return not re.fullmatch(r"[^\n]*\n[-\d\s]*\d\s*|[-\d\s.,\[\]]*", text)


def _table_of_images(folder, path, settings, problem):
    """The images of a table; of that of a run, those that it held out."""
    seed = None
    if settings.get("checksum of labels") == checksum_of_lines(path):
        seed = settings["seed"]
    source = image_table(folder, path, problem, seed)
    notes = source.notes
    if seed is None and _is_same(settings.get("labels"), path):
        notes += (_CHANGED_IMAGES.format(path),)
    return _with_labels(source.test, source.class_names, notes, seed)


def _with_labels(images, class_names, notes, seed=None):
    if images.labels.ndim == 2:
        rows = [np.flatnonzero(row).tolist() for row in images.labels]
    else:
        rows = [[label] if label >= 0 else [] for label in images.labels.tolist()]  # -1: no label
    return Labeled(images, rows, class_names, notes, seed)


def _is_same(trained_on, path):
    """Whether a path is that of a setting of a run, which may be None."""
    return trained_on is not None and os.path.realpath(trained_on) == os.path.realpath(path)


def read_labels(path, count):
    """Reads the class numbers of images.

    Args:
        path: file with a JSON list, or with a line of numbers for each image, after a header or
            without one.
        count: number of images.

    Returns:
        A list of lists of int, empty for an image that does not count.

    Raises:
        DataError: if the file cannot be read, or has labels of more or fewer images.
    """
    text = "".join(read_lines(path))
    try:
        if text.lstrip().startswith("["):
            rows = json.loads(text)
        else:
            lines = text.removesuffix("\n").split("\n")
            if len(lines) == count + 1 and re.search(r"[^\W\d]", lines[0]):
                lines = lines[1:]  # without the header
            rows = [line.split() for line in lines]
        labels = [[_class_number(value) for value in np.ravel(row).tolist()] for row in rows]
    except (OverflowError, RecursionError, TypeError, ValueError) as error:
        raise DataError(f"The labels in {path} must be class numbers: {error}.") from None
    if len(labels) != count:
        raise DataError(f"{path} has labels of {len(labels):,} images, the data {count:,} images.")
    return labels


def _class_number(value):
    number = int(value)
    if isinstance(value, bool) or number != float(value) or number < 0:
        raise ValueError(f"{value!r} is not one")
    return number


def labeled_texts(data, settings=None):
    """Reads a TSV or CSV file of labels and texts; of that of a run, the texts that it held out.

    `settings` are those of the run of the model, or None.
    """
    settings = settings or {}
    if _is_same(settings.get("tsv"), data):
        return _held_out_texts(data, settings)
    table = read_table(data, "label", "text")
    rows, empty = cleaned(table.rows)
    if not rows:
        raise DataError(f"{data} has no texts.")
    labels, texts = zip(*rows)
    names, numbers = np.unique(labels, return_inverse=True)
    notes = (*table.notes, *unused(empty))
    return Labeled(list(texts), numbers[:, None].tolist(), names.tolist(), notes, path=data)


def _held_out_texts(data, settings):
    """The test texts of a run that was trained on other texts of the same file."""
    seed = settings["seed"]
    try:
        divided = labeled_text.tsv(data, seed)
    except DataError:  # too few texts to divide
        return _changed(labeled_texts(data), data)
    test = divided.test
    train = divided.train
    checksum = fingerprint(train.texts, train.labels.tolist(), divided.class_names)
    if not settings.get("data", "").endswith(f"checksum {checksum}"):
        return _changed(labeled_texts(data), data)
    note = f"Tested on {len(test):,} texts of {data} that the run held out."
    return Labeled(test.texts, test.labels[:, None].tolist(), divided.class_names, (note,), seed)


def _changed(whole, path):
    """Adds a note to all items of a file which has changed since the run was trained."""
    note = f"The model may have been trained on these texts: {path} has changed, or was divided"
    return whole._replace(notes=(*whole.notes, f"{note} by another version."), path=None)


def sentence_pairs(data, targets=(), settings=None):
    """Reads a table, files of sentences, or a test set that sacrebleu has downloaded before.

    Args:
        data: path of the table or of the sources, or "sacrebleu:" and the name of a test set.
        targets: paths of the references of the sources, of which some may be empty.
        settings: of the run of the model, or None. Of the table that it was trained on, the pairs
            are those that it held out.
    """
    if data.startswith(_TEST_SET):
        if targets:
            raise DataError(f"{data} has its own references. Remove target.")
        return _test_set(data.removeprefix(_TEST_SET))
    if not targets and _is_same((settings or {}).get("tsv"), data):
        return _held_out_pairs(data, settings)
    notes = ()
    if targets:
        columns = [file_pair(data, target) for target in targets]
    else:
        pairs, notes = read_table(data, "source", "target")
        columns = [pairs]
    rows = []
    for pairs in zip(*columns):
        source, _ = pairs[0]
        rows.append((clean(source), [clean(reference) for _, reference in pairs]))
    kept = [(source, references) for source, references in rows if source and any(references)]
    if not kept:
        raise DataError(f"{data} has no texts.")
    sources, references = zip(*kept)
    references = [list(texts) for texts in zip(*references)]
    notes = (*notes, *unused(len(rows) - len(kept)))
    return Labeled(list(sources), references, notes=notes, path=data)


def _held_out_pairs(data, settings):
    """The test pairs of a run that was trained on other pairs of the same table."""
    seed = settings["seed"]
    try:
        divided = parallel_text.tsv(data, seed)
    except DataError:  # too few pairs to divide
        return _changed(sentence_pairs(data), data)
    if not settings.get("data", "").endswith(f"test pairs {fingerprint(divided.test)}"):
        return _changed(sentence_pairs(data), data)
    sources, references = zip(*divided.test)
    note = f"Tested on {len(sources):,} pairs of {data} that the run held out."
    notes = (*divided.notes, note)
    return Labeled(list(sources), [list(references)], notes=notes, seed=seed)


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
    references = [[*map(clean, texts)] for texts in zip(*known.references(languages))]
    return Labeled([*known.source(languages)], references)
