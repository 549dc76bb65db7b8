"""Reads folders of images that have a folder for each class."""

import collections
import os
import pathlib
from itertools import chain

import numpy as np
import tensorflow as tf

from zoo.data.images import ImageSource, StreamedImages
from zoo.data.text_rows import case_notes
from zoo.errors import DataError

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp")
TRAIN = ("train", "training")
TEST = ("test", "testing", "val", "validation", "valid", "dev")  # the first that exists is used
_HELD_OUT = 0.1  # share of the training images, if there is no test folder
# Files and folders of operating systems. Names that begin with a dot are hidden, too.
_HIDDEN = ("__macosx", "@eadir", "@__thumb", "#recycle", "$recycle.bin", "lost+found")
_HIDDEN += ("system volume information", "thumbs.db", "desktop.ini")
_MAX_NAMED = 5  # files and folders in a message


def image_folder(folder, seed=0):
    """Finds images in ``train/<class>/*.jpg`` and ``test/<class>/``, or in ``<class>/*.jpg``.

    Training images are in the first of the folders `TRAIN`, test images in the first of `TEST`; the
    case of names is ignored. Without a test folder, a tenth of each class is held out. A class may
    have no test images. Files and folders that are hidden, because their name begins with a dot, or
    belong to the operating system, such as ``__MACOSX`` and ``Thumbs.db``, are not read.

    Args:
        folder: the folder that contains ``train``, or the folders of the classes.
        seed: seed for the choice of held-out images.

    Returns:
        `zoo.data.images.ImageSource`; its `notes` name the files and folders that are not used.

    Raises:
        DataError: if a folder is missing or cannot be read, if a class has no images to train on,
            or if there are no test images.
    """
    folder, scan = pathlib.Path(folder), _Scan()
    train_folder, test_folder = class_parent(folder), subfolder(folder, TEST)
    if train_folder is None:
        raise DataError(f"There is no folder {folder / 'train'}, with a folder for each class.")
    used = [os.fspath(path) for path in (train_folder, test_folder) if path]
    if train_folder != folder:
        list(scan.entries(folder, "beside the images", lambda entry: entry.path in used))
    train = scan.classes(train_folder)
    names, suffixes = list(train), ", ".join(sorted(SUFFIXES))
    for path in (train_folder / name for name in names if not train[name]):
        raise DataError(f"The class folder {path} has no images ({suffixes}). Fill or remove it.")
    if len(names) < 2:
        found = " ".join(scan.notes(folder))
        raise DataError(f"{train_folder} must contain at least two folders, one per class. {found}")
    if test_folder is None:
        train, test = _hold_out(train, seed)
        notes = [f"Tested on {_HELD_OUT:.0%} of {train_folder}: there is no folder of test images."]
        notes += _by_class(test, names)[1]
    else:
        test, about = _by_class(scan.classes(test_folder), names)
        notes = _check_test(test_folder, test, names, scan.notes(folder)) + about
    parts = (_stream(files, names) for files in (train, test))
    notes += scan.notes(folder)
    return ImageSource(str(folder), *parts, names, (None, None, 3), tuple(notes))


def images_in(folder):
    """Returns the paths of images in a folder and its subfolders, and lines about unused files."""
    scan = _Scan()
    return list(scan.images(folder)), scan.notes(folder)


def class_folders(folder):
    """Finds images in ``<class>/*.jpg``, to evaluate on them.

    Returns:
        `StreamedImages`, the class names, and lines that name the files that are not used.

    Raises:
        DataError: if there are no images, or a folder cannot be read.
    """
    scan = _Scan()
    files = {name: paths for name, paths in scan.classes(pathlib.Path(folder)).items() if paths}
    if not files:
        found = " ".join(scan.notes(folder))
        raise DataError(f"{folder} has no images in folders, one per class. {found}")
    return _stream(files, list(files)), list(files), tuple(scan.notes(folder))


def by_name(folder):
    """Like `images_in`, but returns `StreamedImages`, sorted by file name, in place of paths."""
    images, notes = images_in(folder)
    return _stream({"": sorted(images, key=os.path.basename)}, [""]), notes


def subfolder(folder, names):
    """Returns the path of the first of `names` that is a subfolder in any case, or None."""
    paths = sorted(pathlib.Path(folder).iterdir()) if os.path.isdir(folder) else ()
    found = {path.name.lower(): path for path in paths if path.is_dir()}
    return next((found[name] for name in names if name in found), None)


