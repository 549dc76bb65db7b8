"""Labelled images: the built-in digits, TFDS data sets and image folders.

Axes: H image height, W image width, C channels, n images.
"""

import concurrent.futures
import dataclasses
import math
import pathlib
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from zoo.data.preprocessing import ImageError, ImagePreprocessing
from zoo.data.tfds_download import prepared_builder
from zoo.errors import DataError

SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp"}
_MEMORY_LIMIT = 4 * 2**30  # bytes; larger image folders are decoded again in every epoch
_HELD_OUT = 0.1  # share of the training images, if there is no test folder
DIGITS = [str(number) for number in range(10)]  # class names
_CLASS_NAMES = {  # for data sets that TFDS may have prepared without class names
    "cifar10": "airplane automobile bird cat deer dog frog horse ship truck".split(),
}


@dataclasses.dataclass(frozen=True)
class Images:
    """Labelled images in a fixed order.

    Args:
        pixels: uint8 [n, H, W, C]; or the paths of n files, which are read on demand.
        labels: int32 [n].
        preprocessing: resizes and crops the files if `pixels` are paths.
    """

    pixels: np.ndarray
    labels: np.ndarray
    preprocessing: ImagePreprocessing | None = None

    def __len__(self):
        return len(self.labels)

    def reader(self):
        """Returns a function: indices [b] -> (images uint8 [b, H, W, C], labels [b]).

        The function can be called in a graph.
        """
        # A graph captures tensors by reference, but embeds arrays as constants.
        pixels, labels, read = (
            tf.constant(self.pixels),
            tf.constant(self.labels),
            self.preprocessing,
        )

        def fetch(indices):
            picked = tf.gather(pixels, indices)
            if read is not None:
                picked = tf.map_fn(
                    lambda path: read.fit(read.decode(tf.io.read_file(path))),
                    picked,
                    fn_output_signature=tf.TensorSpec((*read.image_size, read.channels), tf.uint8),
                )
            return picked, tf.gather(labels, indices)

        return fetch

    def sample(self, count):
        """Returns up to `count` evenly spaced images, uint8 [count, H, W, C], and their labels."""
        chosen = np.linspace(0, len(self) - 1, min(count, len(self))).astype("int64")
        part = dataclasses.replace(self, pixels=self.pixels[chosen], labels=self.labels[chosen])
        pixels, labels = part.reader()(tf.range(len(chosen)))
        return pixels.numpy(), labels.numpy()


class ImageDataset(NamedTuple):
    """Training and test images.

    Fields:
        train, test: `Images`.
        class_names: the name of each label.
        skipped: one line for each file that was skipped because it cannot be read.
    """

    train: Images
    test: Images
    class_names: list[str]
    skipped: tuple[str, ...] = ()

    @property
    def input_shape(self):
        """(H, W, C)."""
        return tuple(self.train.sample(1)[0].shape[1:])

    def preprocessing(self):
        """Returns preprocessing with the size, mean and deviation of the training images."""
        pixels = self.train.sample(10_000)[0].astype("float64") / 255.0
        mean, std = pixels.mean(axis=(0, 1, 2)), pixels.std(axis=(0, 1, 2))
        return ImagePreprocessing(
            image_size=self.input_shape[:2],
            channels=self.input_shape[2],
            mean=tuple(mean.tolist()),
            std=tuple(np.maximum(std, 1e-3).tolist()),
        )


def digits(seed=0, preprocessing=None, train_examples=None):
    """Loads scikit-learn's 1,797 handwritten digits of 8x8 grey pixels; a fifth is for testing.

    Source: Alpaydin and Kaynak 1998, "Optical Recognition of Handwritten Digits", test part.

    Args:
        seed: seed for the choice of test and training images.
        preprocessing: `ImagePreprocessing` that resizes and crops the images; none by default.
        train_examples: number of training images to draw; all by default.
    """
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    data = load_digits()
    pixels = np.round(data.images * (255 / 16)).astype(np.uint8)[..., None]
    labels = data.target.astype(np.int32)
    split = train_test_split(pixels, labels, test_size=0.2, random_state=seed, stratify=labels)
    drawn = _drawn(split[2], train_examples, seed)
    train, test = split[0][drawn], split[1]
    if preprocessing is not None:
        train, test = (_fitted(part, preprocessing) for part in (train, test))
    return ImageDataset(Images(train, split[2][drawn]), Images(test, split[3]), DIGITS)


