"""Data sets of TensorFlow Datasets: finds or downloads them, reads images and pairs of texts."""

import logging
import os
import pathlib

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from zoo.data.images import HELD_OUT, ImageDataset, Images, hold_out
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


def tfds_images(name, data_dir=None, seed=0, to_train=True):
    """Finds the images of a data set with labels: `zoo.data.images.ImageDataset`.

    The test images are those of the split "test", or else "validation", if it has labels. Otherwise
    a tenth of each class of the split "train" is held out, see `zoo.data.images.hold_out`.

    Args:
        name, data_dir: see `prepared_builder`.
        seed: seed for the choice of held-out images.
        to_train: if False, no "train" split is needed beside another: its images are returned for
            training and for testing.

    Raises:
        DataError: see `prepared_builder`; if there are no labels, no "train" split, or, if
            `to_train` is False, splits to test on without labels.
    """
    builder = prepared_builder(name, data_dir)
    splits = builder.info.splits
    _check_images(builder)
    candidates = [split for split in _test_splits(builder) if split in splits]
    tested = next((s for s in candidates if _has_labels(_stream(builder, s))), None)
    if candidates and tested is None and not to_train:
        raise DataError(
            f"{name} has no labels to test on: all those of the split {' and '.join(candidates)} "
            "are -1."
        )
    if "train" not in splits and (to_train or tested is None):
        raise DataError(f"{name} cannot be used: it has no train split with labels.")
    if tested is None:
        return _held_out(builder, seed)
    trained = "train" if to_train else tested
    notes = ()
    unused = sorted({*splits} - {trained, tested})
    if unused:
        notes = (f"Tested on the split {tested}. Not used: {', '.join(unused)}.",)
    return _dataset(builder, _stream(builder, trained), _stream(builder, tested), notes)


def _held_out(builder, seed):
    """The `ImageDataset` of a data set without test images."""
    train, unlabeled = _stream(builder, "train").labeled("training")
    names = builder.info.features["label"].names
    train, test, notes = hold_out(train, names, seed)
    note = f"Tested on {HELD_OUT:.0%} of the split train, as there is no other with labels."
    return _dataset(builder, train, test, (note, *unlabeled, *notes), seed)


def _dataset(builder, train, test, notes, seed=None):
    features = builder.info.features
    height, width, channels = features["image"].shape
    return ImageDataset(
        train=train,
        test=test,
        class_names=list(features["label"].names),
        source_shape=(height, width, channels or 3),
        notes=notes,
        seed=seed,
    )


def _check_images(builder):
    """Raises `DataError` if a data set does not have images and classes."""
    import tensorflow_datasets as tfds

    features = dict(builder.info.features.items())
    if "image" not in features or not isinstance(features.get("label"), tfds.features.ClassLabel):
        raise DataError(
            f'{builder.name} cannot be used: it needs the features "image" and "label", with '
            "classes."
        )


def _test_splits(builder):
    """The names of splits to test on, the first with labels."""
    if builder.name in _HIDDEN_TEST:  # looking for labels would read all images
        return "validation", "test"
    return "test", "validation"


def _has_labels(images):
    """Whether an image has a label; reads only images before it."""
    for start in range(0, len(images), 1000):
        if (images.subset(slice(start, start + 1000)).labels >= 0).any():
            return True
    return False


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