def class_parent(folder):
    """Finds the folder whose subfolders are the classes of the training images.

    Returns:
        The path of the first of the folders `TRAIN`; `folder` itself, if its subfolders contain
        images and none of them is one of `TEST`; or None.
    """
    found = subfolder(folder, TRAIN)
    if found or subfolder(folder, TEST):
        return found
    folder = pathlib.Path(folder)
    return folder if any(map(_is_image, folder.glob("[!.]*/*"))) else None


def _by_class(test, names):
    """Matches folders of test images to classes whose names differ only in case or spaces.

    Returns the test images, {class: files}, and notes.
    """
    classes, found = {name.strip().casefold(): name for name in names}, {}
    lines = [*case_notes(names)]
    exact = {*names} if not lines else {*names, *test}
    for name, files in test.items():
        same = name if name in exact else classes.get(name.strip().casefold(), name)
        found[same] = [*found.get(same, ()), *files]
        lines += [f"The test images in {name!r} are of the class {same!r}."] * (same != name)
    return found, lines


def _check_test(folder, test, names, unused):
    """Checks the test images, {class: files}; returns notes about them."""
    unknown = [name for name in test if test[name] and name not in names]
    if unknown:
        raise DataError(
            f"{folder} has classes without training images: {', '.join(unknown)}. Add training "
            "images, or remove these classes."
        )
    if not any(test.values()):
        raise DataError(
            f"{folder} has no images in folders, one per class. Add images, or remove the folder "
            f"to hold out training images. {' '.join(unused)}"
        )
    missing = [name for name in names if not test.get(name)]
    notes = [f"Tested on the images in {folder}."]
    return notes + [f"It has no images of these classes: {', '.join(missing)}."] * bool(missing)


class _Scan:
    """Lists files and folders; `unused` is {reason: [path]} of those that are not used."""

    def __init__(self):
        self.unused = collections.defaultdict(list)

    def entries(self, folder, reason, is_used=os.DirEntry.is_dir):
        """Yields the sorted entries of a folder that are used; `reason` is that of all others."""
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError as error:
            raise DataError(f"The folder {folder} cannot be read: {error.strerror}.") from None
        for entry in entries:
            hidden = entry.name.startswith(".") or entry.name.lower() in _HIDDEN
            if is_used(entry) and not hidden:
                yield entry
            else:
                self.unused["hidden" if hidden else reason].append(entry.path)

    def classes(self, folder):
        """{class name: sorted paths of its images, at any depth}."""
        parents = (os.path.realpath(folder),)
        classes = self.entries(folder, "not in a class")
        return {entry.name: sorted(self.images(entry.path, parents)) for entry in classes}

    def images(self, folder, parents=()):
        """Yields the paths of the images in a folder and its subfolders."""
        real = os.path.realpath(folder)
        if real in parents:
            self.unused["a link to a parent folder"].append(folder)
            return
        for entry in self.entries(folder, "not an image", _is_image_or_folder):
            if entry.is_dir():
                yield from self.images(entry.path, (*parents, real))
            else:
                yield entry.path

    def notes(self, root):
        """A line for each reason, with paths relative to `root`."""
        lines = []
        for reason, paths in self.unused.items():
            names = [os.path.relpath(path, root) for path in paths[:_MAX_NAMED]]
            names += ["..."] * (len(paths) > _MAX_NAMED)
            lines.append(f"Not used, {reason}: {len(paths):,} ({', '.join(names)}).")
        return lines


def _is_image(entry):
    return entry.name.lower().endswith(SUFFIXES)


def _is_image_or_folder(entry):
    is_file = entry.is_file() or entry.is_symlink()  # a broken link is reported when it is read
    return entry.is_dir() or (is_file and _is_image(entry))


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
    """`StreamedImages` of {class name: paths}; the label of a class is its index in `names`."""
    files = [files_by_class.get(name, []) for name in names]
    paths, labels = [*chain(*files)], np.repeat(range(len(names)), list(map(len, files)))
    in_graph = tf.constant(paths), tf.constant(labels, tf.int32)

    def read(number):
        path, label = (tf.gather(values, number) for values in in_graph)
        return tf.io.read_file(path), label

    return StreamedImages(np.arange(len(paths)), read, paths.__getitem__)
