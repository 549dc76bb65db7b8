"""Labeled data for `zoo.evaluate`: a function for each kind of model reads them."""

import json
import pathlib
from typing import NamedTuple

import numpy as np

from zoo.data.image_folder import TEST, TRAIN, by_name, class_folders, subfolder
from zoo.data.images import Images, digits
from zoo.data.parallel_text import file_pair, tsv_pairs
from zoo.data.text_rows import cleaned, read_lines, read_tsv, unused
from zoo.data.tfds_data import tfds_images
from zoo.errors import DataError, needed

_TEST_SET = "sacrebleu:"


class Labeled(NamedTuple):
    """Labeled data, for any model of a kind."""

    items: Images | list[str]
    # for each item the list of its class numbers, which may be empty; or lists of references
    labels: list
    class_names: list[str] | None = None  # None if the numbers are those of the model
    notes: tuple[str, ...] = ()  # lines about what is not used


def model_labels(data, class_names):
    """The labels of `Labeled` data as numbers of a model's classes, and lines about how they match.

    Classes are matched by name, by name in any case, by number, or by their order. Raises
    `DataError` if the model does not have one of them.
    """
    if data.class_names is None:
        highest = max((number for row in data.labels for number in row), default=0)
        if highest >= len(class_names):
            raise DataError(
                f"The data have the class {highest}. The model has {len(class_names)} classes."
            )
        return data.labels, ()
    numbers, notes = _matched(data.class_names, class_names)
    if numbers is None:
        unknown = [name for name in data.class_names if name not in class_names]
        columns = " Each line must be: label, tab, text." if isinstance(data.items, list) else ""
        raise DataError(
            f"The data have {len(unknown)} classes that the model does not have, such as "
            f"{unknown[0][:60]!r}. Those of the model begin with: {', '.join(class_names[:5])}."
            f"{columns}"
        )
    return [[numbers[number] for number in row] for row in data.labels], notes


def _matched(names, class_names):
    """The number of each class of the data in the model, or None; and lines about the match."""
    for form in (str, str.casefold):
        numbers = {form(name): number for number, name in enumerate(class_names)}
        is_clear = form is str or len(numbers) == len(class_names)
        if is_clear and all(form(name) in numbers for name in names):
            return [numbers[form(name)] for name in names], ()
    if all(name.isdecimal() and int(name) < len(class_names) for name in names):
        return [int(name) for name in names], ()
    if len(names) == len(class_names) and numbers.keys().isdisjoint(map(str.casefold, names)):
        first = ", ".join(map("{} is {}".format, names[:3], class_names))
        return range(len(names)), (f"Classes are matched by their order: {first}. Check this.",)
    return None, ()


def labeled_images(data, labels=None, data_dir=None, run_folder=None):
    """Finds images; see `zoo.evaluate`. Those in folders are in the order of their file names.

    The built-in digits are divided by the seed of the run in `run_folder`, or by 0.
    """
    path, names = pathlib.Path(data), None
    if not path.is_dir():
        is_digits = data == "digits"
        source = digits(_seed(run_folder)) if is_digits else tfds_images(data, data_dir, False)
        images, names, notes = source.test, source.class_names, source.notes
    else:
        folder = subfolder(path, TEST) or path
        if folder is path and subfolder(path, TRAIN):
            raise DataError(f"{path} has training images, but no folder test or val to test on.")
        if labels is None:
            images, names, notes = class_folders(folder)
        else:
            images, notes = by_name(folder)
    if labels is None:
        return Labeled(images, [[label] for label in images.labels], names, notes)
    return Labeled(images, read_labels(labels, len(images)), None, notes)


def _seed(run_folder):
    path = run_folder and pathlib.Path(run_folder, "config.json")
    return json.loads(path.read_text())["config"]["seed"] if path and path.is_file() else 0


def read_labels(path, count):
    """Reads the class numbers of `count` images: a JSON list, or a line of numbers for each image.

    Returns a list of lists of int, empty for an image that does not count. Raises `DataError` if
    the file cannot be read, or has labels of more or fewer images.
    """
    text = "".join(read_lines(path))
    try:
        is_json = text.lstrip().startswith("[")
        lines = text.removesuffix("\n").split("\n")
        rows = json.loads(text) if is_json else [line.split() for line in lines]
        labels = [np.ravel(row).astype(int).tolist() for row in rows]
        if any(number < 0 for row in labels for number in row):
            raise ValueError("one is negative")
    except (OverflowError, TypeError, ValueError) as error:
        raise DataError(f"The labels in {path} must be class numbers: {error}.") from None
    if len(labels) != count:
        raise DataError(f"{path} has labels of {len(labels):,} images, the data {count:,} images.")
    return labels


def labeled_texts(data):
    """Reads a TSV file: label, tab, text."""
    labels, texts, notes = _columns(read_tsv(data, "label, tab, text"), data)
    names, numbers = np.unique(labels, return_inverse=True)
    return Labeled(texts, numbers[:, None].tolist(), names.tolist(), notes)


def _columns(rows, data):
    """Both columns of rows, as lists, and notes."""
    rows, empty = cleaned(rows)
    if not rows:
        raise DataError(f"{data} has no texts.")
    return *map(list, zip(*rows)), unused(empty)


def sentence_pairs(data, target=None):
    """Reads a TSV file, a pair of files, or a test set that sacrebleu has downloaded before."""
    if data.startswith(_TEST_SET):
        return _test_set(data.removeprefix(_TEST_SET))
    rows = file_pair(data, target) if target else tsv_pairs(data)
    sources, references, notes = _columns(rows, data)
    return Labeled(sources, [references], notes=notes)


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
