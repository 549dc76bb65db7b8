"""Parallel text: the built-in phrasebook, TSV files, pairs of files and TFDS data sets.

Each function returns `zoo.data.text_rows.Divided`, pairs of a sentence and its translation.
"""

from zoo.data.text_rows import divided, read_lines, read_tsv
from zoo.data.tfds_download import prepared_builder, supervised_examples
from zoo.errors import DataError

_HELD_OUT = 0.05  # share of the pairs, for validation and test each
_OWN_DATA = "--tsv FILE, or --source FILE --target FILE"


def phrasebook(seed=0):
    """Generates the built-in English-Spanish corpus; `seed` determines the pairs and the splits.

    Validation and test pairs are held out by their English sentence, as described in `tsv`.
    """
    from zoo.data.phrasebook import phrasebook_pairs

    return _divided(phrasebook_pairs(seed=seed), seed, "The phrasebook")


def tsv(path, seed=0):
    """Reads a UTF-8 file with one pair per line: source, tab, target; other columns are ignored.

    Validation and test get about 5 % of the pairs each, at most about 2,000. The split is decided
    by a hash of `seed` and the case-folded source, so all pairs with the same source are in the
    same split. Training pairs with the case-folded target of a held-out pair are left out.

    Raises:
        DataError: if the file cannot be read, is not UTF-8, has a line without a tab or too few
            pairs.
    """
    return _divided(tsv_pairs(path), seed, path)


def tsv_pairs(path):
    """Yields the (source, target) of each line of a file; see `tsv`."""
    for source, rest in read_tsv(path, "source, tab, target"):
        yield source, rest.split("\t", 1)[0]


def parallel_files(source, target, valid=None, test=None, seed=0):
    """Reads pairs of UTF-8 files: each line of the target file translates that of the source file.

    Args:
        source, target: paths of the training files.
        valid, test: (source path, target path) each, whose pairs are not trained on; by default,
            the split is held out from the training pairs as described in `tsv`.
        seed: seed of the held-out splits.

    Raises:
        DataError: if a file is missing, cannot be read or is not UTF-8, or if the files of a pair
            differ in their number of lines or have too few pairs.
    """
    valid, test = (files and file_pair(*files) for files in (valid, test))
    return _divided(file_pair(source, target), seed, f"{source} and {target}", valid, test)


def tfds_pairs(name, data_dir=None, seed=0):
    """Loads a translation data set of TensorFlow Datasets.

    Args:
        name: TFDS name, such as "ted_hrlr_translate/pt_to_en" or "wmt14_translate/de-en". The
            supervised keys must be two texts; the first is the source. The data set needs a "train"
            split; if it has no "validation" or "test" split, that is held out from the training
            pairs as described in `tsv`.
        data_dir: folder of prepared TFDS data; nothing is written there. By default TFDS's own
            folder, to which missing data are downloaded.
        seed: seed of the held-out splits.

    Raises:
        DataError: if the data set is unknown, unavailable, or has no sentence pairs.
    """
    import tensorflow_datasets as tfds

    types = [tfds.features.Text] * 2
    _, parts = supervised_examples(name, data_dir, _OWN_DATA, types, "sentence pairs")
    return _divided(parts[0], seed, name, *parts[1:])


def tfds_version(name, data_dir=None):
    """Returns the full name of a data set of TensorFlow Datasets, with its version."""
    return prepared_builder(name, data_dir, "phrasebook", _OWN_DATA).info.full_name


def file_pair(source, target):
    """Returns the pairs of lines of two files."""
    if source is None or target is None:
        raise DataError(
            "Parallel text needs two files, source and target. "
            f"Received: source={source}, target={target}."
        )
    sides = [list(read_lines(path)) for path in (source, target)]
    if len(sides[0]) != len(sides[1]):
        raise DataError(
            "The source and target files must have the same number of lines. "
            f"{source} has {len(sides[0]):,}, {target} has {len(sides[1]):,}."
        )
    return list(zip(*sides))


def _divided(pairs, seed, *rest):
    return divided(pairs, _HELD_OUT, seed, *rest, apart=True)