def tfds_images(
    name, data_dir=None, image_size=None, seed=0, preprocessing=None, train_examples=None
):
    """Loads an image classification data set of TensorFlow Datasets into memory.

    Args:
        name: TFDS name, such as "cifar10". The data set needs labels, a "train" split, and a "test"
            or "validation" split.
        data_dir: folder of prepared TFDS data; nothing is written there. By default TFDS's own
            folder, to which missing data are downloaded.
        image_size: (H, W) to resize the images to; required if they differ in size.
        seed: seed for the choice of training images.
        preprocessing: `ImagePreprocessing` that resizes and crops the images, in place of
            `image_size`.
        train_examples: number of training images to draw; all by default.

    Raises:
        DataError: if the data set is unknown, unavailable, or has no labelled images.
    """
    builder = _builder(name, data_dir)
    features, splits = builder.info.features, builder.info.splits
    test = next((split for split in ("test", "validation") if split in splits), None)
    if "image" not in features or "label" not in features or "train" not in splits or not test:
        raise DataError(
            f"{name} cannot be used: it needs labelled images, a train split, and a test or "
            "validation split."
        )
    shape = features["image"].shape
    if image_size is None and preprocessing is None:
        if None in shape:
            raise DataError(f"The images of {name} differ in size. Pass --image-size.")
        image_size = shape[:2]
    read = preprocessing or _resizing(image_size, shape[-1] or 3)
    drawn = np.arange(splits["train"].num_examples)
    if train_examples is not None:
        drawn = _drawn(_labels(builder, "train"), train_examples, seed)
    every = np.arange(splits[test].num_examples)
    _check_size(len(drawn) + len(every), read)
    return ImageDataset(
        _from_split(builder, "train", read, drawn),
        _from_split(builder, test, read, every),
        _class_names(builder),
    )


def tfds_classes(name, data_dir=None):
    """The class names of a data set of `tfds_images`."""
    builder = _builder(name, data_dir)
    if "label" not in builder.info.features:
        raise DataError(f"{name} cannot be used: it needs labelled images.")
    return _class_names(builder)


