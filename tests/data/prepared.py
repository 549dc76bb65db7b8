"""Data sets as TensorFlow Datasets prepares them."""

import tensorflow_datasets as tfds


class WithKeys(tfds.dataset_builders.AdhocBuilder):
    def __init__(self, keys, **options):
        self.keys = keys
        super().__init__(**options)

    def _info(self):
        return tfds.core.DatasetInfo(
            builder=self, features=self._feature_spec, supervised_keys=self.keys
        )


def prepare(folder, name, features, splits, keys=None, files=1):
    """Writes a data set of {split: examples} to a folder.

    Args:
        keys: its supervised keys.
        files: number of files of each split.
    """
    examples = {split: list(enumerate(rows)) for split, rows in splits.items()}
    options = {"name": name, "version": "1.0.0", "features": features, "data_dir": folder}
    files = tfds.download.DownloadConfig(num_shards=files)
    builder = WithKeys(keys, split_datasets=examples, **options)
    builder.download_and_prepare(download_config=files)
    return folder
