"""The translation recipe, shrunk: its cache of tokenized pairs, and fine-tuning."""

import dataclasses
import itertools
import json
import os
import pathlib
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

import zoo
from tests.checkpoints.translation_folders import write_bart, write_marian
from tests.test_recipes import recipe
from zoo.data import parallel_text, tables, tokenized_corpus
from zoo.data.phrasebook import phrasebook_pairs
from zoo.errors import UserError
from zoo.training import distribution
from zoo.training.report_translation_scores import translation_scores
from zoo.training.run import Run
from zoo.training.sentence_pairs import load_pairs

ROOT = pathlib.Path(__file__).parents[1]
translate = recipe("translate")
CONFIG = dataclasses.replace(translate.Config(), vocab_size=400)
pytestmark = [pytest.mark.usefixtures("same_policy"), pytest.mark.ci]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A file of 400 pairs: numbers in words and in figures."""
    names = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    path = tmp_path_factory.mktemp("corpus") / "numbers.tsv"
    random = np.random.default_rng(0)
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(400):
            digits = random.integers(0, 10, random.integers(1, 3))
            words = " ".join(names[digit] for digit in digits)
            file.write(f"{words}\t{' '.join(map(str, digits))}\tsome source\n")
    return path


@pytest.fixture
def loaded(corpus, tmp_path):
    """Function (settings) -> (pairs and tokenizers of a run, names of folders in the cache)."""

    def load(**settings):
        config = {"tsv": str(corpus), "out": str(tmp_path / "runs" / "a"), **settings}
        config = dataclasses.replace(CONFIG, **config)
        data = load_pairs(Run(config), config.max_length)
        cache = pathlib.Path(settings.get("cache_dir", tmp_path / "runs/.cache/translate"))
        return data, {path.name for path in cache.iterdir() if path.is_dir()}

    return load


def test_other_workers_open_the_folder_of_the_chief(loaded, tmp_path, monkeypatch):
    (data, tokenizers), [folder] = loaded()
    monkeypatch.setattr(distribution, "from_chief", lambda *_: int(folder, 16))
    settings = dataclasses.replace(CONFIG, tsv="on the machine of the chief")
    run = SimpleNamespace(
        settings=settings, path=tmp_path / "runs" / "a", is_chief=False, strategy=None
    )
    other, same_tokenizers = load_pairs(run, settings.max_length)
    assert other.test == data.test and other.seed == data.seed == settings.seed
    np.testing.assert_array_equal(other.train.sequences.ids, data.train.sequences.ids)
    assert same_tokenizers == tokenizers
    # Names may begin with zeros.
    short = tmp_path / "runs/.cache/translate/000000002a"
    (tmp_path / "runs/.cache/translate" / folder).rename(short)
    monkeypatch.setattr(distribution, "from_chief", lambda *_: 42)
    assert load_pairs(run, settings.max_length)[0].test == data.test
    monkeypatch.setattr(distribution, "from_chief", lambda *_: int(folder, 16))
    with pytest.raises(UserError, match=f"{folder}, which .* --cache-dir with a folder that all"):
        load_pairs(run, settings.max_length)


def test_sentence_pairs_are_tokenized_once(corpus, loaded, tmp_path, capsys, monkeypatch):
    (first, tokenizers), [folder] = loaded()
    output = capsys.readouterr().out
    assert "tokenized now: " in output and f"{folder}\n" in output
    text = parallel_text.tsv(corpus)
    assert first.test == list(text.test)
    assert len(first.train) == len(list(text.train)) and len(first.valid) == len(list(text.valid))

    monkeypatch.setattr(tables, "read_lines", lambda path: pytest.fail("it is read again"))
    (again, same_tokenizers), folders = loaded(
        out=str(tmp_path / "runs" / "b"), epochs=7, embed_dim=32, dropout=0.1, tokens_per_batch=99
    )
    assert folders == {folder}
    assert capsys.readouterr().out == output.replace("tokenized now", "tokenized by an earlier run")
    assert same_tokenizers == tokenizers
    assert (again.test, again.notes) == (first.test, first.notes)
    chosen = np.arange(20)
    for one, other in zip(
        again.train.batch(chosen, (20, 64))[1:], first.train.batch(chosen, (20, 64))[1:]
    ):
        np.testing.assert_array_equal(one, other)


def test_other_data_or_settings_are_tokenized_anew(corpus, loaded, tmp_path):
    copy = shutil.copy(corpus, tmp_path / "copy.tsv")
    others = [{}, {"tsv": str(copy)}, {"seed": 1}, {"max_length": 30}, {"vocab_size": 300}]
    others += [{"tokenizer": "character"}, {"vocabulary": "separate"}]
    for count, settings in enumerate(others, 1):
        for _ in range(2):
            assert len(loaded(**settings)[1]) == count, settings
    os.utime(copy)
    assert len(loaded(tsv=str(copy))[1]) == len(others) + 1
    assert len(loaded(cache_dir=str(tmp_path / "elsewhere"))[1]) == 1


def test_a_tokenizer_is_trained_on_a_part_of_a_large_corpus(corpus, loaded, monkeypatch):
    seen = []
    train = tokenized_corpus.train_tokenizer

    def watched(lines, *settings):
        seen.extend(lines)
        return train(seen, *settings)

    monkeypatch.setattr(tokenized_corpus, "train_tokenizer", watched)
    monkeypatch.setattr(tokenized_corpus, "_MAX_PAIRS", 100)
    loaded()
    pairs = list(parallel_text.tsv(corpus).train)
    assert seen == [text for pair in pairs[::4] for text in pair], "400 pairs, of which 100"


def test_targets_are_learned_as_they_are(loaded, tmp_path):
    """A model without a fault has a BLEU of 100; what another normalization changes is counted."""
    rows = (f"Number {number}…\t第{number}，（你好）：H₂O\u3000\u200c！" for number in range(300))
    (tmp_path / "zh.tsv").write_text("\n".join(rows))
    for vocabulary in ("joint", "separate"):
        settings = {"tsv": str(tmp_path / "zh.tsv"), "vocabulary": vocabulary}
        (data, (source, target)), _ = loaded(**settings)
        references = [reference for _, reference in data.test]
        scores = translation_scores(target.decode(target.encode(references)), references)
        assert (round(scores["bleu"], 6), scores["exact_match"]) == (100, 1)
        assert source.decode(source.encode(["  1…"])) == ["1..."]
        is_joint = [*source.tokens.values()] == [*target.tokens.values()]
        assert is_joint == (vocabulary == "joint") and data.notes == ()
        (data, tokenizers), _ = loaded(**settings, target_normalization="nmt_nfkc")
        count, example = len(references), f"{references[0][:40]!r} becomes '第"
        assert f"The tokenizer cannot give back {count} of {count} test references" in data.notes[0]
        assert example in data.notes[0]
        assert (tokenizers[0] == tokenizers[1]) == (vocabulary == "joint")


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
    english = ["the", "cat", "sees", "a", "big", "dog"]
    spanish = ["el", "gato", "ve", "un", "gran", "perro"]
    words = zip(english, spanish)
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
    before = zoo.load(published, tgt_lang="es")
    after = zoo.load(tmp_path / "run")
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


@pytest.mark.slow
def test_fine_tuning_of_summaries(tmp_path):
    """A TSV of texts and summaries; the run is of the same kind as its weights."""
    (tmp_path / "bart").mkdir()
    write_bart(tmp_path / "bart")
    before = zoo.load(tmp_path / "bart")
    before.settings = {"seed": 7}  # as of the run of a recipe
    before.save(tmp_path / "before")
    pairs = phrasebook_pairs(120)
    lines = [f"{one} {other}\t{one}" for (one, _), (other, _) in zip(pairs, pairs[1:])]
    (tmp_path / "pairs.tsv").write_text("\n".join(lines))
    config = dataclasses.replace(
        translate.FINE_TUNING,
        weights=str(tmp_path / "before"),
        tsv=str(tmp_path / "pairs.tsv"),
        epochs=1,
        out=str(tmp_path / "run"),
    )
    translate.main(config)
    after = zoo.load(tmp_path / "run")
    assert type(after) is type(before) and not after.keep_numbers
    assert (after.settings["seed"], after.settings["weights"]) == (0, str(tmp_path / "before"))
    assert after.description() == before.description()
    assert after.source_tokenizer == before.source_tokenizer


def test_a_run_is_not_resumed_with_another_vocabulary(published, corpus, tmp_path, monkeypatch):
    """Or other pairs. Two tokens have changed places; the file of the same data may have."""

    def reached(*_, **__):
        raise InterruptedError

    monkeypatch.setattr("zoo.training.trainer.Trainer.fit", reached)
    folder = shutil.copytree(published, tmp_path / "weights")
    paths = {"weights": str(folder), "out": str(tmp_path / "run")}
    for path in (corpus, shutil.copy(corpus, tmp_path / "moved.tsv")):
        paths["tsv"] = str(path)
        config = dataclasses.replace(translate.FINE_TUNING, **paths, resume=True)
        with pytest.raises(InterruptedError):
            translate.main(config)
    # The targets of two training pairs change places: their number and their tokens stay.
    first, *others = parallel_text.tsv(corpus).train
    second = next(pair for pair in others if pair[1] != first[1] and pair[0] != first[0])
    lines = corpus.read_text().replace("\t".join(first), "\t".join([first[0], second[1]]), 1)
    changed = lines.replace("\t".join(second), "\t".join([second[0], first[1]]), 1)
    (tmp_path / "changed.tsv").write_text(changed)
    with pytest.raises(UserError, match="other settings:\n  data: '"):
        translate.main(dataclasses.replace(config, tsv=str(tmp_path / "changed.tsv")))
    vocab = json.loads((folder / "vocab.json").read_text())
    vocab[">>es<<"], vocab[">>fr<<"] = vocab[">>fr<<"], vocab[">>es<<"]
    (folder / "vocab.json").write_text(json.dumps(vocab))
    with pytest.raises(UserError, match="other settings:\n  checksum of the tokenizers: '"):
        translate.main(config)
