"""Data sets of TFDS that are not there: the message, and one download for several workers."""

import concurrent.futures
import time

import pytest
import tensorflow_datasets as tfds

from zoo.data.labeled_text import tfds_texts
from zoo.data.parallel_text import tfds_pairs
from zoo.data.tfds_data import prepared_builder, tfds_images
from zoo.errors import DataError


@pytest.mark.parametrize(
    "read, name",
    [
        (tfds_images, "cifar10"),
        (tfds_pairs, "ted_hrlr_translate/pt_to_en"),
        (tfds_texts, "ag_news_subset"),
    ],
)
def test_data_sets_that_are_not_there(read, name, tmp_path, monkeypatch):
    with pytest.raises(DataError, match="has no data set 'no_such_thing'.*digits.*phrasebook"):
        read("no_such_thing")
    with pytest.raises(DataError, match="has no data set 'ted_hrlr_translate/xx_to_yy': .*--help"):
        read("ted_hrlr_translate/xx_to_yy")
    with pytest.raises(DataError, match="There is no folder .*missing"):
        read(name, tmp_path / "missing")

    def no_network(self, **options):
        raise ConnectionError("no route")

    monkeypatch.setattr(tfds.core.DatasetBuilder, "download_and_prepare", no_network)
    monkeypatch.setattr(tfds.core.DatasetBuilder, "is_prepared", lambda self: False)
    message = f"(?s)no route.*--data-dir.*{name}/[0-9].*digits.*phrasebook.*--help"
    with pytest.raises(DataError, match=message):
        read(name)
    with pytest.raises(DataError, match="is not prepared in .*Nothing is downloaded"):
        read(name, tmp_path)
    assert not any(tmp_path.iterdir())


def test_several_workers_download_a_data_set_once(tmp_path, monkeypatch):
    downloads = []

    class Builder:
        name, data_path = "slow", tmp_path / "slow"

        def __init__(self):
            self._is_prepared = bool(downloads)

        def is_prepared(self):
            return self._is_prepared

        def download_and_prepare(self):
            if not downloads:  # TFDS looks at the files
                time.sleep(0.5)
                downloads.append(self.name)

    monkeypatch.setattr(tfds, "builder", lambda name, data_dir=None: Builder())
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        builders = list(pool.map(lambda _: prepared_builder("slow", None), range(3)))
    assert all(builder.is_prepared() for builder in builders) and downloads == ["slow"]
