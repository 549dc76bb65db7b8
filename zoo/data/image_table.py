"""Reads the labels of images from a table: a CSV or TSV file with a line for each image.

The first column is the path of an image relative to a folder, the second one its label. With the
problem "multi_label", an image has any number of labels, separated by "|" or in further columns.
"""

import os
import re
import unicodedata

import numpy as np

from zoo.data.image_folder import SUFFIXES, images_of_files, unused
from zoo.data.images import ImageDataset, hold_out
from zoo.data.tables import csv_rows
from zoo.data.text_rows import clean, read_lines
from zoo.errors import DataError

_SEPARATOR = "|"  # of labels in a column
_TRUTH_VALUES = ({"0", "1"}, {"0.0", "1.0"}, {"-1", "1"}, {"false", "true"})


def image_table(folder, path, problem="single_label", seed=0):
    """Finds the images of a table; some are held out, see `zoo.data.images.hold_out`.

    Args:
        folder: the folder of the images.
        path: path of the table.
        problem: "single_label" or "multi_label".
        seed: seed for the choice of held-out images; if None, all are for training and testing.

    Returns:
        `zoo.data.images.ImageDataset`.

    Raises:
        DataError: if the table cannot be read, has columns that are not known, too few labels, or
            an image that is missing, occurs twice or has no label.
    """
    folder = os.path.normpath(folder)
    found, notes = _labels_by_file(folder, path, problem)
    class_names = sorted(set().union(*found.values()))
    fewest = 2 if problem == "single_label" and seed is not None else 1
    if len(class_names) < fewest:
        raise DataError(f"{path} must have at least {fewest} labels. Received: {class_names}.")
    if problem == "multi_label" and {name.lower() for name in class_names} in _TRUTH_VALUES:
        raise DataError(f"{path} must have the names of labels. Received: {class_names}.")
    if problem == "multi_label" and len(class_names) > 1 and max(map(len, found.values())) == 1:
        notes += (f'No image of {path} has several labels, which are separated by "{_SEPARATOR}".',)
    if problem == "single_label":
        labels = np.searchsorted(class_names, [name for [name] in found.values()]).astype(np.int32)
    else:
        labels = np.float32([np.isin(class_names, [*names]) for names in found.values()])
    train = test = images_of_files([*found], labels)
    notes += unused(folder, found)
    if seed is not None:
        train, test, others = hold_out(train, class_names, seed)
        notes = (f"Tested on {len(test):,} images of {path}, held out.", *others, *notes)
    return ImageDataset(train, test, class_names, (None, None, 3), notes, seed=seed)


def _labels_by_file(folder, path, problem):
    """Returns {path of an image: its labels, a set}, and lines about the header."""
    lines = list(read_lines(path))
    first = re.search(r"[\t,;]", "".join(lines))
    delimiter = first[0] if first else ","
    found = {}
    numbers = {}  # of lines
    notes = ()
    for number, row in csv_rows(path, lines, delimiter, skipinitialspace=True):
        if not "".join(row).strip():
            continue
        name, *cells = map(str.strip, row)
        where = f"{path}, line {number:,}"
        file = _existing(folder, name)
        if file is None:
            if found or notes or name.lower().endswith(SUFFIXES):
                file = os.path.join(folder, name)
                raise DataError(f"{where}: there is no image {file}. Paths start in {folder}.")
            _check_header(where, cells)
            notes = (f"Line {number} of {path} is a header: {', '.join((name, *cells))}.",)
            continue
        if file in found:
            raise DataError(f"{where}: the image {name} is also in line {numbers[file]:,}.")
        labels = {clean(label) for cell in cells for label in cell.split(_SEPARATOR)} - {""}
        if problem == "single_label" and len(labels) != 1:
            raise DataError(
                f"{where}: {name} has {len(labels)} labels instead of one. Correct the line, or "
                'use the problem "multi_label".'
            )
        found[file] = labels
        numbers[file] = number
    return found, notes


def _existing(folder, name):
    """The path of a file, or None. In its name, Windows has backslashes, and macOS NFD."""
    slashes = name.replace("\\", "/")
    composed = unicodedata.normalize("NFC", slashes)
    decomposed = unicodedata.normalize("NFD", slashes)
    for spelling in (name, composed, decomposed):
        file = os.path.normpath(os.path.join(folder, spelling))
        if os.path.isfile(file):
            return file
    return None


def _check_header(where, names):
    """Raises `DataError` unless all columns have the same name, but for a number at its end."""
    if len({name.rstrip("0123456789 _-") for name in names} - {""}) > 1:
        raise DataError(
            f"{where}: the columns {', '.join(names)} are not known. After the path there must be "
            "the name of the label; of several labels, in one column or in label_1, label_2, ..."
        )
