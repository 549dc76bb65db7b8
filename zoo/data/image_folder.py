"""Folders of images, with a folder for each class."""

import os
import pathlib

import numpy as np
import tensorflow as tf

from zoo.data import images
from zoo.data.preprocessing import ImagePreprocessing
from zoo.errors import DataError

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp")
_HELD_OUT = 0.1  # share of the training images, if there is no test folder


def image_folder(
    folder, image_size, seed=0, preprocessing=None, train_examples=None, streamed=False
):
    """Finds images in ``train/<class>/*.jpg`` and ``test/<class>/`` or ``val/<class>/``.

    Without a test folder, a tenth of each class is held out. A small set is decoded up
    front, and images that cannot be read are named in `skipped`; a large one is decoded on demand.

    Args:
        folder: the folder that contains ``train``.
        image_size: (H, W) to resize the images to.
        seed: seed for the choice of held-out images and of training images.
        preprocessing: `ImagePreprocessing` that resizes and crops the images, in place of
            `image_size`.
        train_examples: number of training images to draw; all by default.
        streamed: whether to decode the training images when they are needed, however few they are.

    Returns:
        `zoo.data.images.ImageDataset`.

    Raises:
        DataError: if a folder is missing or a class has no images.
    """
    folder = pathlib.Path(folder)
    names, train = folder_classes(folder), _files_by_class(folder / "train")
    test_folder = next((folder / n for n in ("test", "val") if (folder / n).is_dir()), None)
    if test_folder is None:
        train, test = _hold_out(train, seed)
    else:
        test = _files_by_class(test_folder)
        if sorted(test) != names:
            raise DataError(
                f"{folder / 'train'} and {test_folder} must have the same classes. "
                f"Classes in only one of them: {', '.join(sorted(set(test) ^ set(names)))}."
            )
    preprocessing = preprocessing or ImagePreprocessing(tuple(image_size), 3)
    sets = (_stream(part, names, preprocessing) for part in (train, test))
    return images.dataset(*sets, names, seed, train_examples, streamed)


def folder_classes(folder):
    """The class names of an image folder, those of the folders in ``train``."""
    train = pathlib.Path(folder) / "train"
    names = sorted(entry.name for entry in _class_folders(train))
    if len(names) < 2:
        raise DataError(f"{train} must contain at least two folders, one per class.")
    return names


def _class_folders(folder):
    if not folder.is_dir():
        raise DataError(f"There is no folder {folder}. It must contain one folder per class.")
    entries = sorted(folder.iterdir())
    return [entry for entry in entries if entry.is_dir() and not entry.name.startswith(".")]


def _files_by_class(folder):
    """{class name: sorted paths of its images}."""
    classes = {}
    for entry in _class_folders(folder):
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


def _stream(files_by_class, names, preprocessing):
    """`StreamedImages` of files."""
    paths = [path for name in names for path in files_by_class[name]]
    labels = np.repeat(
        np.arange(len(names), dtype=np.int32), [len(files_by_class[n]) for n in names]
    )
    in_graph = tf.constant(paths), tf.constant(labels)

    def read(number):
        path, label = (tf.gather(values, number) for values in in_graph)
        return tf.io.read_file(path), label

    return images.StreamedImages(len(paths), read, lambda number: paths[number], preprocessing)
