"""Labeled images that are read by number: in memory or read when they are needed.

Axes: H image height, W image width, C channels, n images.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from zoo.data.preprocessing import ImagePreprocessing, decoded
from zoo.errors import DataError

DIGITS = [str(number) for number in range(10)]  # class names
_MEMORY_LIMIT = 2**29  # bytes of images that are decoded once, at the start
_STATISTICS = 10_000, 1_000  # images to compute mean and deviation of: in memory, from files
_MOST_SKIPPED = 10  # unreadable images that are tolerated, or a tenth of all


@dataclasses.dataclass(frozen=True, eq=False)
class Images:
    """Labeled images in memory, in a fixed order.

    Args:
        pixels: uint8 [n, H, W, C].
        labels: int32 [n].
    """

    pixels: np.ndarray
    labels: np.ndarray

    def __len__(self):
        return len(self.labels)

    @property
    def image_shape(self):
        """(H, W, C)."""
        return self.pixels.shape[1:]

    def subset(self, numbers):
        """Returns the images of these numbers, int64 [m], in this order."""
        return Images(self.pixels[numbers], self.labels[numbers])

    def reader(self):
        """Returns a function: number, int64 [] -> (uint8 [H, W, C], label int32 []).

        The function can be called in a graph.
        """
        # A graph captures tensors by reference, but embeds arrays as constants.
        pixels, labels = tf.constant(self.pixels), tf.constant(self.labels)
        return lambda number: (tf.gather(pixels, number), tf.gather(labels, number))

    def sample(self, count):
        """Returns up to `count` evenly spaced images, uint8 [count, H, W, C], and their labels."""
        numbers = evenly_spaced(len(self), count)
        return self.pixels[numbers], self.labels[numbers]


@dataclasses.dataclass(frozen=True, eq=False)
class StreamedImages:
    """Labeled images that are read and decoded when they are needed.

    Images that cannot be read are skipped and counted where they are met.

    Args:
        count: n.
        read: function: number, int64 [] -> (encoded image, string [], and its label, int32 []). It
            is called in a graph.
        name: function: number, int -> the name of the image in messages.
        preprocessing: resizes and crops the images.

    Attributes:
        skipped: {number: message} of the images that could not be read so far.
    """

    count: int
    read: Callable
    name: Callable
    preprocessing: ImagePreprocessing
    skipped: dict = dataclasses.field(default_factory=dict)

    def __len__(self):
        return self.count

    @property
    def image_shape(self):
        """(H, W, C)."""
        return (*self.preprocessing.image_size, self.preprocessing.channels)

    def subset(self, numbers):
        """Returns the images of these numbers, int64 [m], in this order."""
        numbers = np.asarray(numbers, "int64")

        def read(number):
            return self.read(tf.gather(numbers, number))

        def name(number):
            return self.name(int(numbers[number]))

        return StreamedImages(len(numbers), read, name, self.preprocessing)

    def reader(self):
        """Returns `read`, as for `Images`; the image is encoded, string []."""
        return self.read

    def fit(self, image):
        """Decodes, resizes and crops an encoded image, string []: uint8 [H, W, C]."""
        return self.preprocessing.fit(decoded(image))

    def sample(self, count):
        """Returns up to `count` evenly spaced images, uint8 [count, H, W, C], and their labels.

        Those that cannot be read are left out.
        """
        _, images = self.in_memory(evenly_spaced(len(self), count))
        return images.pixels, images.labels

    def in_memory(self, numbers):
        """Decodes the images of these numbers, int64 [m].

        Returns:
            The numbers of those that can be read, int64 [up to m], and their `Images`.
        """

        def decode(number):
            image, label = self.read(number)
            return number, self.fit(image), label

        examples = tf.data.Dataset.from_tensor_slices(numbers).map(decode, tf.data.AUTOTUNE)
        return decode_into_memory(examples.ignore_errors(), len(numbers))

    def skip(self, numbers):
        """Records that the images of these numbers, int [any], cannot be read; see `check`."""
        for number in map(int, numbers):
            if number not in self.skipped:
                self.skipped[number] = f"{self.name(number)} cannot be read as an image."
                print(f"skipped: {self.skipped[number]}")
        self.check()

    def check(self):
        """Checks that most images can be read.

        Raises:
            DataError: if more than ten images and more than a tenth of all cannot be read.
        """
        if len(self.skipped) > max(_MOST_SKIPPED, self.count // 10):
            raise DataError(
                f"{len(self.skipped):,} of {self.count:,} images cannot be read, the last: "
                f"{self.name(next(reversed(self.skipped)))}."
            )


class ImageDataset(NamedTuple):
    """Training and test images.

    Fields:
        train, test: `Images` or `StreamedImages`.
        class_names: the name of each label.
        skipped: one line for each file that was skipped because it cannot be read.
    """

    train: Images | StreamedImages
    test: Images | StreamedImages
    class_names: list[str]
    skipped: tuple[str, ...] = ()

    @property
    def input_shape(self):
        """(H, W, C)."""
        return tuple(self.train.image_shape)

    def held_out(self, share, seed=0):
        """Returns this share of the training images as the test images, the rest to train on.

        Args:
            share: in [0, 1); with 0 nothing changes.
            seed: seed for the choice.
        """
        if not share:
            return self
        order = np.random.default_rng(seed).permutation(len(self.train))
        test, train = np.split(order, [round(share * len(order))])
        if not len(test) or not len(train):
            raise DataError(
                f"A share of {share} of {len(order):,} training images leaves none to train on or "
                "none to test on."
            )
        train, test = (self.train.subset(np.sort(part)) for part in (train, test))
        return self._replace(train=train, test=test)

    def preprocessing(self):
        """Returns preprocessing with the size, mean and deviation of the training images."""
        in_memory = isinstance(self.train, Images)
        pixels, _ = self.train.sample(_STATISTICS[0] if in_memory else _STATISTICS[1])
        if not len(pixels):
            raise DataError("None of the training images can be read.")
        # sums of integers are exact, and these copy nothing
        count, squares = pixels[..., 0].size, np.einsum("nhwc,nhwc->c", pixels, pixels, dtype="i8")
        mean = pixels.sum((0, 1, 2), np.int64) / count
        std = np.sqrt(np.maximum(squares / count - mean**2, 0.0))
        *size, channels = self.input_shape
        resized = ImagePreprocessing(tuple(size), channels)
        return dataclasses.replace(
            resized if in_memory else self.train.preprocessing,
            mean=tuple((mean / 255).tolist()),
            std=tuple(np.maximum(std / 255, 1e-3).tolist()),
        )


def digits(seed=0, preprocessing=None, train_examples=None):
    """Loads scikit-learn's 1,797 handwritten digits of 8x8 gray pixels; a fifth is for testing.

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
    own = drawn(split[2], train_examples, seed)
    sets = [Images(split[0][own], split[2][own]), Images(split[1], split[3])]
    if preprocessing is not None:
        sets = [_fitted(part, preprocessing) for part in sets]
    return ImageDataset(*sets, DIGITS)


