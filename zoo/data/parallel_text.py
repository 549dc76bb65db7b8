"""Parallel text: the built-in phrasebook, TSV files, pairs of files and TFDS data sets.

Corpora are streamed, so they may be larger than memory.
"""

import functools
import hashlib
import unicodedata
from typing import NamedTuple

from zoo.data.tfds_download import prepared_builder, split_examples
from zoo.errors import DataError

_HELD_OUT = 0.05  # share of the pairs, for validation and test each
_MOST_HELD_OUT = 2000  # approximate maximum number of pairs or texts, for each of them


class Pairs:
    """An iterable of sentence pairs that can be iterated several times.

    Yields (source, target), two str: NFC-normalized and stripped. Pairs with an empty side are
    skipped; duplicates are kept.

    Args:
        read: function without arguments that returns a new iterator of raw (source, target).
        keep: function of a normalized source that returns whether to keep its pairs.
        held_out: function without arguments that returns the set of `_hash` of the targets of held-
            out pairs; pairs with such a target are left out.

    Fields:
        left_out: number of pairs that were left out for their target in the last iteration.
    """

    def __init__(self, read, keep=lambda source: True, held_out=frozenset):
        self._read = read
        self._keep = keep
        self._held_out = held_out
        self.left_out = 0

    def __iter__(self):
        self.left_out, held_out = 0, self._held_out()
        for source, target in self._read():
            source, target = normalized(source), normalized(target)
            if source and target and self._keep(source):
                if held_out and _hash(target) in held_out:
                    self.left_out += 1
                else:
                    yield source, target


class ParallelText(NamedTuple):
    """Training, validation and test pairs.

    Fields:
        train, valid, test: `Pairs`.
        count: about the number of pairs.
        skipped: one line for each file with lines that are skipped.
    """

    train: Pairs
    valid: Pairs
    test: Pairs
    count: int
    skipped: tuple[str, ...] = ()


def phrasebook(seed=0):
    """Generates the built-in English-Spanish corpus; `seed` determines the pairs and the splits.

    Validation and test pairs are held out by their English sentence, as described in `tsv`.
    """
    from zoo.data.phrasebook import phrasebook_pairs

    pairs = phrasebook_pairs(seed=seed)
    return _split(lambda: iter(pairs), len(pairs), seed, "The phrasebook")


def tsv(path, seed=0):
    """Reads a UTF-8 file with one pair per line: source, tab, target; other columns are ignored.

    Validation and test get about 5 % of the pairs each, at most about 2,000. The split is decided
    by a hash of `seed` and the case-folded source, so all pairs with the same source are in the
    same split. Training pairs with the case-folded target of a held-out pair are left out.

    Lines without a tab are skipped and reported in `skipped`.

    Raises:
        DataError: if the file cannot be read, is not UTF-8, has too few pairs, or has more lines
            without a tab than with one.
    """
    good, bad, first = 0, 0, 0
    for number, line in enumerate(read_lines(path), start=1):
        if "\t" in line:
            good += 1
        elif line.strip():
            bad, first = bad + 1, first or number
    report = f"{path}: {bad:,} lines without a tab; the first is line {first:,}."
    if bad > good:
        raise DataError(
            f"{path}: {bad:,} lines have no tab between source and target, {good:,} have one; "
            f"line {first:,} is the first without one. Each line must be: source, tab, target."
        )

    def read():
        for line in read_lines(path):
            columns = line.split("\t", 2)
            if len(columns) > 1:
                yield columns[0], columns[1]

    return _split(read, good, seed, path, skipped=(report,) if bad else ())


def parallel_files(source, target, valid=None, test=None, seed=0):
    """Reads pairs of UTF-8 files: each line of the target file translates that of the source file.

    Args:
        source, target: paths of the training files.
        valid, test: (source path, target path) each; if not given, the split is held out from the
            training pairs as described in `tsv`.
        seed: seed of the held-out splits.

    Raises:
        DataError: if a file is missing, cannot be read or is not UTF-8, or if the files of a pair
            differ in their number of lines or have too few pairs.
    """
    train, count = _file_pair(source, target)
    valid, test = (
        None if files is None else Pairs(_file_pair(*files)[0]) for files in (valid, test)
    )
    return _split(train, count, seed, f"{source} and {target}", valid, test)


