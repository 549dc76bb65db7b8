"""TensorFlow Datasets without a network."""

import tensorflow_datasets as tfds


def disconnect(monkeypatch):
    """Makes all data sets of TFDS need a download, and every download fail."""

    def no_network(self, **options):
        raise ConnectionError("no route")

    monkeypatch.setattr(tfds.core.DatasetBuilder, "download_and_prepare", no_network)
    monkeypatch.setattr(tfds.core.DatasetBuilder, "is_prepared", lambda self: False)
