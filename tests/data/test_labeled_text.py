"""Labeled texts: the phrasebook's kinds, TSV files, TFDS data sets, and what is held out."""

import collections

import numpy as np
import pytest
import tensorflow_datasets as tfds

from tests.data.prepared import prepare
from zoo.data.labeled_text import phrasebook, tfds_texts, tsv
from zoo.data.phrasebook import sentence_kinds
from zoo.errors import DataError


def write(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture
def file(tmp_path):
    """1,000 texts of two classes, each of them twice, in capitals the second time."""
    lines = [f"{'odd' if n % 2 else 'even'}\tnumber {n}" for n in range(1000)]
    lines += [line.replace("number", "NUMBER") for line in lines]
    return write(tmp_path / "numbers.tsv", lines)


def rows(data):
    """The (text, class name) of each split."""
    return [
        [(text, data.class_names[label]) for text, label in zip(part.texts, part.labels)]
        for part in data[:3]
    ]


def test_every_line_is_in_one_split_with_its_label(file):
    data = tsv(file)
    assert data.class_names == ["even", "odd"]
    train, valid, test = rows(data)
    lines = [line.split("\t")[::-1] for line in file.read_text().splitlines()]
    assert sorted(train + valid + test) == sorted(map(tuple, lines))
    assert [row for row in map(tuple, lines) if row in set(train)] == train, "in the order"
    assert all(part.labels.dtype == np.int32 for part in data[:3])
    for part in (valid, test):  # a tenth, of twins: three standard deviations
        assert abs(len(part) - 200) < 60


def test_blank_lines_are_skipped_and_a_text_may_have_tabs(tmp_path):
    lines = ["\ufeffa\tone\ttwo", "", "  ", "a\t ", "\tno label", "b\t cafe\u0301 "] + [
        f"a\tx{n}" for n in range(300)
    ]
    lines += [f"b\ty{n}" for n in range(300)]
    data = tsv(write(tmp_path / "some.tsv", lines))
    assert data.notes == ("Not used, with an empty column: 2.",)
    found = [row for part in rows(data) for row in part]
    assert len(found) == 602
    assert {("one\ttwo", "a"), ("café", "b")} <= set(found)


@pytest.mark.parametrize("separator", ["|", " ", "::"])
def test_any_number_of_labels(separator, tmp_path):
    """Labels count once, in any order; rows without labels are kept, those without a text not."""
    sets = [["b"], [], ["a", "c"], ["c", "b", "a", "b"]]
    lines = [f"{separator.join(sets[n % 4])}\tnumber {n}" for n in range(800)]
    lines[2] = f" a {separator}{separator} c\tnumber 2"
    data = tsv(write(tmp_path / "topics.tsv", [*lines, "a\t"]), separator=separator)
    assert data.class_names == ["a", "b", "c"]
    found = {}
    for part in data[:3]:
        assert part.labels.dtype == np.float32 and part.labels.shape == (len(part), 3)
        found |= dict(zip(part.texts, part.labels))
    assert len(found) == 800
    for text, labels in found.items():
        names = sets[int(text.split()[1]) % 4]
        assert [name for name, has in zip("abc", labels) if has] == sorted({*names})
    with pytest.raises(DataError, match="must have a label. Received: \\[\\]"):
        tsv(write(tmp_path / "none.tsv", [f"\t{n}" for n in range(200)]), separator="|")
    one = tsv(write(tmp_path / "one.tsv", [f"{'a' * (n % 2)}\t{n}" for n in range(200)]), 0, "|")
    assert one.class_names == ["a"] and 0.3 < one.train.labels.mean() < 0.7


def test_files_that_cannot_be_used(tmp_path):
    for lines, message in (
        (["a\tone", "no tab here"], "line 2, has no tab. .*: label, tab, text. .* 'no tab"),
        ([f"a {n}\t{n}" for n in range(200)], "200 rows give none for validation"),
        ([f"a\t{n}" for n in range(200)], r"at least two labels. Received: \['a'\]"),
        (["a\tone", "b\ttwo"] * 2, "4 rows give none for .* more"),
    ):
        with pytest.raises(DataError, match=message):
            tsv(write(tmp_path / "bad.tsv", lines))


def test_texts_of_several_classes_are_held_out_in_the_rarest(tmp_path):
    lines = [f"{'ab'[n % 2]}\t{n}" for n in range(200)]
    for seed in range(5):
        held_out = sorted({*tsv(write(tmp_path / "most.tsv", lines), seed).test.texts})
        rare = [f"c\t{text}" for text in held_out] + [f"d\t{held_out[0]}"]
        train = tsv(write(tmp_path / "rare.tsv", rare + lines), seed).train
        assert {*train.labels.tolist()} == {0, 1, 2, 3}


@pytest.mark.parametrize("separator", [None, "|"])
def test_each_class_is_held_out_in_its_share(separator, tmp_path):
    """And has a text to train on, with any seed; the parts of a seed are always the same."""
    sizes = {"many": 400, "some": 40, "few": 10, "two": 2, "one": 1}
    lines = [f"{name}\t{name} {number}" for name, size in sizes.items() for number in range(size)]
    path = write(tmp_path / "classes.tsv", lines)
    parts = set()
    for seed in range(20):
        data = tsv(path, seed, separator)
        parts.add(tuple(data.test.texts))
        counts = [collections.Counter(text.split()[0] for text in part.texts) for part in data[:3]]
        assert counts[0].keys() == sizes.keys()
        for part in counts[1:]:
            assert abs(part["many"] - 40) <= 2 and abs(part["some"] - 4) <= 1
            assert abs(part["few"] - 1) <= 1 and part["two"] == part["one"] == 0
            assert sum(part.values()) == pytest.approx(45, abs=1)
    assert len(parts) == 20 and tuple(tsv(path, 0, separator).test.texts) in parts


def test_texts_whose_label_is_minus_1_have_none(tmp_path):
    """They are left out, with a line; a split without labels is held out. Names are in NFC."""
    names = ["cafe\u0301", "bar"]
    features = {"label": tfds.features.ClassLabel(names=names), "text": tfds.features.Text()}
    train = [{"label": number % 3 - 1, "text": f"text {number}"} for number in range(300)]
    test = [{"label": -1, "text": f"other {number}"} for number in range(5)]
    features = tfds.features.FeaturesDict(features)
    splits = {"train": train, "test": test}
    prepare(tmp_path, "half", features, splits, ("text", "label"))
    data = tfds_texts("half", tmp_path)
    assert data.class_names == ["caf\u00e9", "bar"]
    assert data.notes == ("Not used, as their label is -1: 105.",)
    assert sum(map(len, data[:3])) == 200 and len(data.test) == 20
    for part in data[:3]:
        assert [int(text.split()[1]) % 3 - 1 for text in part.texts] == part.labels.tolist()
    prepare(tmp_path, "none", features, {"train": test}, ("text", "label"))
    with pytest.raises(DataError, match="none of the training texts has a label"):
        tfds_texts("none", tmp_path)


def test_the_phrasebook_has_kinds_of_sentences():
    data = phrasebook()
    train, valid, test = rows(data)
    assert len(train) + len(valid) + len(test) == 20_000
    assert len({text for text, _ in train + valid + test}) == 20_000
    kinds = collections.Counter(kind for _, kind in train)
    assert sorted(kinds) == data.class_names and len(kinds) == 8
    assert min(kinds.values()) > 300, "of each kind there is something to learn"
    for part in (valid, test):
        assert 1800 < len(part) < 2200


def test_kinds_are_those_of_the_sentences():
    texts = [text for text, kind in sentence_kinds(3000) if kind == "existence"]
    assert texts and all("there" in text.lower() for text in texts)
    assert len(sentence_kinds(7)) == 7 and sentence_kinds(7) == sentence_kinds(8)[:7]
    assert sentence_kinds(7, seed=1) != sentence_kinds(7)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Text classification data sets as TFDS prepares them."""
    features = {
        "label": tfds.features.ClassLabel(names=["neg", "pos"]),
        "text": tfds.features.Text(),
    }
    folder = tmp_path_factory.mktemp("tfds")

    def examples(split):
        for number in range(1500 if split == "train" else 20):
            label = ("neg", "pos")[number % 2]
            yield {"text": f" {split} {number} {label} é ", "label": label}

    for name, splits, keys in (
        ("reviews", ("train", "test"), ("text", "label")),
        ("all_splits", ("train", "validation", "test", "unsupervised"), ("text", "label")),
        ("no_keys", ("train",), None),
        ("other_keys", ("train",), ("label", "text")),
    ):
        rows = {split: examples(split) for split in splits}
        prepare(folder, name, tfds.features.FeaturesDict(features), rows, keys)
    return folder


def test_prepared_tfds_data(prepared):
    data = tfds_texts("reviews", prepared)
    assert data.class_names == ["neg", "pos"]
    train, valid, test = rows(data)
    every = [
        (f"train {n} {label} é", label) for n in range(1500) for label in [("neg", "pos")[n % 2]]
    ]
    assert sorted(train + valid) == sorted(every)
    assert abs(len(valid) - 150) < 40  # three standard deviations
    assert {text.split()[0] for text, _ in test} == {"test"} and len(test) == 20
    assert all(text.split()[2] == label for text, label in test)
    data = tfds_texts("all_splits", prepared)
    assert [len(part) for part in data[:3]] == [1500, 20, 20]
    assert data.valid.texts[0].startswith("validation")


def test_tfds_data_without_labeled_texts(prepared):
    for name in ("no_keys", "other_keys"):
        with pytest.raises(DataError, match=f"{name} cannot be used: it needs texts with a class"):
            tfds_texts(name, prepared)
