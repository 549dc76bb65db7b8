"""Parallel text: the built-in phrasebook, TSV files, pairs of files and TFDS data sets.

Each function returns a `zoo.data.text_rows.TextDataset`, pairs of a sentence and its translation.
If there are no validation or test pairs, about 5 % of the pairs are held out for each, at most
about 2,000. A hash of `seed` and the source decides, so all pairs with the same source are in the
same part. Training pairs with the target of a held-out pair are left out. Texts that differ in
case and spaces only count as the same.
A function raises `DataError` if the data cannot be read or have too few pairs.
"""

import os

from zoo.data.tables import read_table
from zoo.data.text_rows import divided, read_lines
from zoo.data.tfds_data import prepared_builder, supervised_examples
from zoo.errors import DataError

_HELD_OUT = 0.05  # share of the pairs, for validation and test each


def phrasebook(seed=0):
    """Generates the built-in English-Spanish corpus; `seed` determines the pairs and the parts."""
    from zoo.data.phrasebook import phrasebook_pairs

    return divided("The phrasebook", _HELD_OUT, seed, phrasebook_pairs(seed=seed), apart=True)


def tsv(path, seed=0):
    """Reads a UTF-8 file with one pair per line: source, tab, target; other columns are ignored.

    For headers, quotes and CSV files see `zoo.data.tables.read_table`.
    """
    table = read_table(path, "source", "target")
    data = divided(path, _HELD_OUT, seed, table.rows, apart=True)
    return data._replace(notes=(*table.notes, *data.notes))


def parallel_files(source, target, valid=(None, None), test=(None, None), seed=0):
    """Reads pairs of UTF-8 files: each line of the target file translates that of the source file.

    `source` and `target` are the paths of the training files, `valid` and `test` tuples of such
    paths, or of None to hold out training pairs.
    """
    return divided(
        f"{source} and {target}",
        _HELD_OUT,
        seed,
        rows=file_pair(source, target),
        valid=file_pair(*valid) if any(valid) else None,
        test=file_pair(*test) if any(test) else None,
        apart=True,
    )


def file_pair(source, target):
    """Returns the pairs of lines of two files."""
    if source is None or target is None:
        raise DataError(
            "Parallel text needs two files, source and target. "
            f"Received: source={source}, target={target}."
        )
    source_lines = list(read_lines(source))
    target_lines = list(read_lines(target))
    if len(source_lines) != len(target_lines):
        raise DataError(
            "The source and target files must have the same number of lines. "
            f"{source} has {len(source_lines):,}, {target} has {len(target_lines):,}."
        )
    return list(zip(source_lines, target_lines))


def tfds_pairs(name, data_dir=None, seed=0):
    """Loads a data set of TensorFlow Datasets, such as "ted_hrlr_translate/pt_to_en".

    Its supervised keys must be two texts; the first is the source. It needs a "train" split;
    missing "validation" and "test" splits are held out. For `data_dir` see `prepared_builder`.
    """
    import tensorflow_datasets as tfds

    types = (tfds.features.Text, tfds.features.Text)
    _, (train, valid, test) = supervised_examples(name, data_dir, types, "sentence pairs")
    return divided(name, _HELD_OUT, seed, train, valid, test, apart=True)


def tfds_info(name, data_dir=None):
    """Returns the path of the file that describes a prepared data set of TensorFlow Datasets."""
    return os.path.join(prepared_builder(name, data_dir).data_path, "dataset_info.json")
