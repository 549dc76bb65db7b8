"""Tables of texts as people, csv, pandas and Excel write them: quotes, headers, odd files."""

import csv
import gzip
import tempfile

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from zoo.data.tables import read_table, written_by_csv
from zoo.errors import DataError
from zoo.evaluation.data import read_labels
from zoo.training.report import _write_table

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
MARKS = st.text("\"\t,;a '", min_size=1, max_size=6)  # and no line break beside a tab
BREAKS = st.text("\"\n,;a '", min_size=1, max_size=6)


def read(content, kinds=("label", "text"), suffix=".tsv"):
    """(rows, notes) of a file with this content."""
    data = content if isinstance(content, bytes) else content.encode()
    with tempfile.NamedTemporaryFile(suffix=suffix) as file:
        file.write(data)
        file.flush()
        table = read_table(file.name, *kinds)
        return table.rows, [note.replace(file.name, "FILE") for note in table.notes]


def written(rows, delimiter="\t", **options):
    """The content that csv writes."""
    with tempfile.TemporaryFile("w+", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=delimiter, **options).writerows(rows)
        file.seek(0)
        return file.read()


@settings(max_examples=300, deadline=None)
@example([('He said ""hi"".', "a\tb"), ('"', '""')], csv.QUOTE_MINIMAL)
@given(
    st.lists(st.tuples(MARKS | BREAKS, MARKS | BREAKS), min_size=1, max_size=5),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
)
def test_what_csv_writes_is_read_back(pairs, quoting):
    """TSV, of which the first line shows the number of columns."""
    pairs = [("one", "two"), *pairs]
    for end in ("\r\n", "\n"):
        content = written(pairs, quoting=quoting, lineterminator=end)
        assert read(content, ("source", "target")) == (pairs, [])


@settings(max_examples=300, deadline=None)
@example([("\n\t,", 'a "b" c')], ",")
@given(
    st.lists(st.tuples(TEXT | MARKS | BREAKS, TEXT | MARKS | BREAKS), min_size=1, max_size=5),
    st.sampled_from(",;"),
)
def test_csv_files_are_read_back(pairs, delimiter):
    """Any texts, by commas; by semicolons those without commas."""
    if delimiter == ";":
        pairs = [tuple(text.replace(",", "") for text in pair) for pair in pairs]
    pairs = [("one", "two"), *pairs]
    content = written(pairs, delimiter, quoting=csv.QUOTE_ALL)
    assert read(content, ("source", "target"), ".csv") == (pairs, [])
    assert read(gzip.compress(content.encode()), ("source", "target"), ".CSV.gz") == (pairs, [])


@pytest.mark.parametrize(
    "lines",
    [
        ['He said "hi".\tDijo "hola".', '"Hello," he said.\t«Hola», dijo.'],
        ['"Hello.\tHola.', "a\tb"],  # not closed
        ['"Hello.\tHola."', "a\tb"],  # from the source to the target
        ['"I am here.\tEstoy aquí.', "x\ty", 'You are there."\tEstás allí.'],
        ['"Hello.\tHola."\tCC-BY', "a\tb\tCC-BY"],
        ['"Hello."\t"Hola."', "a\tb"],  # whole texts, beside others without quotes
        ['"Hello, Tom."\t"Hola, Tom."', "Hi, Tom.\tHola, Tom."],
        ['5" disk\tdisco de 5"', '12" disk\tdisco de 12"'],
        ['""\ta', 'b\t"'],
        ["'a\tb'", "a''b\t''"],
    ],
)
def test_quotes_of_texts_are_kept(lines):
    assert not written_by_csv([f"{line}\n" for line in lines])
    expected = [tuple(line.split("\t")[:2]) for line in lines]
    assert read("\n".join(lines), ("source", "target")) == (expected, [])


@pytest.mark.parametrize(
    "content, expected",
    [
        ('"He said ""hi""."\tx\ny\t"a\tb"\n', [('He said "hi".', "x"), ("y", "a\tb")]),
        ('"a\tb"\tx\r\nc\td\r\n', [("a\tb", "x"), ("c", "d")]),
        ('1\t"two\nlines"\n2\tb\n', [("1", "two\nlines"), ("2", "b")]),
        ('"a"\t"b"\n"c"\t"d"\n', [("a", "b"), ("c", "d")]),  # QUOTE_ALL
        ('0\t"a"\n1\t"b"\n', [("0", "a"), ("1", "b")]),  # QUOTE_NONNUMERIC
        ('x\t"a, b"\ny\tc\n', [("x", "a, b"), ("y", "c")]),  # Excel
    ],
)
def test_quotes_of_csv_and_excel_are_removed(content, expected):
    assert read(content, ("source", "target"))[0] == expected
    assert read("\ufeff" + content)[0] == expected


