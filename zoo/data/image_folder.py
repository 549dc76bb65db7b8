"""Reads folders of images that have a folder for each class.

Not read are files and folders that are hidden, because their name begins with a dot, or belong to
the operating system, such as ``__MACOSX``; and links to folders within a class. `notes` name them.
"""

import os
import pathlib
from itertools import chain

import numpy as np
import tensorflow as tf

from zoo.data.images import ImageDataset, Images
from zoo.errors import DataError

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp")
TRAIN = ("train", "training")
TEST = ("test", "testing", "val", "validation", "valid", "dev")  # the first that exists is used
_HELD_OUT = 0.1  # share of the training images, if there is no test folder
# Folders of operating systems. Names that begin with a dot are hidden, too.
_HIDDEN = ("__macosx", "@eadir", "@__thumb", "#recycle", "$recycle.bin", "lost+found")
_HIDDEN += ("system volume information",)
_MAX_NAMED = 10  # files and folders in a message


def image_folder(folder, seed=0):
    """Finds images in ``train/<class>/*.jpg`` and ``test/<class>/``, or in ``<class>/*.jpg``.

    Training images are in the first of the folders `TRAIN`, test images in the first of `TEST`; the
    case of these names is ignored. Without a test folder, a tenth of each class is held out. A
    class may have no test images.

    Args:
        folder: the folder that contains ``train``, or the folders of the classes.
        seed: seed for the choice of held-out images.

    Returns:
        `zoo.data.images.ImageDataset`; its `notes` name the files and folders that are not used.

    Raises:
        DataError: if a folder is missing or cannot be read, if there are fewer than two classes to
            train on, or no test images.
    """
    train_folder, test_folder = class_parent(folder), subfolder(folder, TEST)
    if train_folder is None:
        raise DataError(
            f"There is no folder {os.path.join(folder, 'train')}, with a folder for each class."
        )
    train = _by_class(train_folder, 2)
    test, names = _by_class(test_folder) if test_folder else {}, list(train)
    unused = _unused(folder, chain(*train.values(), *test.values()))
    if test_folder:
        notes = _check_test(test_folder, test, names)
    else:
        train, test = _hold_out(train, seed)
        notes = [f"Tested on {_HELD_OUT:.0%} of {train_folder}: there is no folder of test images."]
    parts = (_stream(files, names) for files in (train, test))
    return ImageDataset(*parts, names, (None, None, 3), (*notes, *unused))


def images_in(folder):
    """Returns the paths of images in a folder and its subfolders, and lines about unused files."""
    files = _images(folder)
    return files, _unused(folder, files)


def class_folders(folder):
    """Finds images in ``<class>/*.jpg``, to evaluate on them.

    Returns:
        `Images`, the class names, and lines that name the files that are not used.

    Raises:
        DataError: if there are no images, or a folder cannot be read.
    """
    files = _by_class(folder)
    return _stream(files, list(files)), list(files), _unused(folder, chain(*files.values()))


def by_name(folder):
    """Like `images_in`, but returns `Images`, sorted by file name, in place of paths."""
    images, notes = images_in(folder)
    return _stream({"": sorted(images, key=os.path.basename)}, [""]), notes


def subfolder(folder, names):
    """Returns the path of the first of `names` that is a subfolder in any case, or None."""
    entries = sorted(os.listdir(folder)) if os.path.isdir(folder) else ()
    paths = {name.lower(): os.path.join(folder, name) for name in entries}
    return next((paths[x] for x in names if x in paths and os.path.isdir(paths[x])), None)


def class_parent(folder):
    """Finds the folder whose subfolders are the classes of the training images.

    Returns:
        The path of the first of the folders `TRAIN`; `folder` itself, if its subfolders contain
        images and none of them is one of `TEST`; or None.
    """
    found = subfolder(folder, TRAIN)
    if found or subfolder(folder, TEST):
        return found
    names = (path.name.lower() for path in pathlib.Path(folder).glob("[!.]*/*"))
    return folder if any(name.endswith(SUFFIXES) for name in names) else None


def _check_test(folder, test, names):
    """Checks the classes of the test images, {class: files}; returns notes about them."""
    unknown = [name for name in test if name not in names]
    if unknown:
        raise DataError(
            f"{folder} has classes without training images: {', '.join(unknown)}. Add training "
            "images, or rename or remove these folders."
        )
    missing = [name for name in names if name not in test]
    notes = [f"Tested on the images in {folder}."]
    return notes + [f"It has no images of these classes: {', '.join(missing)}."] * bool(missing)


def _walk(folder):
    """`os.walk` in sorted order, without what is hidden."""

    def fail(error):
        raise DataError(f"The folder {error.filename} cannot be read: {error.strerror}.") from None

    for parent, *parts in os.walk(folder, onerror=fail):
        for names in parts:
            names[:] = sorted(x for x in names if x[0] != "." and x.lower() not in _HIDDEN)
        yield parent, *parts


def _images(folder):
    """The paths of images in a folder and its subfolders."""
    return [
        os.path.join(parent, name)
        for parent, _, names in _walk(folder)
        for name in names
        if name.lower().endswith(SUFFIXES)
    ]


def _by_class(folder, fewest=1):
    """{class name: paths of its images, at any depth}, of at least `fewest` classes with images."""
    _, names, _ = next(_walk(folder))
    found = {name: _images(os.path.join(folder, name)) for name in names}
    found = {name: files for name, files in found.items() if files}
    if len(found) < fewest:
        raise DataError(
            f"{folder} must contain images ({', '.join(SUFFIXES)}) in folders, one per class, at "
            f"least {fewest}. {' '.join(_unused(folder, chain(*found.values())))}"
        )
    return found


def _unused(folder, files):
    """A tuple of a line about what is in a folder beside these files, if there is anything.

    A folder counts as one if it has none of the files.
    """
    used, others = {*files}, []
    for path in {*map(os.path.dirname, used)}:
        while path not in used:
            used.add(path)
            path = os.path.dirname(path)
    for parent, *parts in os.walk(folder, followlinks=True):
        for names in parts:
            paths = {name: os.path.join(parent, name) for name in sorted(names)}
            others += [path for path in paths.values() if path not in used]
            names[:] = [name for name, path in paths.items() if path in used]
    shown = [os.path.relpath(path, folder) for path in others[:_MAX_NAMED]]
    shown += ["..."] * (len(others) > _MAX_NAMED)
    return (f"Not used: {len(others):,} ({', '.join(shown)}).",) * bool(others)


def _hold_out(files_by_class, seed):
    """Splits the files of each class into training and test files: two dicts {class: files}."""
    random, train, test = np.random.default_rng(seed), {}, {}
    for name, files in files_by_class.items():
        if len(files) < 2:
            raise DataError(f"The class {name} has only one image. It needs two, one for testing.")
        order = random.permutation(len(files))
        count = max(1, round(_HELD_OUT * len(files)))
        test[name] = [files[i] for i in order[:count]]
        train[name] = [files[i] for i in order[count:]]
    return train, test


def _stream(files_by_class, names):
    """`Images` of {class name: paths}; the label of a class is its index in `names`."""
    files = [files_by_class.get(name, []) for name in names]
    paths, labels = [*chain(*files)], np.repeat(range(len(names)), list(map(len, files)))
    in_graph = tf.constant(paths), tf.constant(labels, tf.int32)

    def read(number):
        path, label = (tf.gather(values, number) for values in in_graph)
        return tf.io.read_file(path), label

    return Images(np.arange(len(paths)), read, paths.__getitem__)
