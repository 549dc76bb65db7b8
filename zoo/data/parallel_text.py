"""Parallel text: the built-in phrasebook, TSV files, pairs of files and TFDS data sets.

Everything is a stream: a corpus may be larger than memory.
"""

import hashlib
import unicodedata
from typing import NamedTuple

from zoo.data.tfds_download import prepared_builder
from zoo.errors import DataError

_HELD_OUT = 0.05  # of the pairs for validation, and as much for test,
_MOST_HELD_OUT = 2000  # but about that many pairs at most


class Pairs:
    """Sentence pairs, read anew each time they are gone through.

    Yields (source, target), two str: NFC-normalised, without white space at their ends. A pair with
    an empty side is left out; a pair that occurs twice is yielded twice.

    Args:
        read: function without arguments that returns a new iterator of raw (source, target).
        wanted: function that tells of a normalised source whether its pairs are among these.
    """

    def __init__(self, read, wanted=lambda source: True):
        self._read = read
        self._wanted = wanted

    def __iter__(self):
        for source, target in self._read():
            source, target = _normalised(source), _normalised(target)
            if source and target and self._wanted(source):
                yield source, target


class ParallelText(NamedTuple):
    """Sentence pairs to train on, to validate on and to test on.

    Fields:
        train, valid, test: see `Pairs`.
        skipped: one line for each file of which something could not be used and is left out.
    """

    train: Pairs
    valid: Pairs
    test: Pairs
    skipped: tuple[str, ...] = ()


def phrasebook(seed=0):
    """The built-in English-Spanish corpus, generated; `seed` draws the pairs and the parts.

    Validation and test are chosen by the English sentence, as described in `tsv`.
    """
    from zoo.data.phrasebook import phrasebook_pairs

    pairs = phrasebook_pairs(seed=seed)
    return _split(lambda: iter(pairs), len(pairs), seed, "The phrasebook")


def tsv(path, seed=0):
    """A UTF-8 file with a pair in each line: source, tab, target; further columns are ignored.

    Validation and test are each about 5 % of the pairs, at most about 2,000. A hash of the source
    alone, without regard to case, and of `seed` decides: all pairs of one source are in one part,
    whatever their targets and wherever they stand.

    A line without a tab is left out and reported in `skipped`, as long as most lines have one.

    Raises:
        DataError: if the file cannot be read, is not UTF-8, has too few pairs, or if more lines are
            without a tab than with one.
    """
    good, bad, first = 0, 0, 0
    for number, line in enumerate(_lines(path), start=1):
        if "\t" in line:
            good += 1
        elif line.strip():
            bad, first = bad + 1, first or number
    report = f"{path}: lines without a tab are left out: {bad:,}; the first is line {first:,}."
    if bad > good:
        raise DataError(
            f"{path}: {bad:,} lines have no tab between source and target, {good:,} have one; "
            f"line {first:,} is the first without. Each line should be: source, tab, target."
        )

    def read():
        for line in _lines(path):
            columns = line.split("\t", 2)
            if len(columns) > 1:
                yield columns[0], columns[1]

    return _split(read, good, seed, path, skipped=(report,) if bad else ())


def parallel_files(source, target, valid=None, test=None, seed=0):
    """Two UTF-8 files of as many lines: a line of one translates that line of the other.

    Args:
        source, target: paths of the files to train on.
        valid, test: (source path, target path) each; what is not given is held out of the training
            files as described in `tsv`.
        seed: of what is held out.

    Raises:
        DataError: if a file cannot be read or is not UTF-8, if one of two is not given, if two
            differ in their number of lines or have too few pairs.
    """
    train, count = _file_pair(source, target)
    valid, test = (
        None if files is None else Pairs(_file_pair(*files)[0]) for files in (valid, test)
    )
    return _split(train, count, seed, f"{source} and {target}", valid, test)