def test_odd_files():
    rows = [("a", "one"), ("b", "two")]
    for content in (
        "\ufeffa\tone\r\n\r\nb\ttwo\r\n",
        "a\tone\n\n  \nb\ttwo",
        "a,one,,\r\nb,two,,\r\n",  # columns that were empty in Excel
        "\ufeffa;one\r\nb;two\r\n",
    ):
        suffix = ".tsv" if "\t" in content else ".csv"
        assert read(content, suffix=suffix)[0] == rows
    assert read("a\tone\t\t\nb\ttwo\t\t\n", ("source", "target"))[0] == rows
    assert read("a\tb\tc\n")[0] == [("a", "b\tc")], "a text may have tabs"
    with pytest.raises(DataError, match="line 2, has no tab. .* label, tab, text"):
        read("a\tone\nb, two\n")
    content = 'a, "one, more"\nb, two\n'
    assert read(content, suffix=".csv")[0] == [("a", "one, more"), ("b", "two")], "spaces"
    long = [("a", 'one, "' * 50_000), ("b", "two")]  # more than csv reads by default
    assert read(written(long, ","), suffix=".csv")[0] == long
    assert read(written(long))[0] == long
    with pytest.raises(DataError, match="line ends of old Macs"):
        read("a\tone\rb\ttwo\r")
    with pytest.raises(DataError, match="same number of columns"):
        read("a,one\nb,two, three\n", suffix=".csv")


@pytest.mark.parametrize(
    "header, kinds, places",
    [
        ("label\treview", "label text", (0, 1)),
        ("Label\tText", "label text", (0, 1)),
        ("sentiment\tStimme", "label text", (0, 1)),
        ("review\tsentiment", "label text", (1, 0)),
        ("id\ttext\tlabel\tlabel_text", "label text", (2, 1)),
        ("source\ttarget", "source target", (0, 1)),
        ("id\tSource text\tReference translation", "source target", (1, 2)),
        ("tgt\tsrc", "source target", (1, 0)),
        ("en\tde", "source target", (0, 1)),
        ("en-US\tpt_BR", "source target", (0, 1)),
        ("id\tEnglish\tSpanish", "source target", (1, 2)),
        ("reviewText\toverall", "label text", (1, 0)),
        ("id\tkeyword\ttext\ttarget", "label text", (3, 2)),
        ("sentence1\tlabel", "label text", (1, 0)),
        ("English words/sentences\tFrench words/sentences", "source target", (0, 1)),
        ("text_de\ttext_en", "source target", (0, 1)),
        ("original\ttranslated", "source target", (0, 1)),
    ],
)
def test_headers_are_recognized(header, kinds, places):
    columns = header.split("\t")
    rows = [[f"{column}{n % 2}" for column in columns] for n in range(6)]
    expected = [tuple(row[place] for place in places) for row in rows]
    names = " and ".join(repr(columns[place]) for place in places)
    for delimiter, suffix in (("\t", ".txt"), (",", ".csv")):
        content = written([columns, *rows], delimiter)
        found, notes = read(content, kinds.split(), suffix)
        assert found == expected
        assert notes == [f"Line 1 of FILE is a header: its columns {names} are read."]


@pytest.mark.parametrize(
    "content, kinds",
    [
        ("class\ta text\nclass\tb\nobject\tc\n", "label text"),
        ("positive\tClass\nnegative\tb\npositive\tc\n", "label text"),
        ("Is it so?\tIst es so?\n", "source target"),
        ("no\tno\n", "source target"),
        ("The source.\tLa fuente.\n", "source target"),
        ("Is it\tLo es\n", "source target"),
        ("English please.\tEnglisch, bitte.\n", "source target"),
    ],
)
def test_texts_are_not_taken_for_headers(content, kinds):
    rows, notes = read(content, kinds.split())
    assert rows == [tuple(line.split("\t")) for line in content.splitlines()]
    assert notes == []


def test_a_first_label_unlike_the_others_is_named():
    content = "gefühl\tsatz\n" + "gut\tja\nschlecht\tnein\n" * 3
    rows, [note] = read(content)
    assert len(rows) == 7 and "Only line 1 of FILE has the label 'gefühl'." in note


def test_tables_of_a_run_are_read_back(tmp_path):
    """As tables to train or evaluate on, by their headers."""
    texts = ['He said "hi".', "a, b", '"', "\u2028 c"]
    rows = [("label", "prediction", "probability", "text"), *(("x", "y", "0.5", t) for t in texts)]
    _write_table(tmp_path / "predictions.tsv", rows)
    table = read_table(tmp_path / "predictions.tsv", "label", "text")
    assert table.rows == [("x", " ".join(text.split())) for text in texts]
    rows = [("source", "reference", "translation"), *((t, t[::-1], "") for t in texts[:3])]
    _write_table(tmp_path / "translations.tsv", rows)
    table = read_table(tmp_path / "translations.tsv", "source", "target")
    assert table.rows == [(text, text[::-1]) for text in texts[:3]]


def test_a_file_of_labels_may_have_a_header(tmp_path):
    path = tmp_path / "labels.txt"
    path.write_text("label\n3\n0 2\n")
    assert read_labels(path, 2) == [[3], [0, 2]]
    with pytest.raises(DataError, match="class numbers: .*'label'"):
        read_labels(path, 3)
