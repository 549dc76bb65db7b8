"""Reads and splits rows of two texts: a sentence and its translation, or a text and its label.

Rows are streamed, so they may be larger than memory.
"""

import functools
import gzip
import hashlib
import unicodedata
import zlib

from zoo.errors import DataError

_KINDS = {  # the first bytes of files that are not UTF-8 text
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
    b"PAR1": "Parquet",
    b"PK\x03\x04": "a ZIP archive, as .xlsx is",
    b"%PDF": "PDF",
    b"\xfd7zX": "compressed by xz",
    b"\x28\xb5\x2f\xfd": "compressed by zstd",
    b"BZh": "compressed by bzip2",
}
_HEADERS = set(  # names of columns
    "label labels class category sentiment text sentence source target src tgt reference "
    "english spanish german french en de es fr".split()
)
_MAX_HELD_OUT = 2000  # approximate maximum number of rows, for validation and test each


def read_lines(path):
    """Yields the lines of a UTF-8 file, which may be compressed by gzip."""
    try:
        with open(path, "rb") as file:
            head = file.peek(4)[:4]
            kind = next((kind for start, kind in _KINDS.items() if head.startswith(start)), None)
            is_gzip = head.startswith(b"\x1f\x8b")
            if kind or b"\0" in head and not is_gzip:
                raise DataError(
                    f"{path} is not a text in UTF-8, but {kind or 'binary'}. Convert it."
                )
            # Text mode would also split at a lone carriage return, and could not report the line
            # number of a decoding error.
            lines = gzip.GzipFile(fileobj=file) if is_gzip else file
            for number, line in enumerate(lines, start=1):
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"The file {path} cannot be read: {reason}.") from None
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}, line {number:,}, is not UTF-8 ({error.reason} at byte {error.start + 1}). "
            "Convert the file to UTF-8."
        ) from None


def read_tsv(path, columns):
    """Yields the first column and the rest of each line of a UTF-8 file; blank lines are skipped.

    `columns` describes a line for messages, such as "label, tab, text". Raises `DataError` if the
    file begins with a header, or a line has no tab.
    """
    for number, line in enumerate(read_lines(path), start=1):
        first, tab, rest = line.partition("\t")
        if number == 1 and {*line.strip().lower().split("\t")[:2]} <= _HEADERS:
            raise DataError(
                f"{path} begins with a header, {line.strip()!r}: remove its first line."
            )
        if tab:
            yield first, rest
        elif line.strip():
            raise DataError(
                f"{path}, line {number:,}, has no tab. Each line must be: {columns}. "
                f"It begins: {line.strip()[:60]!r}."
            )


class Rows:
    """An iterable of rows that can be iterated several times.

    Yields (first, second), two str: NFC-normalized and stripped. Rows with an empty side are
    skipped; duplicates are kept.

    Args:
        read: function that returns a new iterator of raw rows.
        keep: function of a normalized first text that returns whether to keep its rows.
        held_out: function that returns the hashes of second texts, or of both texts with a tab
            between them, whose rows are left out.

    Attributes:
        left_out: number of rows that were left out because of `held_out` in the last iteration.
        empty: number of rows with an empty side in the last iteration.
    """

    def __init__(self, read, keep=lambda first: True, held_out=frozenset):
        self._read = read
        self._keep = keep
        self._held_out = held_out
        self.left_out = self.empty = 0

    def __iter__(self):
        self.left_out = self.empty = 0
        held_out = self._held_out()
        for row in self._read():
            first, second = (unicodedata.normalize("NFC", text).strip() for text in row)
            if self._keep(first):
                if not (first and second):
                    self.empty += 1
                elif held_out and held_out & {_hash(second), _hash(f"{first}\t{second}")}:
                    self.left_out += 1
                else:
                    yield first, second


def empty_notes(*parts):
    """A tuple of a line about the rows of several `Rows` with an empty side, if there are any."""
    empty = sum(rows.empty for rows in parts)
    return (f"Not used, with an empty column: {empty:,}.",) * bool(empty)


def case_notes(names):
    """A tuple of a line about classes whose names differ only in case or spaces, or of none."""
    first = {}
    other = [name for name in names if first.setdefault(name.strip().casefold(), name) != name]
    return (f"Other classes differ in case or spaces only: {', '.join(other)}.",) * bool(other)


def divided(read, count, share, seed, name, valid=None, test=None, apart=False):
    """Splits rows into training, validation and test rows: a list of three `Rows`.

    The split of a row is decided by a hash of `seed` and its case-folded first text alone, so it is
    the same on every machine, and rows with the same first text are in the same split.

    Args:
        read: function that returns a new iterator of rows.
        count: approximate number of rows.
        share: share to hold out for validation and test each, at most about 2,000 rows.
        seed: seed of the choice.
        name: name of the data, for messages.
        valid, test: functions like `read`; if given, the split is not held out.
        apart: whether to leave out training rows with the second text of a held-out row, and those
            of `valid` and `test`.

    Raises:
        DataError: if a split has no rows.
    """
    share = min(share, _MAX_HELD_OUT / max(count, 1))
    missing = {index for index, part in enumerate((valid, test)) if part is None}

    def part_of(first):
        """0 for validation, 1 for test, 2 for training."""
        part = int(_hash(first, str(seed)) / 2**64 / share)
        return part if part in missing else 2

    def rows_of(part, given=None, **options):
        return Rows(given) if given else Rows(read, lambda x: part_of(x) == part, **options)

    @functools.cache
    def held_out():
        own = Rows(read, lambda x: part_of(x) < 2) if missing else ()
        given = (row for part in (valid, test) if part for row in Rows(part))
        return {_hash(second) for _, second in own} | {_hash("\t".join(row)) for row in given}

    train = rows_of(2, held_out=held_out if apart else frozenset)
    parts = [train, rows_of(0, valid), rows_of(1, test)]
    for purpose, rows in zip(("training", "validation", "test"), parts):
        if next(iter(rows), None) is None:
            copies = f", {rows.left_out:,} of them are held out as well" * bool(rows.left_out)
            raise DataError(
                f"{name}: {count:,} rows give none for {purpose}{copies}. Provide more text, or "
                "separate data for validation and test."
            )
    return parts


def _hash(text, key=""):
    """A 64-bit hash of the case-folded text."""
    digest = hashlib.blake2b(text.casefold().encode(), digest_size=8, key=key.encode()).digest()
    return int.from_bytes(digest, "big")
