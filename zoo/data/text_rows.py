"""Reads and divides rows of two texts: a sentence and its translation, or a text and its label."""

import gzip
import hashlib
import unicodedata
import zlib
from typing import NamedTuple

from zoo.errors import DataError

_HEADERS = set(  # names of columns
    "label labels class category sentiment text sentence source target src tgt reference "
    "english spanish german french en de es fr".split()
)
_MAX_HELD_OUT = 2000  # approximate maximum number of rows, for validation and test each


def read_lines(path):
    """Yields the lines of a UTF-8 file, which may be compressed by gzip."""
    try:
        with open(path, "rb") as file:
            is_gzip = file.peek(2)[:2] == b"\x1f\x8b"
            # Text mode would also split at a lone carriage return, and could not report the line
            # number of a decoding error.
            lines = gzip.GzipFile(fileobj=file) if is_gzip else file
            for number, line in enumerate(lines, start=1):
                if number == 1 and b"\0" in line[:4]:
                    raise DataError(f"{path} is UTF-16 or binary. Convert it to text in UTF-8.")
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


def cleaned(rows):
    """Normalizes rows of two texts by NFC and strips them.

    Returns:
        list of (first, second), two str, without rows that have an empty column; and the number of
        these.
    """
    rows = [tuple(unicodedata.normalize("NFC", text).strip() for text in row) for row in rows]
    kept = [row for row in rows if all(row)]
    return kept, len(rows) - len(kept)


def unused(count, reason="with an empty column"):
    """A tuple of a line about rows that are not used, if there are any."""
    return (f"Not used, {reason}: {count:,}.",) * bool(count)


class TextDataset(NamedTuple):
    """Training, validation and test texts.

    Fields:
        train, valid, test: lists of (first, second), two str; `zoo.data.labeled_text.LabeledTexts`;
            or tokenized, `zoo.data.token_store.TokenExamples`.
        notes: lines about rows that are not used.
        class_names: of labeled texts, the name of each label.
    """

    train: list
    valid: list
    test: list
    notes: tuple[str, ...]
    class_names: tuple[str, ...] | list[str] = ()


def divided(name, share, seed, rows, valid=None, test=None, apart=False):
    """Divides rows into training, validation and test rows: `TextDataset`.

    The part of a row is decided by a hash of `seed` and its case-folded first text alone, so it is
    the same on every machine, and rows with the same first text are in the same part.

    Args:
        name: name of the data, for messages.
        share: share to hold out for validation and test each, at most about 2,000 rows.
        seed: seed of the choice.
        rows: iterable of (first, second), two str; see `cleaned`.
        valid, test: iterables like `rows`; if given, that part is not held out.
        apart: whether to leave out training rows with the second text of a held-out row, and those
            of `valid` and `test`.

    Raises:
        DataError: if a part has no rows.
    """
    is_given = valid is not None, test is not None
    (rows, empty), *others = (cleaned(part or ()) for part in (rows, valid, test))
    share = min(share, _MAX_HELD_OUT / max(len(rows) + empty, 1))
    train, given, held_out = [], [part for part, _ in others], ([], [])
    for row in rows:
        part = int(_hash(row[0], str(seed)) / 2**64 / share)  # 0: validation, 1: test
        (train if part > 1 or is_given[part] else held_out[part]).append(row)
    kept = _without_copies(train, held_out, given) if apart else train
    notes = unused(empty + sum(count for _, count in others))
    notes += unused(len(train) - len(kept), "with the translation of a held-out pair")
    parts = [kept, *(own or part for own, part in zip(held_out, given))]
    for purpose, part in zip(("training", "validation", "test"), parts):
        if not part:
            problem = f"{name}: {len(rows):,} rows give none for {purpose}."
            advice = "Provide more text, or separate data for validation and test."
            raise DataError(" ".join((problem, advice, *notes)))
    return TextDataset(*parts, notes)


def _without_copies(train, held_out, given):
    """Training rows that neither have the second text of a held-out row nor are in `given`."""
    seconds = {second.casefold() for part in held_out for _, second in part}
    whole = {"\t".join(row).casefold() for part in given for row in part}
    return [
        row
        for row in train
        if row[1].casefold() not in seconds and "\t".join(row).casefold() not in whole
    ]


def _hash(text, key):
    """A 64-bit hash of the case-folded text."""
    digest = hashlib.blake2b(text.casefold().encode(), digest_size=8, key=key.encode()).digest()
    return int.from_bytes(digest, "big")
