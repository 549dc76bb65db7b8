"""Reads folders of images that have a folder for each class."""

import collections
import os
import pathlib
from itertools import chain

import numpy as np
import tensorflow as tf

from zoo.data.images import ImageSource, StreamedImages
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
    case of these names is ignored. Without a test folder, a tenth of each class is held out. A
    class may have no test images. Files and folders that are hidden, because their name begins with
    a dot, or belong to the operating system, such as ``__MACOSX`` and ``Thumbs.db``, are not read.

    Args:
        folder: the folder that contains ``train``, or the folders of the classes.
        seed: seed for the choice of held-out images.

    Returns:
        `zoo.data.images.ImageSource`; its `notes` name the files and folders that are not used.

    Raises:
        DataError: if a folder is missing or cannot be read, if there are fewer than two classes to
            train on, or no test images.
    """
    folder, unused = pathlib.Path(folder), collections.defaultdict(list)
    train_folder, test_folder = class_parent(folder), subfolder(folder, TEST)
    if train_folder is None:
        raise DataError(f"There is no folder {folder / 'train'}, with a folder for each class.")
    if train_folder != folder:
        used = [path.name for path in (train_folder, test_folder) if path]
        others = [name for name in chain(*_listed(folder, unused)) if name not in used]
        unused["beside the images"] += [os.path.join(folder, name) for name in others]
    train = _by_class(train_folder, unused)
    names = list(train)
    if len(names) < 2:
        raise DataError(
            f"{train_folder} must contain images ({', '.join(SUFFIXES)}) in at least two folders, "
            f"one per class. {' '.join(_notes(unused, folder))}"
        )
    if test_folder is None:
        train, test = _hold_out(train, seed)
        notes = [f"Tested on {_HELD_OUT:.0%} of {train_folder}: there is no folder of test images."]
    else:
        test = _by_class(test_folder, unused)
        notes = _check_test(test_folder, test, names, _notes(unused, folder))
    parts = (_stream(files, names) for files in (train, test))
    notes += _notes(unused, folder)
    return ImageSource(str(folder), *parts, names, (None, None, 3), tuple(notes))


def images_in(folder):
    """Returns the paths of images in a folder and its subfolders, and lines about unused files."""
    unused = collections.defaultdict(list)
    return list(_images(folder, unused)), _notes(unused, folder)


def class_folders(folder):
    """Finds images in ``<class>/*.jpg``, to evaluate on them.

    Returns:
        `StreamedImages`, the class names, and lines that name the files that are not used.

    Raises:
        DataError: if there are no images, or a folder cannot be read.
    """
    unused = collections.defaultdict(list)
    files, notes = _by_class(folder, unused), _notes(unused, folder)
    if not files:
        raise DataError(f"{folder} has no images in folders, one per class. {' '.join(notes)}")
    return _stream(files, list(files)), list(files), tuple(notes)


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
    return folder if any(_is_image(path.name) for path in folder.glob("[!.]*/*")) else None


def _check_test(folder, test, names, unused):
    """Checks the test images, {class: files}; returns notes about them."""
    unknown = [name for name in test if name not in names]
    if unknown:
        raise DataError(
            f"{folder} has classes without training images: {', '.join(unknown)}. Add training "
            "images, or rename or remove these folders."
        )
    if not test:
        raise DataError(
            f"{folder} has no images in folders, one per class. Add images, or remove the folder "
            f"to hold out training images. {' '.join(unused)}"
        )
    missing = [name for name in names if name not in test]
    notes = [f"Tested on the images in {folder}."]
    return notes + [f"It has no images of these classes: {', '.join(missing)}."] * bool(missing)


# In the next functions, `unused` is {reason: [path]} of the files and folders that are not used.


def _walk(folder, unused):
    """`os.walk` in sorted order, without what is hidden."""

    def fail(error):
        raise DataError(f"The folder {error.filename} cannot be read: {error.strerror}.") from None

    for parent, *parts in os.walk(folder, onerror=fail):
        for names in parts:
            names.sort()
            hidden = {name for name in names if name[0] == "." or name.lower() in _HIDDEN}
            unused["hidden"] += [os.path.join(parent, name) for name in sorted(hidden)]
            names[:] = [name for name in names if name not in hidden]
        yield parent, *parts


def _listed(folder, unused):
    """The names of the folders and of the files in a folder: two lists."""
    return next(_walk(folder, unused))[1:]


def _by_class(folder, unused):
    """{class name: paths of its images, at any depth}; classes have at least one image."""
    names, files = _listed(folder, unused)
    unused["not in a class"] += [os.path.join(folder, name) for name in files]
    found = {name: [*_images(os.path.join(folder, name), unused)] for name in names}
    unused["a class without images"] += [os.path.join(folder, n) for n in names if not found[n]]
    return {name: files for name, files in found.items() if files}


def _images(folder, unused):
    """Yields the paths of images in a folder and its subfolders."""
    for parent, folders, files in _walk(folder, unused):
        inner = [os.path.join(parent, name) for name in folders]
        unused["a link to a folder"] += filter(os.path.islink, inner)  # perhaps to a parent
        for name in files:
            path = os.path.join(parent, name)
            if _is_image(name):
                yield path
            else:
                unused["not an image"].append(path)


def _notes(unused, root):
    """A line for each reason, with paths relative to `root`."""
    lines = []
    for reason, paths in unused.items():
        if paths:
            names = [os.path.relpath(path, root) for path in paths[:_MAX_NAMED]]
            names += ["..."] * (len(paths) > _MAX_NAMED)
            lines.append(f"Not used, {reason}: {len(paths):,} ({', '.join(names)}).")
    return lines


def _is_image(name):
    return name.lower().endswith(SUFFIXES)


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
