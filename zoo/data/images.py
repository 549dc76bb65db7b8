"""Labeled images, in memory or read from files when they are needed.

Axes: H image height, W image width, C channels, n images, K classes.
"""

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from zoo.data.image_files import ImageError, decoded, read_image
from zoo.data.preprocessing import ImagePreprocessing
from zoo.errors import DataError

_MEMORY_LIMIT = 2**29  # bytes of images that are decoded once, at the start
_STATISTICS_IN_MEMORY = 10_000  # images for mean and deviation
_STATISTICS_IN_FILES = 1_000
INVALID_LABEL = "A training image has a label that is not from 0 to the number of classes - 1."
HELD_OUT = 0.1  # share of the training images, if there are no test images
_MAX_NAMED = 5  # images or classes in a message
_MOST_LABELS = 100_000  # images whose labels are all read, to find those without one
_LABELS_SEEN = 1_000  # of more images


@dataclasses.dataclass(frozen=True, eq=False)
class Images:
    """Labeled images, which are read and decoded when they are needed, or are in memory.

    Args:
        numbers: int64 [n], the numbers of these images in their source.
        read: function of a number, int64 [], that returns the encoded image, string [], and its
            label, int32 [], which is -1 for an image without a label; or, of images with any number
            of labels, float32 [K] with 1 for each. It is called in a graph.
        name: function of a number, an int, that returns the name of the image for messages.
        preprocessing: `ImagePreprocessing` that resizes and crops the images; required to decode
            them.
        decoded: for images in memory, their pixels uint8 [n, H, W, C] and `labels`.
    """

    numbers: np.ndarray
    read: Callable
    name: Callable
    preprocessing: ImagePreprocessing | None = None
    decoded: tuple[np.ndarray, np.ndarray] | None = None

    def __len__(self):
        return len(self.numbers)

    @property
    def image_shape(self):
        """(H, W, C)."""
        return (*self.preprocessing.image_size, self.preprocessing.channels)

    @property
    def pixels(self):
        """The pixels of images in memory, uint8 [n, H, W, C]."""
        return self.decoded[0]

    @functools.cached_property
    def labels(self):
        """The labels of all images, int32 [n] or float32 [n, K]."""
        if self.decoded:
            return self.decoded[1]
        numbers = tf.data.Dataset.from_tensor_slices(self.numbers)
        labels = numbers.map(lambda number: self.read(number)[1], tf.data.AUTOTUNE).batch(10_000)
        return np.concatenate(list(labels.as_numpy_iterator()))

    def subset(self, places):
        """Returns the images with these indices, int64 [m], in this order."""
        part = dataclasses.replace(self, numbers=self.numbers[places])
        if self.decoded is None:
            return part
        pixels, labels = self.decoded
        return dataclasses.replace(part, decoded=(pixels[places], labels[places]))

    def labeled(self, purpose):
        """Returns the images with a label, and lines about the others: none, or one line.

        Of more than 100,000 images, the labels of 1,000 are read first: if all have one, no other
        is read. `purpose` is a word for messages, such as "training".

        Raises:
            DataError: if no image has a label.
        """
        total = len(self)
        some = self.subset(np.linspace(0, total - 1, min(total, _LABELS_SEEN)).astype("int64"))
        if total > _MOST_LABELS and (some.labels >= 0).all():
            return self, ()
        places = np.flatnonzero((self.labels >= 0).reshape(total, -1).all(axis=1))
        if len(places) == total:
            return self, ()
        if not len(places):
            raise DataError(f"None of the {total:,} {purpose} images has a label: all are -1.")
        note = f"Not used, as their label is -1: {total - len(places):,} of {total:,}"
        return self.subset(places), (f"{note} {purpose} images.",)

    def fit(self, image):
        """Decodes, resizes and crops an encoded image, string []: uint8 [H, W, C]."""
        return self.preprocessing.fit(decoded(image))

    @tf.autograph.experimental.do_not_convert  # which takes a second, and changes nothing
    def in_memory(self):
        """Returns the images in memory; raises `DataError` as `check` does."""
        batches = list(self._decoded())
        pixels = np.concatenate([pixels for pixels, _ in batches])
        labels = np.concatenate([labels for _, labels in batches])
        return dataclasses.replace(self, decoded=(pixels, labels))

    def check(self):
        """Decodes all images, and raises `DataError` that names those that cannot be read."""
        for _ in self._decoded():
            pass

    @tf.autograph.experimental.do_not_convert
    def _decoded(self):
        """Yields batches of pixels and labels; then raises `DataError` if images are missing."""

        def decode(number):
            image, label = self.read(number)
            return number, self.fit(image), label

        examples = tf.data.Dataset.from_tensor_slices(self.numbers)
        examples = examples.map(decode, tf.data.AUTOTUNE).ignore_errors()
        batches = tqdm(
            examples.batch(100).prefetch(2).as_numpy_iterator(),
            "reading images",
            total=math.ceil(len(self) / 100),
            unit="image",
            unit_scale=100,
            leave=False,
            disable=None,
        )
        missing = {*self.numbers.tolist()}
        for numbers, pixels, labels in batches:
            missing -= {*numbers.tolist()}
            yield pixels, labels
        if missing:
            problems = " ".join(map(self._problem, sorted(missing)[:_MAX_NAMED]))
            raise DataError(
                f"{len(missing):,} of {len(self):,} images cannot be read. Repair or remove them: "
                f"{problems}"
            )

    def _problem(self, number):
        """Why an image cannot be read."""
        name = self.name(number)
        try:
            read_image(self.read(tf.constant(number))[0], name)
        except ImageError as error:
            return str(error)
        except tf.errors.OpError as error:  # of the file, not of its content
            return f"{name} cannot be read: {error.message}."


