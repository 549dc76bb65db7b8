"""Folders of images, with a folder for each class."""

import os
import pathlib

import numpy as np
import tensorflow as tf

from zoo.data.images import ImageSource, StreamedImages
from zoo.errors import DataError

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp")
_HELD_OUT = 0.1  # share of the training images, if there is no test folder


def image_folder(folder, seed=0):
    """Finds images in ``train/<class>/*.jpg`` and ``test/<class>/`` or ``val/<class>/``.

    Without a test folder, a tenth of each class is held out.

    Args:
        folder: the folder that contains ``train``.
        seed: seed for the choice of held-out images.

    Returns:
        `zoo.data.images.ImageSource`.

    Raises:
        DataError: if a folder is missing or a class has no images.
    """
    folder = pathlib.Path(folder)
    train = _files_by_class(folder / "train")
    names = list(train)
    if len(names) < 2:
        raise DataError(f"{folder / 'train'} must contain at least two folders, one per class.")
    test_folder = next((folder / n for n in ("test", "val") if (folder / n).is_dir()), None)
    if test_folder is None:
        train, test = _hold_out(train, seed)
    else:
        test = _files_by_class(test_folder)
        if list(test) != names:
            raise DataError(
                f"{folder / 'train'} and {test_folder} must have the same classes. "
                f"Classes in only one of them: {', '.join(sorted(set(test) ^ set(names)))}."
            )
    parts = (_stream(files, names) for files in (train, test))
    return ImageSource(str(folder), *parts, names, (None, None, 3))


def _files_by_class(folder):
    """{class name: sorted paths of its images}."""
    if not folder.is_dir():
        raise DataError(f"There is no folder {folder}. It must contain one folder per class.")
    classes = {}
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith(".") or not entry.is_dir():
            continue
        files = sorted(
            os.path.join(parent, name)
            for parent, _, names in os.walk(entry)
            for name in names
            if name.lower().endswith(SUFFIXES) and not name.startswith(".")
        )
        if not files:
            raise DataError(
                f"The class folder {entry} has no images ({', '.join(sorted(SUFFIXES))}). "
                "Fill it or remove it."
            )
        classes[entry.name] = files
    return classes


def _hold_out(files_by_class, seed):
    """Splits the files of each class into training and test files: two dicts {class: files}."""
    random, train, test = np.random.default_rng(seed), {}, {}
    for name, files in files_by_class.items():
        if len(files) < 2:
            raise DataError(
                f"The class {name} has only one image. It needs one to train and one to test on."
            )
        order = random.permutation(len(files))
        count = max(1, round(_HELD_OUT * len(files)))
        test[name] = [files[i] for i in order[:count]]
        train[name] = [files[i] for i in order[count:]]
    return train, test


def _stream(files_by_class, names):
    """`StreamedImages` of files."""
    paths = [path for name in names for path in files_by_class[name]]
    labels = np.repeat(range(len(names)), [len(files_by_class[name]) for name in names])
    in_graph = tf.constant(paths), tf.constant(labels, tf.int32)

    def read(number):
        path, label = (tf.gather(values, number) for values in in_graph)
        return tf.io.read_file(path), label

    return StreamedImages(np.arange(len(paths)), read, paths.__getitem__)
