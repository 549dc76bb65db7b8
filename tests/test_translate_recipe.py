"""The translation recipe, shrunk: what it prints and leaves, going on, and bad input."""

import csv
import dataclasses
import itertools
import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest

import zoo
from tests.checkpoints.translation_folders import write_marian
from tests.test_recipes import recipe
from zoo.data import parallel_text, text_rows, tokenized_corpus
from zoo.data.selection import text_source
from zoo.errors import UserError
from zoo.training.report import translation_scores
from zoo.training.run import Run
from zoo.training.sentence_pairs import load_pairs

ROOT = pathlib.Path(__file__).parents[1]
translate = recipe("translate")
CONFIG = dataclasses.replace(
    translate.Config(),
    vocab_size=400,
    embed_dim=16,
    num_heads=2,
    num_layers=1,
    ff_dim=16,
    epochs=3,
    tokens_per_batch=512,
    warmup_steps=10,
    average_last=2,
    beam_size=1,
)


pytestmark = [pytest.mark.usefixtures("same_policy"), pytest.mark.ci]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A file of 400 pairs: numbers in words and in figures."""
    names = "zero one two three four five six seven eight nine".split()
    path = tmp_path_factory.mktemp("corpus") / "numbers.tsv"
    random = np.random.default_rng(0)
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(400):
            digits = random.integers(0, 10, random.integers(1, 3))
            words = " ".join(names[digit] for digit in digits)
            file.write(f"{words}\t{' '.join(map(str, digits))}\tsome source\n")
    return path


def test_the_metrics_are_those_of_the_saved_model(phrasebook_run):
    folder = phrasebook_run[1]
    metrics = json.loads((folder / "metrics.json").read_text())
    with open(folder / "translations.tsv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    assert len(rows) == metrics["test_sentences"] > 100
    sources, references, translations = (
        [row[name] for row in rows] for name in ("source", "reference", "translation")
    )
    found = translation_scores(translations, references)
    assert {name: metrics[name] for name in found} == found
    assert zoo.load(folder)(sources[:8]) == translations[:8]
    # two epochs of a tiny model: it has learned something
    assert 0.1 < metrics["val_accuracy"] < 1


@pytest.fixture
def loaded(corpus, tmp_path):
    """Function (settings) -> (corpus of a run, the names of the folders in the cache)."""

    def load(**settings):
        config = {"tsv": str(corpus), "out": str(tmp_path / "runs" / "a"), **settings}
        config = dataclasses.replace(CONFIG, **config)
        tokenizers = config.select("tokenizer vocab_size normalization vocabulary")
        data = load_pairs(Run(config), tokenizers, config.max_length)
        cache = pathlib.Path(settings.get("cache_dir", tmp_path / "runs/.cache/translate"))
        return data, {path.name for path in cache.iterdir() if path.is_dir()}

    return load


def test_sentence_pairs_are_tokenized_once(corpus, loaded, tmp_path, capsys, monkeypatch):
    first, [folder] = loaded()
    output = capsys.readouterr().out
    assert "tokenized now: " in output and f"{folder}\n" in output
    text = parallel_text.tsv(corpus)
    assert first.test == list(text.test)
    assert len(first.train) == len(list(text.train)) and len(first.valid) == len(list(text.valid))

    monkeypatch.setattr(text_rows, "read_lines", lambda path: pytest.fail("it is read again"))
    again, folders = loaded(
        out=str(tmp_path / "runs" / "b"), epochs=7, embed_dim=32, dropout=0.1, tokens_per_batch=99
    )
    assert folders == {folder}
    assert capsys.readouterr().out == output.replace("tokenized now", "tokenized by an earlier run")
    assert (again.test, again.skipped, again.tokenizers) == first[2:]
    chosen = np.arange(20)
    for one, other in zip(
        again.train.batch(chosen, (20, 64))[1:], first.train.batch(chosen, (20, 64))[1:]
    ):
        np.testing.assert_array_equal(one, other)


def test_other_data_or_settings_are_tokenized_anew(corpus, loaded, tmp_path):
    copy = tmp_path / "copy.tsv"
    shutil.copy(corpus, copy)
    count = 0
    for settings in (
        {},
        {"tsv": str(copy)},
        {"seed": 1},
        {"max_length": 30},
        {"vocab_size": 300},
        {"tokenizer": "character"},
        {"vocabulary": "separate"},
    ):
        count += 1
        assert len(loaded(**settings)[1]) == count, settings
        assert len(loaded(**settings)[1]) == count, settings
    os.utime(copy)
    assert len(loaded(tsv=str(copy))[1]) == count + 1
    assert len(loaded(cache_dir=str(tmp_path / "elsewhere"))[1]) == 1


def test_the_seed_counts_only_where_it_divides_the_pairs(corpus):
    files = {"source": "a", "target": "b", "valid_source": "c", "valid_target": "d"}
    files = {name: str(corpus.parent / path) for name, path in files.items()}

    def identities(**settings):
        configs = [dataclasses.replace(CONFIG, **settings, seed=seed) for seed in (0, 1)]
        return [text_source(config)[0] for config in configs]

    first, second = identities(**files)
    assert first != second
    first, second = identities(**files, test_source="e", test_target="f")
    assert first == second


def test_a_tokenizer_is_trained_on_a_part_of_a_large_corpus(corpus, loaded, monkeypatch):
    seen, train = [], tokenized_corpus.train_tokenizer

    def watched(lines, *settings):
        seen.extend(lines)
        return train(seen, *settings)

    monkeypatch.setattr(tokenized_corpus, "train_tokenizer", watched)
    monkeypatch.setattr(tokenized_corpus, "_TRAINED_ON", 100)
    loaded()
    pairs = list(parallel_text.tsv(corpus).train)
    assert seen == [text for pair in pairs[::4] for text in pair], "400 pairs, of which 100"


@pytest.mark.slow
def test_two_workers_share_what_the_chief_has_tokenized(corpus, tmp_path):
    flags = (
        "--tokenizer character --embed-dim 16 --num-heads 2 --num-layers 1 --ff-dim 16 --epochs 1"
    )
    line = [sys.executable, "recipes/translate.py", *flags.split(), "--tsv", str(corpus)]
    launch = [sys.executable, "-m", "zoo", "launch", "--workers", "2", "--"]
    for run, said in (("a", "tokenized now"), ("b", "tokenized by an earlier run")):
        command = [*launch, *line, "--out", str(tmp_path / run)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.count("Sentence pairs, ") == 1 and said in done.stdout
    [folder] = [path for path in (tmp_path / ".cache/translate").iterdir() if path.is_dir()]
    assert {path.name for path in folder.iterdir()} >= {"train", "valid"}
    metrics = [json.loads((tmp_path / run / "metrics.json").read_text()) for run in "ab"]
    assert metrics[0]["val_loss"] == metrics[1]["val_loss"]


@pytest.mark.parametrize(
    "settings, message",
    [
        ({}, "--dataset phrasebook"),
        ({"dataset": "phrasebook", "tsv": "a.tsv"}, "exactly one of"),
        ({"tsv": "nowhere.tsv"}, "nowhere.tsv"),
        ({"source": "only.en"}, "target"),
        ({"tsv": "{corpus}", "num_heads": 3}, "embed_dim=16, num_heads=3"),
        ({"tsv": "{corpus}", "vocab_size": 10}, "vocab_size"),
    ],
)
def test_bad_settings_leave_nothing_behind(corpus, tmp_path, settings, message):
    if "tsv" in settings:
        settings = {**settings, "tsv": settings["tsv"].format(corpus=corpus)}
    config = dataclasses.replace(CONFIG, out=str(tmp_path / "run"), **settings)
    with pytest.raises(UserError, match=message):
        translate.main(config)
    assert not (tmp_path / "run").exists()


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """A folder of a Marian model with random weights."""
    folder = tmp_path_factory.mktemp("marian")
    write_marian(folder)
    return folder


def test_fine_tuning(published, tmp_path):
    """The run has the published tokenizers and search, and translates the pairs better.

    All pairs have the same numbers of tokens, so few shapes are compiled.
    """
    words = zip("the cat sees a big dog".split(), "el gato ve un gran perro".split())
    orders = itertools.islice(itertools.permutations(words), 300)
    lines = ["\t".join(map(" ".join, zip(*order))) for order in orders]
    corpus = tmp_path / "pairs.tsv"
    corpus.write_text("\n".join(lines))
    config = dataclasses.replace(
        translate.FINE_TUNING,
        weights=str(published),
        tgt_lang="es",
        tsv=str(corpus),
        epochs=2,
        learning_rate_scale=0.2,
        warmup_steps=1,
        dropout=0.05,
        max_length=200,  # longer than the model takes
        beam_size=1,
        out=str(tmp_path / "run"),
    )
    translate.main(config)
    before, after = zoo.load(published, tgt_lang="es"), zoo.load(tmp_path / "run")
    assert after.source_tokenizer == before.source_tokenizer
    assert after.target_tokenizer == before.target_tokenizer
    expected = before.description()
    assert expected.pop("beam_size") == 3
    assert after.description() == {**expected, "beam_size": 1}
    assert (after.model.dropout, before.model.dropout) == (0.05, 0.1)
    pairs = list(parallel_text.tsv(corpus).valid)[:8]
    scores = [np.mean(found.score(*map(list, zip(*pairs)))) for found in (before, after)]
    assert scores[0] < scores[1]
    zoo.save_hf(after, tmp_path / "hf")
    for one, other in zip(zoo.load(tmp_path / "hf").model.weights, after.model.weights):
        np.testing.assert_array_equal(one, other, err_msg=one.path)


@pytest.fixture
def is_resumed(monkeypatch, tmp_path):
    """Function (config, settings) that checks that a run with them, perhaps resumed, trains."""

    def reached(*_, **__):
        raise InterruptedError

    monkeypatch.setattr("zoo.training.run.Run._fit", reached)

    def check(config, **settings):
        settings |= {"out": str(tmp_path / "run"), "resume": True}
        with pytest.raises(InterruptedError):
            translate.main(dataclasses.replace(config, **settings))

    return check


def test_a_run_is_not_resumed_with_another_vocabulary(published, corpus, tmp_path, is_resumed):
    """Two tokens have changed places."""
    folder = tmp_path / "weights"
    shutil.copytree(published, folder)
    for _ in range(2):
        is_resumed(translate.FINE_TUNING, weights=str(folder), tsv=str(corpus))
    vocab = json.loads((folder / "vocab.json").read_text())
    vocab[">>es<<"], vocab[">>fr<<"] = vocab[">>fr<<"], vocab[">>es<<"]
    (folder / "vocab.json").write_text(json.dumps(vocab))
    with pytest.raises(UserError, match="other settings:\n  checksum of the tokenizers: '"):
        is_resumed(translate.FINE_TUNING, weights=str(folder), tsv=str(corpus))


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"num_layers": 2}, "has its own tokenizers and architecture. Remove --num-layers"),
        ({"tokenizer": "word", "norm": "pre"}, "Remove --tokenizer, --norm"),
        ({"weights": None}, "Without --weights, a value is needed: --activation, --embed-dim"),
        ({"weights": "nowhere"}, "--weights: There is no file or folder nowhere"),
        ({"weights": "{digits}"}, "is not a translation model"),
        ({"src_lang": "en"}, "Received: src_lang"),
        ({"dropout": 1.5}, "rate=1.5"),
    ],
)
def test_bad_settings_of_fine_tuning(published, corpus, tmp_path, digits_run, settings, message):
    base = {"weights": str(published), "tsv": str(corpus), "out": str(tmp_path / "run")}
    settings = {**base, **settings}
    if settings["weights"]:
        settings["weights"] = settings["weights"].format(digits=digits_run[1])
    with pytest.raises(UserError, match=message):
        translate.main(dataclasses.replace(translate.FINE_TUNING, **settings))
    assert not (tmp_path / "run").exists()