def image_folder(folder, image_size, seed=0, preprocessing=None, train_examples=None):
    """Loads images from ``train/<class>/*.jpg`` and ``test/<class>/`` or ``val/<class>/``.

    Without a test folder, a tenth of each class is held out. Files that cannot be read are skipped
    and named in `skipped`.

    Args:
        folder: the folder that contains ``train``.
        image_size: (H, W) to resize the images to.
        seed: seed for the choice of held-out images and of training images.
        preprocessing: `ImagePreprocessing` that resizes and crops the images, in place of
            `image_size`.
        train_examples: number of training images to draw; all by default.

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
    read, skipped = preprocessing or _resizing(image_size, 3), []
    train, test = (_with_labels(part, names) for part in (train, test))
    train = [train[index] for index in _drawn([x for _, x in train], train_examples, seed)]
    sets = [_from_files(part, names, read, skipped) for part in (train, test)]
    return ImageDataset(*sets, names, tuple(skipped))


def folder_classes(folder):
    """The class names of an image folder, those of the folders in ``train``."""
    train = pathlib.Path(folder) / "train"
    names = sorted(entry.name for entry in _class_folders(train))
    if len(names) < 2:
        raise DataError(f"{train} must contain at least two folders, one per class.")
    return names


def _fitted(pixels, preprocessing):
    """Resizes and crops images [n, H, W, C] in memory."""
    images = tf.data.Dataset.from_tensor_slices(pixels).map(preprocessing.fit, tf.data.AUTOTUNE)
    return np.stack(list(images.as_numpy_iterator()))


def _builder(name, data_dir):
    return prepared_builder(
        name,
        data_dir,
        built_in=("digits", "1,797 handwritten digits that need no network"),
        own_data=("--data-dir FOLDER", "your own images: train/<class>/*.jpg"),
    )


def _drawn(labels, count, seed):
    """The indices, in order, of `count` examples, in which each class has its share; None: all."""
    labels = np.asarray(labels)
    if count is None:
        return np.arange(len(labels))
    classes, sizes = np.unique(labels, return_counts=True)
    if not len(classes) <= count <= len(labels):
        raise DataError(
            f"The number of training examples must be from {len(classes)}, the number of classes, "
            f"to {len(labels):,}. Received: {count:,}."
        )
    order, rank = np.random.default_rng(seed).permutation(len(labels)), np.empty(len(labels))
    for label, size in zip(classes, sizes):
        rank[order[labels[order] == label]] = (np.arange(size) + 0.5) / size
    return np.sort(order[np.argsort(rank[order], kind="stable")[:count]])


def _class_names(builder):
    names = list(builder.info.features["label"].names)
    unnamed = names == [str(label) for label in range(len(names))]
    return list(_CLASS_NAMES.get(builder.name, names)) if unnamed else names


def _resizing(image_size, channels):
    """Preprocessing that only resizes and crops."""
    return ImagePreprocessing(tuple(image_size), channels, (0.0,) * channels, (1.0,) * channels)


def _bytes(count, read):
    return count * math.prod(read.image_size) * read.channels


def _check_size(count, read):
    if _bytes(count, read) > 4 * _MEMORY_LIMIT:
        raise DataError(
            f"{count:,} images of {read.image_size} pixels do not fit in memory. "
            "Choose a smaller --image-size, or write them to an image folder, which is streamed."
        )


def _labels(builder, split):
    """The labels of a split, without decoding its images."""
    import tensorflow_datasets as tfds

    skip = {"image": tfds.decode.SkipDecoding()}
    examples = builder.as_dataset(split=split, shuffle_files=False, decoders=skip)
    labels = examples.map(lambda example: example["label"]).batch(10_000)
    return np.concatenate(list(labels.as_numpy_iterator()))


def _from_split(builder, split, read, chosen):
    """Reads the examples of a split at these indices, which are in order."""
    is_chosen = np.zeros(builder.info.splits[split].num_examples, bool)
    is_chosen[chosen] = True
    is_chosen = tf.constant(is_chosen)
    examples = builder.as_dataset(split=split, shuffle_files=False).enumerate()
    examples = examples.filter(lambda index, _: is_chosen[index])
    examples = examples.map(
        lambda _, example: (read.fit(example["image"]), example["label"]), tf.data.AUTOTUNE
    )
    count = len(chosen)
    pixels = np.empty((count, *read.image_size, read.channels), np.uint8)
    labels = np.empty(count, np.int32)
    label = f"reading {builder.name}/{split}"
    progress = tqdm(total=count, desc=label, unit="image", leave=False, disable=None)
    done = 0
    with progress:
        for batch in examples.batch(500).prefetch(2).as_numpy_iterator():
            after = done + len(batch[1])
            pixels[done:after], labels[done:after] = batch
            progress.update(after - done)
            done = after
    return Images(pixels, labels)


def _class_folders(folder):
    if not folder.is_dir():
        raise DataError(f"There is no folder {folder}. It must contain one folder per class.")
    entries = sorted(folder.iterdir())
    return [entry for entry in entries if entry.is_dir() and not entry.name.startswith(".")]


def _files_by_class(folder):
    """{class name: sorted paths of its images}."""
    classes = {}
    for entry in _class_folders(folder):
        files = sorted(p for p in entry.rglob("*") if p.suffix.lower() in SUFFIXES)
        if not files:
            raise DataError(
                f"The class folder {entry} has no images ({', '.join(sorted(SUFFIXES))}). "
                "Fill it or remove it."
            )
        classes[entry.name] = files
    return classes


def _with_labels(files_by_class, names):
    """[(path, label)]."""
    return [(path, label) for label, name in enumerate(names) for path in files_by_class[name]]


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


def _from_files(files, names, read, skipped):
    """Reads each file once; adds a message to `skipped` for each file that cannot be read."""
    paths, labels = zip(*files)
    keep = _bytes(len(paths), read) <= _MEMORY_LIMIT
    pixels, readable = [], []

    def attempt(path):
        try:
            return read.read(path) if keep else len(read.read(path))
        except ImageError as error:
            return error

    with concurrent.futures.ThreadPoolExecutor() as pool:
        results = pool.map(attempt, paths)
        results = tqdm(results, "reading images", len(paths), leave=False, disable=None)
        for index, result in enumerate(results):
            if isinstance(result, ImageError):
                skipped.append(str(result))
            else:
                readable.append(index)
                pixels.append(result)
    labels = np.asarray(labels, np.int32)[readable]
    for label, name in enumerate(names):
        if label not in labels:
            raise DataError(f"None of the images of the class {name} can be read: {skipped[-1]}")
    if keep:
        return Images(np.stack(pixels), labels)
    return Images(np.asarray([str(paths[i]) for i in readable]), labels, read)