def tfds_pairs(name, data_dir=None, seed=0):
    """A translation data set of TensorFlow Datasets.

    Args:
        name: as TFDS has it, such as "ted_hrlr_translate/pt_to_en" or "wmt14_translate/de-en". Its
            features are a `tfds.features.Translation`; the first of its supervised keys is the
            source. Its splits are "train", "validation" and "test"; one of the latter that it has
            not is held out of the training pairs as described in `tsv`.
        data_dir: folder of prepared TFDS data, in which nothing is written; TFDS's own default if
            not given, to which the data are then downloaded if they are missing.
        seed: of what is held out.

    Raises:
        DataError: if the data set is unknown, not to be had, or not of sentence pairs.
    """
    import tensorflow_datasets as tfds

    builder = prepared_builder(
        name,
        data_dir,
        built_in=("phrasebook", "English-Spanish sentences that need no network"),
        own_data=("--source FILE --target FILE", "your own text: a sentence in each line, UTF-8"),
    )
    features, splits = builder.info.features, builder.info.splits
    languages = builder.info.supervised_keys
    translation = isinstance(features, tfds.features.Translation) and len(features) == 2
    if not translation or not languages or "train" not in splits:
        raise DataError(f"{name} is no data set of sentence pairs with a train split.")

    def reader(split):
        def read():
            examples = builder.as_dataset(split=split, shuffle_files=False)
            for batch in examples.batch(1000).prefetch(1).as_numpy_iterator():
                for texts in zip(*(batch[language] for language in languages)):
                    yield tuple(text.decode() for text in texts)

        return read

    valid, test = (
        Pairs(reader(split)) if split in splits else None for split in ("validation", "test")
    )
    return _split(reader("train"), splits["train"].num_examples, seed, name, valid, test)


def _normalised(text):
    return unicodedata.normalize("NFC", text).strip()


def _lines(path):
    """The lines of a UTF-8 file."""
    try:
        # Text mode would also end lines at a lone carriage return, and would not tell the number
        # of a bad one.
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


def _file_pair(source, target):
    """What reads the pairs of two files, for `Pairs`, and their number of lines."""
    if source is None or target is None:
        raise DataError(
            "Parallel text is two files, source and target. "
            f"Received: source={source}, target={target}."
        )
    counts = [sum(1 for _ in _lines(path)) for path in (source, target)]
    if counts[0] != counts[1]:
        raise DataError(
            "Lines of parallel files belong together, so there must be as many in both. "
            f"{source} has {counts[0]:,}, {target} has {counts[1]:,}."
        )
    return lambda: zip(_lines(source), _lines(target)), counts[0]


def _split(read, count, seed, name, valid=None, test=None, skipped=()):
    """Holds out what is not given of `valid` and `test`; `count` is about the number of pairs."""
    share = min(_HELD_OUT, _MOST_HELD_OUT / max(count, 1))
    missing = {index for index, part in enumerate((valid, test)) if part is None}

    def slot(source):
        """0 for validation, 1 for test, more for training: `share` of the sources each."""
        return int(_position(source, seed) / share)

    train = Pairs(read, lambda source: slot(source) not in missing) if missing else Pairs(read)
    if valid is None:
        valid = Pairs(read, lambda source: slot(source) == 0)
    if test is None:
        test = Pairs(read, lambda source: slot(source) == 1)
    text = ParallelText(train, valid, test, tuple(skipped))
    for purpose, pairs in zip(("training", "validation", "test"), text):
        if next(iter(pairs), None) is None:
            raise DataError(
                f"{name}: of {count:,} lines there is no pair of sentences for {purpose}. "
                "Give more text, or files for validation and test."
            )
    return text


def _position(source, seed):
    """Where a source falls in [0, 1): the same on every machine and in every run."""
    key = str(seed).encode()
    digest = hashlib.blake2b(source.casefold().encode(), digest_size=8, key=key).digest()
    return int.from_bytes(digest, "big") / 2**64