def drawn(labels, count, seed):
    """The sorted indices of `count` examples, stratified by class; of all if it is None."""
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


def _fitted(images, preprocessing):
    examples = tf.data.Dataset.from_tensor_slices((images.labels, images.pixels, images.labels))
    fitted = examples.map(
        lambda label, pixels, _: (label, preprocessing.fit(pixels), label), tf.data.AUTOTUNE
    )
    return decode_into_memory(fitted, len(images))[1]


def decode_into_memory(examples, count):
    """Reads a data set of about `count` (number, uint8 [H, W, C], label), with a progress bar.

    Returns:
        The numbers and the `Images`, in the order of the data set.
    """
    nothing = [np.zeros((0, *spec.shape), spec.dtype.name) for spec in examples.element_spec]
    batches, size = examples.batch(100).prefetch(2).as_numpy_iterator(), -(-count // 100)
    options = {"unit": "image", "unit_scale": 100, "leave": False, "disable": None}
    progress = tqdm(batches, "reading images", size, **options)
    numbers, pixels, labels = map(np.concatenate, zip(nothing, *progress))
    return numbers, Images(pixels, labels.astype(np.int32))


def evenly_spaced(total, count):
    """Up to `count` evenly spaced numbers below `total`, int64."""
    return np.linspace(0, total - 1, min(count, total)).astype("int64")


def fit_in_memory(count, preprocessing):
    """Whether this number of images is small enough to be decoded once."""
    return count * math.prod(preprocessing.image_size) * preprocessing.channels <= _MEMORY_LIMIT
