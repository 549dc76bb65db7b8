"""Reads folders of images that have a folder for each class.

Hidden files and folders, whose names begin with a dot, folders of operating systems, such as
``__MACOSX``, and links to folders within a class are not read: `notes` name them.
"""

import os
import pathlib
import unicodedata
from itertools import chain

import numpy as np
import tensorflow as tf

from zoo.data.images import HELD_OUT, ImageDataset, Images, hold_out
from zoo.errors import DataError
from zoo.files import check_utf8, printable, stored_config

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp")
TRAIN = ("train", "training")
TEST = ("test", "testing", "val", "validation", "valid", "dev")  # the first that exists is used
_HIDDEN = (  # folders of operating systems
    "__macosx",
    "@eadir",
    "@__thumb",
    "#recycle",
    "$recycle.bin",
    "lost+found",
    "system volume information",
)
_MAX_NAMED = 10  # files and folders in a message


def image_folder(folder, seed=0):
    """Finds images in ``train/<class>/*.jpg`` and ``test/<class>/``, or in ``<class>/*.jpg``.

    Training images are in the first of the folders `TRAIN`, test images in the first of `TEST`; the
    case of these names is ignored. Without a test folder, a tenth of each class is held out, see
    `zoo.data.images.hold_out`. A class may have no test images.

    Args:
        folder: the folder that contains ``train``, or the folders of the classes.
        seed: seed for the choice of held-out images.

    Returns:
        `zoo.data.images.ImageDataset`; its `notes` name the files and folders that are not used.

    Raises:
        DataError: if a folder is missing or cannot be read, if there are fewer than two classes to
            train on, or no test images.
    """
    train_folder = class_parent(folder)
    test_folder = subfolder(folder, TEST)
    if train_folder is None:
        raise DataError(
            f"There is no folder {os.path.join(folder, 'train')}, with a folder for each class."
        )
    files_by_class = _by_class(train_folder, fewest=2)
    names = list(files_by_class)
    files = [*chain(*files_by_class.values())]
    train = _stream(files_by_class, names)
    if test_folder:
        files_by_class = _by_class(test_folder)
        files += chain(*files_by_class.values())
        notes = _check_test(test_folder, files_by_class, names)
        test = _stream(files_by_class, names)
    else:
        train, test, notes = hold_out(train, names, seed)
        note = f"Tested on {HELD_OUT:.0%} of {train_folder}: there is no folder of test images."
        notes = (note, *notes)
    return ImageDataset(
        train=train,
        test=test,
        class_names=names,
        source_shape=(None, None, 3),
        notes=(*notes, *unused(folder, files)),
        seed=None if test_folder else seed,
    )


def images_in(folder):
    """Returns the paths of the images in a folder and its subfolders, and notes on other files."""
    files = _images(folder)
    return files, unused(folder, files)


def class_folders(folder):
    """Finds images in ``<class>/*.jpg``, to evaluate on them.

    Returns:
        `Images`, the class names, and lines that name the files that are not used.

    Raises:
        DataError: if there are no images, or a folder cannot be read.
    """
    files = _by_class(folder)
    return _stream(files, list(files)), list(files), unused(folder, chain(*files.values()))


def by_name(folder):
    """Like `images_in`, but returns `Images`, sorted by file name, in place of paths."""
    images, notes = images_in(folder)
    return _stream({"": sorted(images, key=os.path.basename)}, [""]), notes


def subfolder(folder, names):
    """Returns the path of the first of `names` that is a subfolder in any case, or None.

    Names of `TRAIN` and `TEST` are names of classes where another class is beside them: ``valid``
    and ``invalid``, each with images and no folders.

    Raises:
        DataError: if the names of two subfolders differ in case only.
    """
    if not os.path.isdir(folder):
        return None
    _, folders, _ = next(_walk(folder))
    classes = [name for name in folders if _has_images_alone(os.path.join(folder, name))]
    if any(name.lower() not in TRAIN + TEST for name in classes):
        folders = [name for name in folders if name not in classes]
    for name in names:
        found = [other for other in folders if other.lower() == name]
        if len(found) > 1:
            raise DataError(f"{folder} has the folders {', '.join(found)}. Rename or remove one.")
        if found:
            return os.path.join(folder, found[0])
    return None


