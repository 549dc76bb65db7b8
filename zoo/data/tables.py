"""Reads two columns of a table of texts: a TSV or CSV file, with or without a header.

The texts of a TSV file are taken as they are, quotes included, unless csv, pandas or Excel wrote
it: then a text in quotes may contain tabs, line breaks and doubled quotes.
"""

import collections
import contextlib
import csv
import re
from typing import NamedTuple

from zoo.data.text_rows import read_lines
from zoo.errors import DataError

# fmt: off
_WORDS = {  # in the names of columns
    "label": {"label", "labels", "class", "classes", "category", "sentiment", "rating", "stars",
              "topic", "intent", "emotion", "genre", "polarity", "tag", "tags", "target", "score",
              "overall"},
    "text": {"text", "texts", "sentence", "review", "comment", "tweet", "message", "content",
             "document", "title", "headline", "question", "utterance", "phrase", "description",
             "reviews", "sentences", "comments", "tweets", "body", "article", "news", "query"},
    "source": {"source", "src", "original", "input"},
    "target": {"target", "tgt", "trg", "reference", "ref", "translation", "translated", "output"},
}
_LANGUAGES = {  # as the name of a column, or its beginning or end: "en_XX", "text_en"
    "ar", "bg", "cs", "da", "de", "el", "en", "es", "et", "fi", "fr", "he", "hi", "hu", "it", "ja",
    "ko", "lt", "lv", "nl", "no", "pl", "pt", "ro", "ru", "sk", "sl", "sv", "tr", "uk", "vi", "zh",
    "deu", "eng", "fra", "fre", "ger", "ita", "por", "rus", "spa", "zho",
    "arabic", "chinese", "dutch", "english", "french", "german", "italian", "japanese", "korean",
    "polish", "portuguese", "russian", "spanish", "turkish",
}
# fmt: on
_MOST_WORDS = 3  # in the name of a column
_CAMEL_CASE = re.compile("(?<=[a-z])(?=[A-Z0-9])")  # between the words of a name
_QUOTED = re.compile(r'(?:^|(?<=[\t\n]))"([^"]*(?:""[^"]*)*)"(?=[\t\r\n]|\Z)')
_NUMBERS = re.compile(r"[-+.\d\s]*")


class Table(NamedTuple):
    """Two columns of a table.

    Fields:
        rows: list of (first, second), two str.
        notes: lines about the header.
    """

    rows: list[tuple[str, str]]
    notes: tuple[str, ...]


def read_table(path, first, second):
    """Reads two columns of a UTF-8 file, which may be compressed by gzip; blank lines are skipped.

    A header, which is recognized by its words, says which columns these are. Without a header they
    are the first two; in a TSV file, a "text" is then the rest of its line, which may have tabs.

    Args:
        path: a CSV file of commas or semicolons, if its name ends with .csv; or a TSV file.
        first, second: what is in the columns: "label" and "text", or "source" and "target".

    Returns:
        `Table`.

    Raises:
        DataError: if the file cannot be read, or a line has one column only.
    """
    rows, is_literal = read_rows(path, f"{first}, tab, {second}")
    header = _header(rows, first, second)
    if header is None:
        notes = ()
        columns = [first, second]
    else:
        columns, *rows = rows
        names = " and ".join(repr(columns[place].strip()) for place in header)
        notes = (f"Line 1 of {path} is a header: its columns {names} are read.",)
    one, two = header or (0, 1)
    may_have_tabs = is_literal and second == "text" and two == len(columns) - 1
    end = None if may_have_tabs else two + 1
    # A slice of a short row is empty.
    pairs = [("\t".join(row[one : one + 1]), "\t".join(row[two:end])) for row in rows]
    if first == "label" and header is None:
        notes = _possible_header(path, [label for label, _ in pairs])
    return Table(pairs, notes)


def read_rows(path, columns):
    """Reads the rows of a file, see `read_table`; `columns` describes a line, for messages.

    Returns:
        list of lists of str, of at least two columns, and whether quotes are a part of the texts.
    """
    lines = list(read_lines(path))
    rows = None
    advice = ""
    if str(path).lower().removesuffix(".gz").endswith(".csv"):
        rows = _rows_of_csv_file(path, lines)
        advice = " All lines of a CSV file must have the same number of columns, two or more."
    is_literal = rows is None and not written_by_csv(lines)
    if is_literal:
        rows = [(n, line.strip("\r\n").split("\t")) for n, line in enumerate(lines, start=1)]
    elif rows is None:
        rows = csv_rows(path, lines, "\t")
    found = []
    for number, row in rows:
        if len(row) > 1:
            found.append(row)
        elif "".join(row).strip():
            raise DataError(
                f"{path}, line {number:,}, has no tab. Each line must be: {columns}. "
                f"It begins: {row[0].strip()[:60]!r}.{advice}"
            )
    return found, is_literal