@contextlib.contextmanager
def unreadable_images_named(*parts):
    """Context that names the images that cannot be used, if that is why TensorFlow fails.

    Args:
        *parts: `Images` or None.

    Raises:
        DataError: see `Images.check`; or if a label is not a class.
    """
    try:
        yield
    except tf.errors.OpError as error:
        if INVALID_LABEL in str(error):
            raise DataError(f"{INVALID_LABEL} Remove images without a label.") from None
        if "IteratorGetNext" in str(error):  # an error of the data: checking them may take an hour
            for part in parts:
                if part and part.decoded is None:
                    part.check()
        raise


class ImageDataset(NamedTuple):
    """Training and test images.

    Fields:
        train, test: `Images`, which can be decoded after `loaded`.
        class_names: the name of each label.
        source_shape: (H, W, C) of the images in their source; H and W are None if they differ.
        notes: lines about the data, such as names of files that are not used.
        valid: validation images; None if the test images are used.
        seed: the seed by which test or validation images were drawn; None if all are given.
    """

    train: Images
    test: Images
    class_names: list[str]
    source_shape: tuple
    notes: tuple[str, ...] = ()
    valid: Images | None = None
    seed: int | None = None

    def loaded(
        self, image_size=None, preprocessing=None, train_examples=None, seed=0, streamed=False
    ):
        """Returns the data set with images that are decoded, or can be.

        Images that take more than 512 MB are decoded when they are needed, others now. Images
        without a label are left out, see `Images.labeled`.

        Args:
            image_size: (H, W) to resize the images to; required if they differ in size.
            preprocessing: `ImagePreprocessing` that resizes and crops the images, instead of
                `image_size`.
            train_examples: number of training images to draw; all by default.
            seed: seed for the choice of training images.
            streamed: whether images are decoded when they are needed in any case.

        Raises:
            DataError: if `image_size` is missing, there are fewer than `train_examples` images,
                none has a label, or some cannot be read.
        """
        if preprocessing is None:
            height, width, channels = self.source_shape
            if image_size is not None:
                height, width = image_size
            if None in (height, width):
                raise DataError("The images may differ in size. Pass --image-size, such as 64.")
            preprocessing = ImagePreprocessing((height, width), channels)
        train, train_notes = self.train.labeled("training")
        test, test_notes = self.test.labeled("test")
        notes = (*self.notes, *train_notes, *test_notes)
        train = dataclasses.replace(train, preprocessing=preprocessing)
        test = dataclasses.replace(test, preprocessing=preprocessing)
        if train_examples is not None:
            train = train.subset(_stratified(train.labels, train_examples, seed))
        size = (len(train) + len(test)) * math.prod(train.image_shape)
        if streamed or size > _MEMORY_LIMIT:
            return self._replace(train=train, test=test, notes=notes)
        train = train.in_memory()
        test = test.in_memory()
        notes += _shared_notes(train, test)
        return self._replace(train=train, test=test, notes=notes)

    @property
    def input_shape(self):
        """(H, W, C)."""
        return self.train.image_shape

    def held_out(self, share, seed=0):
        """Returns the data set with a share, in [0, 1), of the training images moved to `valid`.

        They are drawn by class, and an image of each class stays.
        """
        if not share:
            return self
        labels = self.train.labels
        num_valid = round(share * len(labels))
        count = max(len(labels) - num_valid, len(np.unique(_classes(labels))))
        if count == len(labels) or num_valid == len(labels):
            raise DataError(
                f"A share of {share} of {len(labels):,} training images leaves none for training "
                "or validation."
            )
        train = _stratified(labels, count, seed)
        valid = np.setdiff1d(np.arange(len(labels)), train)
        return self._replace(
            train=self.train.subset(train),
            valid=self.train.subset(valid),
            seed=seed,
            notes=(*self.notes, *_single_notes(labels, self.class_names)),
        )

    def preprocessing(self):
        """Returns preprocessing with the size, mean and deviation of the training images."""
        count = _STATISTICS_IN_MEMORY if self.train.decoded else _STATISTICS_IN_FILES
        pixels = sample(self.train, count).pixels  # [n, H, W, C]
        # Sums of integers are exact, and these two do not copy the images.
        count = pixels[..., 0].size
        squares = np.einsum("nhwc,nhwc->c", pixels, pixels, dtype=np.int64)
        mean = pixels.sum((0, 1, 2), np.int64) / count
        std = np.sqrt(np.maximum(squares / count - mean**2, 0.0))
        return dataclasses.replace(
            self.train.preprocessing,
            mean=tuple((mean / 255).tolist()),
            std=tuple(np.maximum(std / 255, 1e-3).tolist()),
        )


