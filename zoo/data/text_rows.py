"""Reads and divides rows of two texts: a sentence and its translation, or a text and its label."""

import collections
import gzip
import hashlib
import io
import unicodedata
import zlib
from typing import NamedTuple

from zoo.errors import DataError
from zoo.files import as_path, check_unpacked, max_content

_MAX_HELD_OUT = 2000  # approximate maximum number of rows, for validation and test each


def read_lines(path):
    """Yields the lines of a UTF-8 file, which may be compressed by gzip."""
    path = as_path(path)
    try:
        with open(path, "rb") as file:
            is_gzip = file.peek(2)[:2] == b"\x1f\x8b"
            # Text mode would also split at a lone carriage return, and could not report the line
            # number of a decoding error.
            lines = file
            if is_gzip:
                content = gzip.GzipFile(fileobj=file).read(max_content(path) + 1)
                check_unpacked(path, len(content))
                lines = io.BytesIO(content)
            for number, line in enumerate(lines, start=1):
                if number == 1 and b"\0" in line[:4]:
                    raise DataError(f"{path} is UTF-16 or binary. Convert it to text in UTF-8.")
                if number == 1 and line.count(b"\r") > 1 and not line.endswith(b"\n"):
                    raise DataError(
                        f"{path} has line ends of old Macs, CR. Convert it to line ends LF or CRLF."
                    )
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"The file {path} cannot be read: {reason}.") from None
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}, line {number:,}, is not UTF-8 ({error.reason} at byte {error.start + 1}). "
            "Convert the file to UTF-8."
        ) from None


def clean(text):
    """Normalizes a text by NFC, and strips it."""
    return unicodedata.normalize("NFC", text).strip()


def cleaned(rows):
    """Normalizes rows of two texts by NFC, strips them, and leaves out those with an empty column.

    Returns:
        list of (first, second), two str, and the number of rows that were left out.
    """
    kept = []
    empty = 0
    for first, second in rows:
        first = clean(first)
        second = clean(second)
        if first and second:
            kept.append((first, second))
        else:
            empty += 1
    return kept, empty


def unused(count, reason="with an empty column"):
    """Returns lines about rows that are not used: none, or one line."""
    if count == 0:
        return ()
    return (f"Not used, {reason}: {count:,}.",)


class TextDataset(NamedTuple):
    """Training, validation and test texts.

    Fields:
        train, valid, test: lists of (first, second), two str; `zoo.data.labeled_text.LabeledTexts`;
            or tokenized, `zoo.data.token_store.TokenExamples`.
        notes: lines to print, such as about rows that are not used.
        class_names: of labeled texts, the name of each label.
        seed: the seed by which validation or test texts were drawn; None if all are given.
        teachers: of pairs that models have translated, what they depend on; see
            `zoo.training.sentence_pairs.identity_of_teachers`. None of others.
        keeps_numbers: of sentence pairs, see `zoo.data.tokenized_corpus.keeps_numbers`.
    """

    train: list
    valid: list
    test: list
    notes: tuple[str, ...]
    class_names: tuple[str, ...] | list[str] = ()
    seed: int | None = None
    teachers: dict | None = None
    keeps_numbers: bool = True


def divided(name, share, seed, rows, valid=None, test=None, apart=False, class_of=None):
    """Divides rows into training, validation and test rows: `TextDataset`.

    The part of a row is decided by a hash of `seed` and the `folded` first text alone, so it is the
    same on every machine, and rows with the same first text are in the same part.

    Args:
        name: name of the data, for messages.
        share: share to hold out for validation and test each, at most about 2,000 rows.
        seed: seed of the choice.
        rows: iterable of (first, second), two str; see `cleaned`.
        valid, test: iterables like `rows`; if given, that part is not held out.
        apart: whether to leave out training rows that are in `valid` or `test`, or have the second
            text of a held-out row.
        class_of: function of the second text that returns a class. Then each class is held out in
            its share, in the order of these hashes, and its last text stays for training.

    Raises:
        DataError: if a part has no rows.
    """
    rows, empty = cleaned(rows)
    given_valid, empty_valid = cleaned(valid or ())
    given_test, empty_test = cleaned(test or ())
    share = min(share, _MAX_HELD_OUT / max(len(rows) + empty, 1))
    train = []
    held_out_valid = []
    held_out_test = []
    for row, place in zip(rows, _places(rows, str(seed), class_of)):
        place = place / share  # 1 is the end of the first share
        if place < 1 and valid is None:
            held_out_valid.append(row)
        elif 1 <= place < 2 and test is None:
            held_out_test.append(row)
        else:
            train.append(row)
    notes = unused(empty + empty_valid + empty_test)
    if apart:
        kept = _without_copies(train, held_out_valid + held_out_test, given_valid + given_test)
        notes += unused(len(train) - len(kept), "with the translation of a held-out pair")
        train = kept
    parts = {
        "training": train,
        "validation": held_out_valid or given_valid,
        "test": held_out_test or given_test,
    }
    for purpose, part in parts.items():
        if not part:
            problem = f"{name}: {len(rows):,} rows give none for {purpose}."
            advice = "Provide more text, or separate data for validation and test."
            raise DataError(" ".join((problem, advice, *notes)))
    is_given = valid is not None and test is not None
    train, valid, test = parts.values()
    return TextDataset(train, valid, test, notes, seed=None if is_given else seed)


def _places(rows, key, class_of):
    """Returns the place of each row, from 0 to 1; rows with the lowest places are held out.

    Rows with the same first text have the same place. For `class_of` see `divided`.
    """
    hashes = [_hash(first, key) / 2**64 for first, _ in rows]
    if class_of is None:
        return hashes

    # 1. The class of each text; of a text that occurs with several, the rarest one
    row_classes = [class_of(second) for _, second in rows]
    counts = collections.Counter(row_classes)
    class_by_text = {}
    for text, name in zip(hashes, row_classes):
        known = class_by_text.get(text, name)
        class_by_text[text] = min(known, name, key=lambda name: (counts[name], name))
    texts_by_class = collections.defaultdict(list)
    for text in sorted(class_by_text):
        texts_by_class[class_by_text[text]].append(text)

    # 2. The texts of each class are spread evenly over 0 to 1, and its last one is not held out
    spread = []
    for texts in texts_by_class.values():
        for rank, text in enumerate(texts[:-1]):
            spread.append(((rank + 0.5) / len(texts), text))
    places = {text: rank / len(class_by_text) for rank, (_, text) in enumerate(sorted(spread))}
    return [places.get(text, 1.0) for text in hashes]


def _without_copies(train, held_out, given):
    """Training rows that are not in `given` and do not have the second text of a held-out row."""
    seconds = {folded(second) for _, second in held_out}
    whole = {(folded(first), folded(second)) for first, second in given}
    return [
        (first, second)
        for first, second in train
        if folded(second) not in seconds and (folded(first), folded(second)) not in whole
    ]


def folded(text):
    """A text with folded case and single spaces, to tell whether it is held out."""
    return " ".join(text.casefold().split())


def _hash(text, key):
    """A 64-bit hash of the `folded` text."""
    digest = hashlib.blake2b(folded(text).encode(), digest_size=8, key=key.encode()).digest()
    return int.from_bytes(digest, "big")