def _has_images_alone(folder):
    """Whether a folder has images, and no folders."""
    _, folders, names = next(_walk(folder))
    return not folders and any(name.lower().endswith(SUFFIXES) for name in names)


def class_parent(folder):
    """Finds the folder whose subfolders are the classes of the training images.

    Returns:
        The path of the first of the folders `TRAIN`; `folder` itself, if its subfolders contain
        images and none of them is one of `TEST`; or None.
    """
    found = subfolder(folder, TRAIN)
    if found or subfolder(folder, TEST):
        return found
    # Not deeper: the downloads in a folder of TensorFlow Datasets may be images.
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
    if missing:
        notes.append(f"It has no images of these classes: {', '.join(missing)}.")
    return notes


def _walk(folder):
    """Yields (path, names of folders, names of files) in sorted order.

    What is hidden is left out, as are the runs of recipes, which contain plots.
    """

    def fail(error):
        raise DataError(f"The folder {error.filename} cannot be read: {error.strerror}.") from None

    for parent, folders, files in os.walk(folder, onerror=fail):
        folders[:] = [  # `os.walk` goes on with these
            name for name in _shown(folders) if stored_config(pathlib.Path(parent, name)) is None
        ]
        yield parent, folders, _shown(files)


def _shown(names):
    """The names, sorted, without those of hidden files and folders."""
    return sorted(name for name in names if name[0] != "." and name.lower() not in _HIDDEN)


def _images(folder):
    """The paths of images in a folder and its subfolders."""
    return [
        os.path.join(parent, name)
        for parent, _, names in _walk(folder)
        for name in names
        if name.lower().endswith(SUFFIXES)
    ]


def _by_class(folder, fewest=1):
    """Returns {class name: paths of its images, at any depth}, for classes with images.

    Raises `DataError` if there are fewer than `fewest` classes.
    """
    _, names, _ = next(_walk(folder))
    found = {}
    for name in names:
        check_utf8(name)
        files = _images(os.path.join(folder, name))
        class_name = unicodedata.normalize("NFC", name)  # macOS decomposes accented letters
        if class_name in found:
            raise DataError(f"{folder} has two folders of the name {name}. Rename or remove one.")
        if files:
            found[class_name] = files
    if len(found) < fewest:
        raise DataError(
            f"{folder} must contain images ({', '.join(SUFFIXES)}) in folders, one per class, at "
            f"least {fewest}. {' '.join(unused(folder, chain(*found.values())))}"
        )
    return found


def unused(folder, files):
    """Returns lines about what is in a folder beside `files`: none, or one line.

    A folder that contains none of the files counts as one.
    """
    used = {*files}
    for path in {*map(os.path.dirname, used)}:
        while path not in used:  # the folders that contain files
            used.add(path)
            path = os.path.dirname(path)
    others = []
    for parent, folders, names in os.walk(folder, followlinks=True):
        for name in (*sorted(folders), *sorted(names)):
            path = os.path.join(parent, name)
            if path not in used:
                others.append(path)
        # `os.walk` goes on with these.
        folders[:] = [name for name in sorted(folders) if os.path.join(parent, name) in used]
    if not others:
        return ()
    shown = [printable(os.path.relpath(path, folder)) for path in others[:_MAX_NAMED]]
    if len(others) > _MAX_NAMED:
        shown.append("...")
    return (f"Not used: {len(others):,} ({', '.join(shown)}).",)


def _stream(files_by_class, names):
    """`Images` of {class name: paths}; the label of a class is its index in `names`."""
    paths = []
    labels = []
    for label, name in enumerate(names):
        files = files_by_class.get(name, [])
        paths += files
        labels += [label] * len(files)
    return images_of_files(paths, np.int32(labels))


def images_of_files(paths, labels):
    """`Images` of the files with these paths, and their labels: int32 [n] or float32 [n, K]."""
    all_paths = tf.constant([*map(os.fsencode, paths)], tf.string)
    all_labels = tf.constant(labels)

    def read(number):
        return tf.io.read_file(tf.gather(all_paths, number)), tf.gather(all_labels, number)

    return Images(np.arange(len(paths)), read, name=lambda number: printable(paths[number]))