def written_by_csv(lines):
    """Whether quotes around the columns of tab-separated lines were written by csv or Excel.

    They were if all quotes of the file are in columns in quotes, doubled within them, and

    - there are doubled quotes, or lines of different numbers of tabs, as tabs and line breaks in
      texts make; or
    - all columns but numbers are in quotes; or, as Excel writes them, those with a comma and only
      those.
    """
    marked = [line for line in lines if '"' in line]
    text = "".join(marked)
    outside = _QUOTED.sub("", text)
    quoted = _QUOTED.findall(text)
    if not quoted or '"' in outside:
        return False
    if any('"' in column for column in quoted):
        return True
    filled = [line for line in lines if line.strip()]
    if any("\t" in column or "\n" in column for column in quoted):
        return len({line.count("\t") for line in filled}) > 1
    if len(marked) == len(filled) and _NUMBERS.fullmatch(outside):
        return True
    plain = [outside, *(line for line in lines if '"' not in line)]
    return all("," in column for column in quoted) and not any("," in part for part in plain)


def _rows_of_csv_file(path, lines):
    """The rows of a CSV file, if all have the same number of columns, of two or more; or None."""
    # Some write a space after each comma, also before quotes.
    for delimiter, has_spaces in ((",", False), (",", True), (";", False), (";", True)):
        with contextlib.suppress(DataError):
            found = csv_rows(path, lines, delimiter, skipinitialspace=has_spaces)
            rows = [(number, row) for number, row in found if row]
            widths = {len(row) for _, row in rows}
            if len(widths) == 1 and widths != {1}:
                return rows
    return None


def csv_rows(path, lines, delimiter, **options):
    """Yields the number of its last line and the columns of each row."""
    csv.field_size_limit(max(csv.field_size_limit(), sum(map(len, lines))))
    reader = csv.reader(lines, delimiter=delimiter, strict=True, **options)
    try:
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num:,}, is not valid CSV: {error}.") from None


def _header(rows, first, second):
    """The places of two columns in the first row, if it names them; or None."""
    names = [_CAMEL_CASE.sub("_", name.strip()).casefold() for name in rows[0]] if rows else []
    of_first = _named(names, first)
    of_second = [place for place in _named(names, second) if place not in of_first[:1]]
    languages = [place for place, name in enumerate(names) if _is_language(name)]
    if of_first and of_second:
        places = (of_first[0], of_second[0])
    elif first == "label" and of_first[:1] == [0] and names[0] in _WORDS[first]:
        places = (0, 1)
    elif first == "source" and len({names[place] for place in languages}) > 1:
        places = tuple(languages[:2])
    else:
        return None
    place = places[0]
    labels = {row[place].strip().casefold() for row in rows[1:] if len(row) > place}
    if first == "label" and names[place] in labels:
        return None
    return places


def _is_language(name):
    """Whether a name is that of a language, as "en-US", "text_en" or "English sentence"."""
    parts = re.split("[-_]", name)
    if parts[0] in _LANGUAGES or parts[-1] in _LANGUAGES:
        return True
    words = re.findall("[^\\W_]+", name)
    return 0 < len(words) <= _MOST_WORDS and len(words[0]) > 3 and words[0] in _LANGUAGES


def _named(names, kind):
    """The places of the names with a word of a kind, those with the fewest words first."""
    words = [re.findall("[^\\W_]+", name) for name in names]
    found = []
    for place, row in enumerate(words):
        if len(row) <= _MOST_WORDS and not _WORDS[kind].isdisjoint(row):
            found.append(place)
    return sorted(found, key=lambda place: len(words[place]))


def _possible_header(path, labels):
    """Returns a line about the first label, if only that one occurs once; or none."""
    counts = collections.Counter(labels)
    once = [label for label, count in counts.items() if count == 1]
    if len(counts) < 3 or once != labels[:1]:
        return ()
    return (f"Only line 1 of {path} has the label {once[0]!r}. If it is a header, remove it.",)
