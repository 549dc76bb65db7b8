"""Data sets of TensorFlow Datasets: finds or downloads them, reads images and pairs of texts."""

import logging
import os
import pathlib

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from zoo.data.images import ImageDataset, Images
from zoo.errors import DataError
from zoo.files import as_path, check_utf8, locked

_ADVICE = "Built in are digits (images) and phrasebook (texts). For your own data, see --help."
_HIDDEN_TEST = ("imagenet2012",)  # data sets whose test split has no labels


def prepared_builder(name, data_dir):
    """Returns the builder of a prepared data set, and downloads it if needed.

    Args:
        name: TFDS name, such as "cifar10" or "wmt14_translate/de-en".
        data_dir: folder of prepared TFDS data; nothing is written there. If None, TFDS's own
            folder, to which missing data are downloaded.

    Raises:
        DataError: if the data set is unknown or unavailable.
    """
    import tensorflow_datasets as tfds

    if data_dir is not None:
        data_dir = as_path(data_dir)
        check_utf8(data_dir)
        if not data_dir.is_dir():
            raise DataError(f"There is no folder {data_dir}.")
    try:
        builder = tfds.builder(name, data_dir=data_dir)
    except (tfds.core.DatasetNotFoundError, ValueError, AssertionError) as error:
        reason = str(error).partition("\n")[0]  # the other lines list all data sets
        raise DataError(
            f"TensorFlow Datasets has no data set {name!r}: {reason} `tfds.list_builders()` lists "
            f"its data sets. {_ADVICE}"
        ) from None
    if not builder.is_prepared():
        if data_dir is not None:
            raise DataError(
                f"{builder.info.full_name} is not prepared in {data_dir} (looked in "
                f"{builder.data_path}). Nothing is downloaded to --data-dir; without it, the data "
                "set is downloaded to the default folder of TensorFlow Datasets. If the path has a "
                "bracket, rename that folder: TensorFlow Datasets takes it for a pattern."
            )
        _download(builder)
        builder = tfds.builder(name)  # the old one does not see files that another process prepared
    return builder


def _download(builder):
    """Downloads and prepares a data set; the `DataError` if that fails names alternatives."""
    from tensorflow_datasets.core.download import downloader

    # Without a network, TFDS retries for minutes; there is no public setting for it.
    downloader.MAX_RETRIES = 2
    logging.getLogger("urllib3").setLevel(logging.ERROR)
    try:
        with locked(pathlib.Path(builder.data_path)):  # one of several workers downloads
            builder.download_and_prepare()
    except Exception as error:  # network, disk and server errors of any type
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(
            f"The data set {builder.name} is not on this machine (looked in {builder.data_path}) "
            f"and could not be downloaded: {reason[:200]}\nRun the same command with a network "
            f"connection, or pass --data-dir FOLDER, in which {builder.info.full_name} is "
            f"prepared. {_ADVICE}"
        ) from None


def supervised_examples(name, data_dir, types, description):
    """Opens a data set whose two supervised features have these types of `tfds.features`.

    `description` names such examples in messages; for the other arguments see `prepared_builder`.

    Returns:
        The two features; and for train, validation and test each an iterator over the two values of
        each example, or None if there is no such split.
    """
    builder = prepared_builder(name, data_dir)
    splits = builder.info.splits
    keys = builder.info.supervised_keys or ()
    all_features = dict(builder.info.features.items())
    features = [all_features.get(key) for key in keys]
    if "train" not in splits or len(keys) != 2 or not all(map(isinstance, features, types)):
        raise DataError(f"{name} cannot be used: it needs {description} and a train split.")

    def read(split):
        batches = builder.as_dataset(split=split, shuffle_files=False).batch(1000).prefetch(1)
        for batch in batches.as_numpy_iterator():
            for first, second in zip(*(batch[key] for key in keys)):
                yield _as_text(first), _as_text(second)

    names = ("train", "validation", "test")
    return features, [read(name) if name in splits else None for name in names]


def _as_text(value):
    return value.decode() if isinstance(value, bytes) else value


def tfds_images(name, data_dir=None, to_train=True):
    """Finds the images of a data set with labels: `zoo.data.images.ImageDataset`.

    It needs a "train" split, and a "test" or "validation" split. For `name`, `data_dir` and errors
    see `prepared_builder`. If `to_train` is False, no training images are needed: they are the test
    images.
    """
    import tensorflow_datasets as tfds

    builder = prepared_builder(name, data_dir)
    features = dict(builder.info.features.items())
    splits = builder.info.splits
    test = _test_split(builder)
    train = "train" if to_train else test
    has_classes = isinstance(features.get("label"), tfds.features.ClassLabel)
    if "image" not in features or not has_classes or train not in splits or test is None:
        raise DataError(
            f'{name} cannot be used: it needs the features "image" and "label", with classes, a '
            "train split, and a test or validation split."
        )
    height, width, channels = features["image"].shape
    notes = ()
    unused = sorted({*splits} - {"train", test})
    if unused:
        notes = (f"Tested on the split {test}. Not used: {', '.join(unused)}.",)
    return ImageDataset(
        train=_stream(builder, train),
        test=_stream(builder, test),
        class_names=list(features["label"].names),
        source_shape=(height, width, channels or 3),
        notes=notes,
    )


def _test_split(builder):
    """The name of the split to test on, or None."""
    names = ("test", "validation")
    if builder.name in _HIDDEN_TEST:
        names = ("validation", "test")
    for name in names:
        if name in builder.info.splits:
            return name
    return None


def _stream(builder, split):
    """`Images` of the examples of a split, in the order of its TFRecords.

    Examples are read by number. `as_data_source` of TFDS cannot do that with TFRecord files, the
    default format of TFDS.
    """
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

    return Images(np.arange(len(places)), read, name)


def _places(builder, paths):
    """Finds the examples in files: (index of the file, start, number of bytes), int64 [n, 3]."""
    if builder.info.file_format.value != "tfrecord":
        raise DataError(
            f"{builder.name} is stored in {builder.info.file_format.value} files, but only "
            "TFRecord files can be read by example number. Prepare it with "
            'tfds.builder(..., file_format="tfrecord").'
        )
    places = []
    for file, path in enumerate(tqdm(paths, "finding records", leave=False, disable=None)):
        with open(path, "rb", buffering=0) as records:
            # A record is a length (8 bytes), its checksum (4), the data, and their checksum (4).
            while True:
                length = int.from_bytes(records.read(8), "little")
                if length == 0:  # the end of the file
                    break
                places.append((file, records.tell() + 4, length))
                records.seek(4 + length + 4, os.SEEK_CUR)
    return np.array(places, np.int64)
