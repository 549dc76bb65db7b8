"""Finds or downloads data sets of TensorFlow Datasets."""

import logging
import os
import pathlib

from zoo.errors import DataError
from zoo.files import locked


def prepared_builder(name, data_dir, built_in, own_data):
    """Returns the builder of a prepared data set, and downloads it if needed.

    Args:
        name: TFDS name, such as "cifar10" or "wmt14_translate/de-en".
        data_dir: folder of prepared TFDS data; nothing is written there. If None, TFDS's own
            folder, to which missing data are downloaded.
        built_in: name of a data set that needs no network, for messages.
        own_data: flags for the user's own data, for messages.

    Raises:
        DataError: if the data set is unknown or unavailable; the message names alternatives.
    """
    import tensorflow_datasets as tfds

    if data_dir is not None and not os.path.isdir(data_dir):
        raise DataError(f"There is no folder {data_dir}.")
    try:
        builder = tfds.builder(name, data_dir=data_dir)
    except (tfds.core.DatasetNotFoundError, ValueError, AssertionError) as error:
        reason = str(error).partition("\n")[0]  # the other lines list all data sets
        raise DataError(
            f"TensorFlow Datasets has no data set {name!r}: {reason} `tfds.list_builders()` lists "
            f"its data sets; `{built_in}` is built in. For your own data, pass {own_data}."
        ) from None
    if not builder.is_prepared():
        _download(builder, data_dir, built_in, own_data)
        builder = tfds.builder(name)  # the old one does not see files that another process prepared
    return builder


def supervised_examples(name, data_dir, own_data, types, description):
    """Opens a data set whose two supervised features have these types of `tfds.features`.

    `description` names such examples in messages; for the other arguments see `prepared_builder`.

    Returns:
        The two features; and for train, validation and test each an iterator over the two values of
        each example, or None if there is no such split.
    """
    builder = prepared_builder(name, data_dir, "phrasebook", own_data)
    splits, keys = builder.info.splits, builder.info.supervised_keys or ()
    features = [dict(builder.info.features.items()).get(key) for key in keys]
    if "train" not in splits or len(keys) != 2 or not all(map(isinstance, features, types)):
        raise DataError(f"{name} cannot be used: it needs {description} and a train split.")

    def read(split):
        batches = builder.as_dataset(split=split, shuffle_files=False).batch(1000).prefetch(1)
        for batch in batches.as_numpy_iterator():
            for row in zip(*(batch[key] for key in keys)):
                yield [x.decode() if isinstance(x, bytes) else x for x in row]

    names = ("train", "validation", "test")
    return features, [read(split) if split in splits else None for split in names]


def _download(builder, data_dir, built_in, own_data):
    """Downloads and prepares a data set; the `DataError` if that fails names alternatives."""
    from tensorflow_datasets.core.download import downloader

    # Without a network, TFDS retries for minutes; there is no public setting for it.
    downloader.MAX_RETRIES = 2
    logging.getLogger("urllib3").setLevel(logging.ERROR)
    try:
        if data_dir is not None:
            found = ", ".join(sorted(os.listdir(data_dir))[:5]) or "nothing"
            raise DataError(f"nothing is downloaded to --data-dir, which contains {found}")
        with locked(pathlib.Path(builder.data_path)):  # one of several workers downloads
            builder.download_and_prepare()
    except Exception as error:  # network, disk and server errors of any type
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(
            f"The data set {builder.name} is not on this machine (looked in {builder.data_path}) "
            f"and could not be downloaded: {reason[:200]}\n"
            "Run the same command with a network connection, or with one of:\n"
            f"  --dataset {built_in}, which is built in\n"
            f"  --data-dir FOLDER, a folder in which {builder.info.full_name} is prepared\n"
            f"  {own_data}, your own data"
        ) from None
