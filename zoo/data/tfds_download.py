"""Data sets of TensorFlow Datasets: there already, downloaded, or what else to do."""

import logging
import os

from zoo.errors import DataError


def prepared_builder(name, data_dir, built_in, own_data):
    """The builder of a data set that is ready to be read.

    Args:
        name: as TFDS has it, such as "cifar10" or "wmt14_translate/de-en".
        data_dir: folder of prepared TFDS data, in which nothing is written; TFDS's own default if
            None, to which the data are then downloaded if they are missing.
        built_in: (name of a data set that needs no network, what it is).
        own_data: (flags that name the user's own data, what they are).

    Raises:
        DataError: if the data set is unknown or not to be had; the message names the ways on.
    """
    import tensorflow_datasets as tfds

    if data_dir is not None and not os.path.isdir(data_dir):
        raise DataError(f"There is no folder {data_dir}.")
    try:
        builder = tfds.builder(name, data_dir=data_dir)
    except tfds.core.DatasetNotFoundError:
        raise DataError(
            f"TensorFlow Datasets knows no data set {name!r}. `tfds.list_builders()` lists those "
            f"it knows; `{built_in[0]}` is built in."
        ) from None
    except (ValueError, AssertionError) as error:  # a malformed name, no such config or version
        raise DataError(f"TensorFlow Datasets cannot find {name!r}. {error}") from None
    if not builder.is_prepared():
        _download(builder, data_dir is None, built_in, own_data)
    return builder


def _download(builder, allowed, built_in, own_data):
    """Downloads and prepares the data set; says what else can be done if that fails."""
    from tensorflow_datasets.core.download import downloader

    # TFDS tries again for minutes where there is no network; there is no public setting for it.
    downloader.MAX_RETRIES = 2
    logging.getLogger("urllib3").setLevel(logging.ERROR)
    try:
        if not allowed:
            raise DataError("nothing is downloaded into --data-dir")
        builder.download_and_prepare()
    except Exception as error:  # whatever the network, the disk or the data set's server raise
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        prepared = f"prepared TFDS data, the folder that holds {builder.info.full_name}"
        ways = [
            (f"--dataset {built_in[0]}", built_in[1]),
            ("--data-dir FOLDER", prepared),
            own_data,
        ]
        width = max(len(flags) for flags, _ in ways)
        raise DataError(
            f"The data set {builder.name} is not on this machine (looked in {builder.data_path}) "
            f"and could not be downloaded: {reason[:200]}\nWays on:\n"
            + "".join(f"  {flags:{width}}   {what}\n" for flags, what in ways)
            + "  or run this again where there is a network."
        ) from None
