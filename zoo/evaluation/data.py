"""Labeled data for `zoo.evaluate`: a function for each kind of model reads them."""

import json
import pathlib
import re
from typing import NamedTuple

import numpy as np

from zoo.data.image_folder import TEST, TRAIN, by_name, class_folders, subfolder
from zoo.data.images import Images, digits
from zoo.data.parallel_text import file_pair
from zoo.data.tables import read_table
from zoo.data.text_rows import clean, cleaned, read_lines, unused
from zoo.data.tfds_data import tfds_images
from zoo.errors import DataError, needed

_TEST_SET = "sacrebleu:"


class Labeled(NamedTuple):
    """Labeled data, for any model of a kind.

    Fields:
        items: images or texts.
        labels: for each item the list of its class numbers, which may be empty; or the lists of
            references of a translation.
        class_names: None if the class numbers are those of the model.
        notes: lines about what is not used.
    """

    items: Images | list[str]
    labels: list
    class_names: list[str] | None = None
    notes: tuple[str, ...] = ()


def model_labels(data, class_names):
    """Matches classes of the data with those of a model.

    Classes are matched by name, by name in any case, by number, or by their order.

    Args:
        data: `Labeled`.
        class_names: names of the classes of the model.

    Returns:
        (the labels of the data as class numbers of the model, lines about how they were matched).

    Raises:
        DataError: if the model does not have a class of the data.
    """
    if data.class_names is None:
        highest = max((max(row, default=0) for row in data.labels), default=0)
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
    labels = []
    for row in data.labels:
        labels.append([numbers[number] for number in row])
    return labels, notes


def _matched(names, class_names):
    """The number of each class of the data in the model, or None; and lines about the match."""
    numbers = {name: number for number, name in enumerate(class_names)}
    if all(name in numbers for name in names):
        return [numbers[name] for name in names], ()
    numbers = {name.casefold(): number for number, name in enumerate(class_names)}
    folded = [name.casefold() for name in names]
    if len(numbers) == len(class_names) and all(name in numbers for name in folded):
        return [numbers[name] for name in folded], ()
    if all(name.isdecimal() and int(name) < len(class_names) for name in names):
        return [int(name) for name in names], ()
    if len(names) == len(class_names) and numbers.keys().isdisjoint(folded):
        pairs = list(zip(names, class_names))[:3]
        examples = ", ".join(f"{name} is {class_name}" for name, class_name in pairs)
        note = f"Classes are matched by their order: {examples}. Check this."
        return range(len(names)), (note,)
    return None, ()


def labeled_images(data, labels=None, data_dir=None, run_folder=None):
    """Finds images. Images in folders are in the order of their file names.

    Args:
        data, labels, data_dir: see `zoo.evaluate`.
        run_folder: the folder of a run, or None. The built-in digits are divided by its seed, or
            by 0.

    Returns:
        `Labeled`.
    """
    path = pathlib.Path(data)
    if path.is_dir():
        folder = subfolder(path, TEST)
        if folder is None and subfolder(path, TRAIN):
            raise DataError(f"{path} has training images, but no folder test or val to test on.")
        if folder is None:
            folder = path
        if labels is not None:
            images, notes = by_name(folder)
            return Labeled(images, read_labels(labels, len(images)), notes=notes)
        images, class_names, notes = class_folders(folder)
    else:
        if data == "digits":
            source = digits(_seed(run_folder))
        else:
            source = tfds_images(data, data_dir, _seed(run_folder), to_train=False)
        images = source.test
        class_names = source.class_names
        notes = source.notes
        if labels is not None:
            return Labeled(images, read_labels(labels, len(images)), notes=notes)
    rows = [[label] if label >= 0 else [] for label in images.labels.tolist()]  # -1: no label
    return Labeled(images, rows, class_names, notes)


def _seed(run_folder):
    if run_folder is None:
        return 0
    path = pathlib.Path(run_folder, "config.json")
    return json.loads(path.read_text())["config"]["seed"] if path.is_file() else 0


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
        labels = [np.ravel(row).astype(int).tolist() for row in rows]
        if any(number < 0 for row in labels for number in row):
            raise ValueError("one is negative")
    except (OverflowError, TypeError, ValueError) as error:
        raise DataError(f"The labels in {path} must be class numbers: {error}.") from None
    if len(labels) != count:
        raise DataError(f"{path} has labels of {len(labels):,} images, the data {count:,} images.")
    return labels


def labeled_texts(data):
    """Reads a TSV or CSV file of labels and texts."""
    table = read_table(data, "label", "text")
    rows, empty = cleaned(table.rows)
    if not rows:
        raise DataError(f"{data} has no texts.")
    labels, texts = zip(*rows)
    names, numbers = np.unique(labels, return_inverse=True)
    notes = (*table.notes, *unused(empty))
    return Labeled(list(texts), numbers[:, None].tolist(), names.tolist(), notes)


def sentence_pairs(data, targets=()):
    """Reads a table, files of sentences, or a test set that sacrebleu has downloaded before.

    Args:
        data: path of the table or of the sources, or "sacrebleu:" and the name of a test set.
        targets: paths of the references of the sources, of which some may be empty.
    """
    if data.startswith(_TEST_SET):
        if targets:
            raise DataError(f"{data} has its own references. Remove target.")
        return _test_set(data.removeprefix(_TEST_SET))
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
    return Labeled(list(sources), references, notes=notes)


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
