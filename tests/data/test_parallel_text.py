"""Where sentence pairs come from, how they are dealt out, and what is said of bad files."""

import gzip
import itertools

import pytest
import tensorflow_datasets as tfds

from tests.data.prepared import prepare
from zoo.data import text_rows
from zoo.data.parallel_text import parallel_files, tfds_pairs, tsv
from zoo.data.text_rows import cleaned, folded
from zoo.errors import DataError

LEFT_OUT = "Not used, with the translation of a held-out pair: {}."


def corpus(count):
    """Pairs in which every third source has a second target, and capitals change."""
    for number in range(count):
        yield f"the house {number}", f"la casa {number}"
        if number % 3 == 0:
            yield f"The House {number}", f"el hogar {number}"


def write(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture
def file(tmp_path):
    lines = ("\t".join((*pair, "CC-BY")) for pair in corpus(3000))
    return write(tmp_path / "pairs.txt", lines)


def test_pairs_are_normalized_and_those_with_an_empty_side_left_out():
    raw = [("  cafe\u0301 \n", "café\r\n"), (" ", "nada"), ("nothing", "\t\u00a0"), ("a", "b")] * 2
    assert cleaned(raw) == ([("café", "café"), ("a", "b")] * 2, 4)


def test_every_pair_is_in_one_part_and_no_source_in_two_whatever_its_target_and_case(file):
    text = tsv(file)
    assert sorted(itertools.chain(*text[:3])) == sorted(corpus(3000))
    train, valid, test = ({source.casefold() for source, _ in part} for part in text[:3])
    assert not train & valid and not train & test and not valid & test
    # 4,000 lines of which 5 % are held out twice; three standard deviations of a sum of sources
    # that count once or twice: sqrt(0.05 * 0.95 * (2000 * 1 + 1000 * 4)) * 3 = 51
    for part in text[1:3]:
        assert abs(len(list(part)) - 200) < 51


def test_sources_that_differ_in_spaces_are_in_one_part(tmp_path):
    lines = [f"the{space}house {n}\tcasa{space}{n}" for n in range(400) for space in (" ", "  ")]
    text = tsv(write(tmp_path / "pairs.txt", lines))
    train, valid, test = ({folded(source) for source, _ in part} for part in text[:3])
    assert valid and test and not train & (valid | test) and not valid & test


def test_no_target_of_a_held_out_pair_is_trained_on(tmp_path):
    """Every target has two sources, and those of some are in different parts."""
    lines = [
        f"{verb} {n}\t{'CASA' if verb == 'a' else 'casa'} {n}" for n in range(500) for verb in "ab"
    ]
    text = tsv(write(tmp_path / "pairs.txt", lines))
    train, valid, test = ([target.casefold() for _, target in part] for part in text[:3])
    assert len(train) > 500 and valid and test
    assert not {*train} & {*valid, *test}
    # Each held-out target leaves one pair out, unless its other source is held out, too.
    left_out = 2 * len({*valid, *test}) - len(valid) - len(test)
    assert 50 < left_out == 1000 - len(train) - len(valid) - len(test)
    assert text.notes == (LEFT_OUT.format(left_out),)


def test_at_most_about_two_thousand_are_held_out(monkeypatch, file):
    monkeypatch.setattr(text_rows, "_MAX_HELD_OUT", 50)
    for part in tsv(file)[1:3]:
        assert abs(len(list(part)) - 50) < 26  # three standard deviations, as above


def test_the_seed_alone_decides_what_is_held_out(file, tmp_path):
    first, again, other = (list(tsv(file, seed).valid) for seed in (0, 0, 1))
    assert first == again != other and tsv(file, 7).seed == 7
    lines = file.read_text(encoding="utf-8").splitlines()
    assert sorted(tsv(write(tmp_path / "turned.txt", reversed(lines))).valid) == sorted(first)
    # the same in every process: BLAKE2b of eight bytes with the key "0" is 0.562 of 2**64
    shares = [text_rows._hash(text, "0") / 2**64 for text in ("Hello.", "hello.")]
    assert shares == pytest.approx([0.5625] * 2, abs=5e-4)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(DataError, match="nowhere.txt cannot be read: No such file"):
        tsv(tmp_path / "nowhere.txt")
    with pytest.raises(DataError, match="cannot be read: Is a directory"):
        tsv(tmp_path)
    with pytest.raises(DataError, match="nowhere.es cannot be read"):
        parallel_files(write(tmp_path / "a.en", "abc"), tmp_path / "nowhere.es")
    path, none = tmp_path / "bad.txt", "bad.txt: .* rows give none for training"
    for content, message in (
        (b"", none),
        (b"\t\n \t \n", none),
        ("go\tve\nyear\taño\n".encode("latin-1"), r"bad.txt, line 2, is not UTF-8 .*at byte 7"),
        ("a\tb".encode("utf-16"), "bad.txt is UTF-16 or binary. Convert it to text in UTF-8"),
        ("a\tb".encode("utf-16-be"), "bad.txt is UTF-16 or binary. Convert it to text in UTF-8"),
        (gzip.compress(b"a\tb\n")[:-9], "bad.txt cannot be read: "),
        (b"a\tb\n\nno tab here\nc\td\n", "line 3, has no tab. .*: source, tab, target. It begins"),
    ):
        path.write_bytes(content)
        with pytest.raises(DataError, match=message):
            tsv(path)


def test_marks_and_odd_line_ends(tmp_path):
    """A byte order mark is not text; only a line feed ends a line; the file may be compressed."""
    path = tmp_path / "windows.txt"
    body = "".join(f"a{n}\u2028b\tc\rd{n}\r\n" for n in range(200)).encode("utf-8-sig")
    for content in (body, gzip.compress(body)):
        path.write_bytes(content)
        pairs = sorted(itertools.chain(*tsv(path)[:3]))
        assert pairs == sorted((f"a{n}\u2028b", f"c\rd{n}") for n in range(200))


@pytest.fixture
def files(tmp_path):
    def make(name, pairs):
        sources, targets = zip(*pairs)
        return write(tmp_path / f"{name}.en", sources), write(tmp_path / f"{name}.es", targets)

    return make


def test_files_for_validation_and_test_are_used(files):
    train, valid, test = files("a", corpus(300)), files("b", [("x", "y")]), files("c", [("u", "v")])
    text = parallel_files(*train, valid=valid, test=test)
    assert list(text.train) == list(corpus(300))
    assert (list(text.valid), list(text.test)) == ([("x", "y")], [("u", "v")])
    assert text.seed is None
    again = [("The house 1", "la CASA 1"), ("the house 1", "another")]  # the first is trained on
    text = parallel_files(*train, valid=files("d", again), test=files("e", again[:1]))
    assert [*text.train] == [pair for pair in corpus(300) if pair != ("the house 1", "la casa 1")]
    assert text.notes == (LEFT_OUT.format(1),)

    text = parallel_files(*train, test=test)
    assert sorted(itertools.chain(text.train, text.valid)) == sorted(corpus(300))
    assert (0 < len(list(text.valid)) < 60) and list(text.test) == [("u", "v")]
    assert text.seed == 0


def test_an_empty_line_keeps_the_others_together(files):
    pairs = [*corpus(100), ("", "sin original"), ("no translation", ""), ("last", "último")]
    text = parallel_files(*files("train", pairs))
    expected = sorted([*corpus(100), ("last", "último")])
    assert sorted(itertools.chain(*text[:3])) == expected


def test_bad_parallel_files(files):
    source, target = files("train", corpus(30))
    with open(source, "a") as file:
        file.write("one more, and no line end")
    with pytest.raises(DataError, match="train.en has 41, .*train.es has 40"):
        parallel_files(source, target)
    good = files("good", corpus(300))
    with pytest.raises(DataError, match="train.en has 41, .*train.es has 40"):
        parallel_files(*good, valid=(source, target))
    with pytest.raises(DataError, match="two files.*source=.*target=None"):
        parallel_files(source, None)
    with pytest.raises(DataError, match="two files.*source=None"):
        parallel_files(*good, test=(None, target))
    with pytest.raises(DataError, match="rows give none for validation"):
        parallel_files(*good, valid=files("empty", [("", "")]))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Translation data sets as TFDS prepares them, one of them without a test split."""
    folder = tmp_path_factory.mktemp("tfds")

    def examples(split):
        for number in range(1200 if split == "train" else 3):
            yield {"en": f"year {number}, {split}", "es": f"año {number}, {split}"}

    for name, splits in (
        ("english_spanish", ("train", "validation", "test")),
        ("no_test", ("train", "validation")),
    ):
        features = tfds.features.Translation(languages=("en", "es"))
        rows = {split: examples(split) for split in splits}
        prepare(folder, name, features, rows, ("es", "en"))
    features = tfds.features.FeaturesDict({"text": tfds.features.Text()})
    return prepare(folder, "no_text", features, {"train": [{"text": "a"}]})


def test_prepared_tfds_data(prepared):
    text = tfds_pairs("english_spanish", prepared)
    expected = sorted((f"año {n}, train", f"year {n}, train") for n in range(1200))
    assert sorted(text.train) == expected
    assert list(text.train) == list(text.train)
    assert {source for source, _ in text.valid} == {f"año {n}, validation" for n in range(3)}
    assert {target for _, target in text.test} == {f"year {n}, test" for n in range(3)}
    assert text.seed is None


def test_tfds_data_without_a_test_split_or_without_pairs(prepared):
    text = tfds_pairs("no_test", prepared, seed=0)
    assert text.seed == 0
    train, valid, test = (len(list(part)) for part in text[:3])
    assert train + test == 1200 and valid == 3 and abs(test - 60) < 23  # three deviations
    with pytest.raises(DataError, match="needs sentence pairs"):
        tfds_pairs("no_text", prepared)