def tfds_pairs(name, data_dir=None, seed=0):
    """Loads a translation data set of TensorFlow Datasets.

    Args:
        name: TFDS name, such as "ted_hrlr_translate/pt_to_en" or "wmt14_translate/de-en". The
            features must be a `tfds.features.Translation`; the first supervised key is the source.
            The data set needs a "train" split; if it has no "validation" or "test" split, that is
            held out from the training pairs as described in `tsv`.
        data_dir: folder of prepared TFDS data; nothing is written there. By default TFDS's own
            folder, to which missing data are downloaded.
        seed: seed of the held-out splits.

    Raises:
        DataError: if the data set is unknown, unavailable, or has no sentence pairs.
    """
    import tensorflow_datasets as tfds

    builder = _tfds_builder(name, data_dir)
    features, splits = builder.info.features, builder.info.splits
    languages = builder.info.supervised_keys
    translation = isinstance(features, tfds.features.Translation) and len(features) == 2
    if not translation or not languages or "train" not in splits:
        raise DataError(f"{name} cannot be used: it needs sentence pairs and a train split.")

    def reader(split):
        return lambda: (
            (source.decode(), target.decode())
            for source, target in split_examples(builder, split, languages)
        )

    valid, test = (
        Pairs(reader(split)) if split in splits else None for split in ("validation", "test")
    )
    return _split(reader("train"), splits["train"].num_examples, seed, name, valid, test)


def tfds_key(name, data_dir=None, seed=0):
    """Part of a cache key: the full name of the data set and, if pairs are held out, the seed."""
    info = _tfds_builder(name, data_dir).info
    return [info.full_name, None if {"validation", "test"} <= info.splits.keys() else seed]


def normalized(text):
    """The text in NFC, without surrounding space."""
    return unicodedata.normalize("NFC", text).strip()


def read_lines(path):
    """Yields the lines of a UTF-8 file."""
    try:
        # Text mode would also split at a lone carriage return, and could not report the line number
        # of a decoding error.
        with open(path, "rb") as file:
            for number, line in enumerate(file, start=1):
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
    except OSError as error:
        raise DataError(f"The file {path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}, line {number:,}, is not UTF-8 ({error.reason} at byte {error.start + 1}). "
            "Convert the file to UTF-8."
        ) from None


def _tfds_builder(name, data_dir):
    return prepared_builder(
        name,
        data_dir,
        built_in=("phrasebook", "English-Spanish sentences that need no network"),
        own_data=("--source FILE --target FILE", "your own text: one sentence per line, UTF-8"),
    )


def _file_pair(source, target):
    """Returns the `read` argument of `Pairs` for two files, and their number of lines."""
    if source is None or target is None:
        raise DataError(
            "Parallel text needs two files, source and target. "
            f"Received: source={source}, target={target}."
        )
    counts = [sum(1 for _ in read_lines(path)) for path in (source, target)]
    if counts[0] != counts[1]:
        raise DataError(
            "The source and target files must have the same number of lines. "
            f"{source} has {counts[0]:,}, {target} has {counts[1]:,}."
        )
    return lambda: zip(read_lines(source), read_lines(target)), counts[0]


def _split(read, count, seed, name, valid=None, test=None, skipped=()):
    """Holds out `valid` and `test` if not given; `count` is roughly the number of pairs."""
    slot = held_out_slot(seed, _HELD_OUT, count)
    missing = {index for index, part in enumerate((valid, test)) if part is None}

    @functools.cache
    def held_out():
        return {_hash(target) for _, target in Pairs(read, lambda source: slot(source) in missing)}

    train = Pairs(read)
    if missing:
        train = Pairs(read, lambda source: slot(source) not in missing, held_out)
    valid, test = (
        part or Pairs(read, lambda source, index=index: slot(source) == index)
        for index, part in enumerate((valid, test))
    )
    text = ParallelText(train, valid, test, count, skipped)
    for purpose, pairs in zip(("training", "validation", "test"), text[:3]):
        if next(iter(pairs), None) is None:
            raise DataError(
                f"{name}: {count:,} lines give no sentence pair for {purpose}. "
                "Provide more text, or files for validation and test."
            )
    return text


def held_out_slot(seed, share, count):
    """Returns a function of a text: 0 if it is held out for validation, 1 for test, else more.

    That depends on `seed` and the case-folded text alone, on every machine and in every run. Each
    gets `share` of the texts, but of `count` texts about 2,000 at most.
    """
    share = min(share, _MOST_HELD_OUT / max(count, 1))
    return lambda text: int(_hash(text, str(seed)) / 2**64 / share)


def _hash(text, key=""):
    """A hash of 64 bits of the case-folded text."""
    digest = hashlib.blake2b(text.casefold().encode(), digest_size=8, key=key.encode()).digest()
    return int.from_bytes(digest, "big")
