"""Image classification data sets of TensorFlow Datasets."""

import os

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from zoo.data.images import ImageSource, StreamedImages
from zoo.data.tfds_download import prepared_builder
from zoo.errors import DataError

_HIDDEN_TEST = ("imagenet2012",)  # data sets whose test split has no labels
# A TFRecord is a length (8 bytes), its checksum (4), the data, and their checksum (4).
_BEFORE, _AFTER = 12, 4


def tfds_images(name, data_dir=None, to_train=True):
    """Finds the images of a data set of TensorFlow Datasets.

    Args:
        name: TFDS name, such as "cifar10". The data set needs labels, a "train" split, and a "test"
            or "validation" split.
        data_dir: folder of prepared TFDS data; nothing is written there. By default TFDS's own
            folder, to which missing data are downloaded.
        to_train: whether the split "train" is required. If False, the training images are the test
            images.

    Returns:
        `zoo.data.images.ImageSource`.

    Raises:
        DataError: if the data set is unknown, unavailable, or has no labeled images.
    """
    import tensorflow_datasets as tfds

    own_images = "--data-dir FOLDER, with train/<class>/*.jpg"
    builder = prepared_builder(name, data_dir, "digits", own_images)
    features, splits = dict(builder.info.features.items()), builder.info.splits
    tests = ("validation", "test") if builder.name in _HIDDEN_TEST else ("test", "validation")
    test = next((split for split in tests if split in splits), None)
    train = "train" if to_train else test
    has_classes = isinstance(features.get("label"), tfds.features.ClassLabel)
    if "image" not in features or not has_classes or train not in splits or not test:
        raise DataError(
            f'{name} cannot be used: it needs the features "image" and "label", with classes, a '
            "train split, and a test or validation split."
        )
    parts = (_stream(builder, split) for split in (train, test))
    *size, channels = features["image"].shape
    unused = ", ".join(sorted({*splits} - {"train", test}))
    notes = (f"Tested on the split {test}. Not used: {unused}.",) * bool(unused)
    names = list(features["label"].names)
    return ImageSource(name, *parts, names, (*size, channels or 3), notes)


def _stream(builder, split):
    """`StreamedImages` of the examples of a split, in the order of its TFRecords."""
    paths = [os.fspath(path) for path in builder.info.splits[split].filepaths]
    places = _places(builder, paths)

    def record(number):
        file, start, size = places[number]
        with open(paths[file], "rb", buffering=0) as records:
            return os.pread(records.fileno(), size, start)

    def read(number):
        import tensorflow_datasets as tfds

        data = tf.ensure_shape(tf.numpy_function(record, [number], tf.string), ())
        skip = {"image": tfds.decode.SkipDecoding()}
        example = builder.info.features.deserialize_example(data, decoders=skip)
        return example["image"], tf.cast(example["label"], tf.int32)

    def name(number):
        file, start, _ = places[number]
        return f"the image at byte {start:,} of {paths[file]}"

    return StreamedImages(np.arange(len(places)), read, name)


def _places(builder, paths):
    """(index of the file, start and number of bytes) of each example: int64 [n, 3]."""
    if builder.info.file_format.value != "tfrecord":
        raise DataError(
            f"{builder.name} is stored in {builder.info.file_format.value} files, but only "
            "TFRecord files can be read by example number. Prepare it with "
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