def hold_out(images, class_names, seed):
    """Divides images: a tenth of each class, at least one image, is held out for testing.

    A class of one image is trained on. Images with several labels are divided by the rarest one.

    Args:
        images: `Images`, all with labels.
        class_names: the name of each label.
        seed: seed of the choice.

    Returns:
        The training and the test images, two `Images`, and lines about classes of one image.

    Raises:
        DataError: if each class has one image.
    """
    random = np.random.default_rng(seed)
    labels = images.labels  # which may read all images
    classes = _classes(labels)
    _, sizes = np.unique(classes, return_counts=True)
    by_class = np.split(np.argsort(classes, kind="stable"), np.cumsum(sizes)[:-1])
    train = []
    test = []
    for places in by_class:
        count = max(1, round(HELD_OUT * len(places)))
        if len(places) == 1:
            count = 0
        order = places[random.permutation(len(places))]
        test.append(order[:count])
        train.append(order[count:])
    notes = _single_notes(labels, class_names)
    if sizes.max() == 1:
        raise DataError("There is one image of each class. Testing needs a second one.")
    return images.subset(np.concatenate(train)), images.subset(np.concatenate(test)), notes


def _classes(labels):
    """The classes by which images are divided, int [n]; an image of each is trained on.

    They are the labels, int [n]; of labels float [n, K], the rarest one of each image, or K without
    one. Of a label that is the rarest one of no image, an image is a class of its own.
    """
    if labels.ndim == 1:
        return labels
    columns = np.column_stack([labels, ~labels.any(axis=1)])
    classes = np.where(columns, columns.sum(axis=0), np.inf).argmin(axis=1)
    for label in range(labels.shape[1]):
        if label not in classes:
            classes[labels[:, label].argmax()] = columns.shape[1] + label
    return classes


def _single_notes(labels, class_names):
    """Returns lines about classes with one image: none, or one line."""
    sizes = np.bincount(labels) if labels.ndim == 1 else labels.sum(axis=0)
    names = [class_names[label] for label in np.flatnonzero(sizes == 1)]
    if not names:
        return ()
    shown = ", ".join(names[:_MAX_NAMED])
    if len(names) > _MAX_NAMED:
        shown += ", ..."
    return (f"Classes with one image, on which the model is trained: {shown}.",)


def _shared_notes(train, test):
    """Returns lines about test images that are also training images; both are in memory."""
    known = {hash(pixels.tobytes()) for pixels in train.pixels}
    count = sum(hash(pixels.tobytes()) in known for pixels in test.pixels)
    if count == 0:
        return ()
    return (f"Test images that are also training images: {count:,} of {len(test):,}.",)


def digits(seed=0):
    """Loads scikit-learn's 1,797 handwritten digits, 8x8 gray pixels: `ImageDataset`.

    A random fifth is for testing. Source: Alpaydin and Kaynak 1998, "Optical Recognition of
    Handwritten Digits", test part.
    """
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    data = load_digits()
    pixels = tf.constant(np.round(data.images * (255 / 16)).astype(np.uint8)[..., None])
    labels = tf.constant(data.target.astype(np.int32))

    def read(number):
        return tf.io.encode_png(tf.gather(pixels, number)), tf.gather(labels, number)

    train, test = train_test_split(
        np.arange(len(data.target)), test_size=0.2, random_state=seed, stratify=data.target
    )
    return ImageDataset(
        train=Images(train, read, name=str),
        test=Images(test, read, name=str),
        class_names=[str(digit) for digit in range(10)],
        source_shape=(8, 8, 1),
        seed=seed,
    )


def _stratified(labels, count, seed):
    """Draws `count` of the examples with these labels, stratified by class: sorted indices.

    At least one of each class is drawn.
    """
    labels = _classes(labels)
    classes, sizes = np.unique(labels, return_counts=True)
    if not len(classes) <= count <= len(labels):
        raise DataError(
            f"The number of training examples must be from {len(classes)}, the number of classes, "
            f"to {len(labels):,}. Received: {count:,}."
        )
    order = np.random.default_rng(seed).permutation(len(labels))
    # The examples of a class are spread evenly over [0, 1), and the lowest are taken. The first one
    # of each class is below all others.
    rank = np.empty(len(labels))
    for label, size in zip(classes, sizes):
        places = order[labels[order] == label]
        rank[places] = (np.arange(size) + 0.5) / size
        rank[places[0]] = -1
    return np.sort(order[np.argsort(rank[order], kind="stable")[:count]])


def sample(images, count):
    """Returns up to `count` evenly spaced images, in memory."""
    count = min(count, len(images))
    images = images.subset(np.linspace(0, len(images) - 1, count).astype("int64"))
    return images if images.decoded else images.in_memory()
