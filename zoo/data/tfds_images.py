"""Image classification data sets of TensorFlow Datasets."""

import os

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from zoo.data import images
from zoo.data.preprocessing import ImagePreprocessing
from zoo.data.tfds_download import prepared_builder
from zoo.errors import DataError

_CLASS_NAMES = {  # for data sets that TFDS may have prepared without class names
    "cifar10": "airplane automobile bird cat deer dog frog horse ship truck".split(),
}
_HIDDEN_TEST = ("imagenet2012",)  # data sets whose test split has no labels
# A TFRecord is its length (8 bytes), a checksum of it (4), the data, and a checksum of them (4).
_BEFORE, _AFTER = 12, 4


def tfds_images(
    name,
    data_dir=None,
    image_size=None,
    seed=0,
    preprocessing=None,
    train_examples=None,
    streamed=False,
):
    """Finds the images of a data set of TensorFlow Datasets.

    A small set is decoded up front; a large one is read from the record files on demand.

    Args:
        name: TFDS name, such as "cifar10". The data set needs labels, a "train" split, and a "test"
            or "validation" split.
        data_dir: folder of prepared TFDS data; nothing is written there. By default TFDS's own
            folder, to which missing data are downloaded.
        image_size: (H, W) to resize the images to; required if they differ in size.
        seed: seed for the choice of training images.
        preprocessing, train_examples, streamed: see `zoo.data.image_folder.image_folder`.

    Returns:
        `zoo.data.images.ImageDataset`.

    Raises:
        DataError: if the data set is unknown, unavailable, or has no labeled images.
    """
    builder = _builder(name, data_dir)
    features, splits = builder.info.features, builder.info.splits
    tests = ("validation", "test") if builder.name in _HIDDEN_TEST else ("test", "validation")
    test = next((split for split in tests if split in splits), None)
    if "image" not in features or "train" not in splits or not test:
        raise DataError(
            f"{name} cannot be used: it needs images, a train split, and a test or validation "
            "split."
        )
    shape = features["image"].shape
    if image_size is None and preprocessing is None:
        if None in shape:
            raise DataError(f"The images of {name} differ in size. Pass --image-size.")
        image_size = shape[:2]
    preprocessing = preprocessing or ImagePreprocessing(tuple(image_size), shape[-1] or 3)
    sets = (_stream(builder, split, preprocessing) for split in ("train", test))
    return images.dataset(*sets, _class_names(builder), seed, train_examples, streamed)


def tfds_classes(name, data_dir=None):
    """The class names of a data set of `tfds_images`."""
    return _class_names(_builder(name, data_dir))


def _builder(name, data_dir):
    import tensorflow_datasets as tfds

    builder = prepared_builder(
        name,
        data_dir,
        built_in=("digits", "1,797 handwritten digits that need no network"),
        own_data=("--data-dir FOLDER", "your own images: train/<class>/*.jpg"),
    )
    features = builder.info.features
    if "label" not in features or not isinstance(features["label"], tfds.features.ClassLabel):
        raise DataError(
            f'{builder.name} cannot be used: its images need a feature "label" with classes.'
        )
    return builder


def _class_names(builder):
    names = list(builder.info.features["label"].names)
    unnamed = names == [str(label) for label in range(len(names))]
    return list(_CLASS_NAMES.get(builder.name, names)) if unnamed else names


def _stream(builder, split, preprocessing):
    """`StreamedImages` of the examples of a split, in the order of its TFRecords."""
    paths = [os.fspath(path) for path in builder.info.splits[split].filepaths]
    places = _places(builder, paths)

    def record(number):
        file, start, size = places[number]
        descriptor = os.open(paths[file], os.O_RDONLY)
        try:
            return os.pread(descriptor, size, start)
        finally:
            os.close(descriptor)

    def read(number):
        import tensorflow_datasets as tfds

        data = tf.ensure_shape(tf.numpy_function(record, [number], tf.string), ())
        skip = {"image": tfds.decode.SkipDecoding()}
        example = builder.info.features.deserialize_example(data, decoders=skip)
        return example["image"], tf.cast(example["label"], tf.int32)

    def name(number):
        file, start, _ = places[number]
        return f"the image at byte {start:,} of {paths[file]}"

    return images.StreamedImages(len(places), read, name, preprocessing)


def _places(builder, paths):
    """(file, start, size) of the data of each example: int64 [n, 3]."""
    if builder.info.file_format.value != "tfrecord":
        raise DataError(
            f"{builder.name} is stored as {builder.info.file_format.value} files, "
            "and only TFRecord files can be read by example number. Prepare it with "
            'tfds.builder(..., file_format="tfrecord").'
        )
    places = []
    for file, path in enumerate(tqdm(paths, "finding records", leave=False, disable=None)):
        size = os.path.getsize(path)
        with open(path, "rb", buffering=0) as records:
            position = 0
            while position < size:
                length = int.from_bytes(os.pread(records.fileno(), 8, position), "little")
                places.append((file, position + _BEFORE, length))
                position += _BEFORE + length + _AFTER
    return np.array(places, np.int64)
