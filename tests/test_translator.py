"""A translator as people use it: texts in any number and of any length, its folder, its errors."""

import json
import os
import subprocess
import sys

import keras
import numpy as np
import pytest

import zoo
from zoo.__main__ import main
from zoo.text import BOS_ID, EOS_ID, PAD_ID
from zoo.text.tokenizer import train_tokenizer
from zoo.training.losses import SmoothedCrossEntropy
from zoo.translation_search import TranslationSearch
from zoo.translation_text import split
from zoo.translator import DESCRIPTION_FILE, SPECIAL_TOKENS, TranslationError, Translator

WORDS = "the a red big house dog cat sees eats in on bread table garden and".split()


def texts(count, longest=25, seed=0):
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(WORDS, random.integers(1, longest))) for _ in range(count)]


@pytest.fixture(scope="module")
def translator():
    """A small model that has begun to learn to copy: it ends its translations; some are wrong."""
    keras.utils.set_random_seed(0)
    given = texts(600)
    tokenizer = train_tokenizer(given, "word", 300)
    model = zoo.transformer(
        source_vocab_size=tokenizer.vocab_size,
        target_vocab_size=tokenizer.vocab_size,
        embed_dim=32,
        num_heads=2,
        num_layers=1,
        ff_dim=32,
        dropout=0.0,
        norm="pre",
        max_length=32,
    )
    source, labels = np.zeros((2, 600, 26), "int32")
    for row, ids in enumerate(tokenizer.encode(given)):
        source[row, : len(ids) + 1] = labels[row, : len(ids) + 1] = [*ids, EOS_ID]
    target = np.pad(labels[:, :-1], [(0, 0), (1, 0)], constant_values=BOS_ID)
    model.compile(keras.optimizers.Adam(3e-3), SmoothedCrossEntropy(0.1))
    weights = (labels != PAD_ID) / (labels != PAD_ID).sum(axis=1).mean() / 32
    model.fit({"source": source, "target": target}, labels, 32, 6, 0, sample_weight=weights)
    return Translator(model, tokenizer, tokenizer, beam_size=2)


def test_answers_are_in_the_callers_order(translator):
    given = texts(50)
    together = translator(given)
    assert len(together) == 50 and len(set(together)) > 20
    for index in (0, 1, 49):
        assert translator([given[index]]) == [together[index]]
    assert translator(given[::-1])[::-1] == together


def test_an_empty_text_gives_an_empty_text(translator):
    assert translator([]) == []
    assert translator([""]) == [""]
    assert translator(["  \n"]) == [""]
    [first, empty, second] = translator(["the dog", "", "a cat"])
    assert empty == "" and [first, second] == translator(["the dog", "a cat"])


def test_n_best_is_sorted_and_scored(translator):
    given = texts(5)
    best = translator(given)
    for text, translations in zip(best, translator.n_best(given, n=2)):
        scores = [score for _, score in translations]
        assert len(translations) == 2 and translations[0].text == text
        assert scores == sorted(scores, reverse=True) and max(scores) <= 0


def test_the_length_penalty_favours_longer_translations(translator):
    given = texts(20)
    lengths = [sum(map(len, translator(given, length_penalty=alpha))) for alpha in (0.0, 4.0)]
    assert lengths[0] < lengths[1]


def test_max_length(translator):
    for text in translator(texts(5), max_length=3):
        assert len(translator.target_tokenizer.encode([text])[0]) <= 3


def test_sampling_depends_on_the_seed_and_not_on_the_neighbours(translator):
    given = texts(10)
    draws = translator.sample(given, n=2, seed=1)
    assert draws == translator.sample(given, n=2, seed=1)
    assert draws != translator.sample(given, n=2, seed=2)
    fewer = translator.sample(given[:3], n=2, seed=1)
    assert [[d.text for d in ds] for ds in fewer] == [[d.text for d in ds] for ds in draws[:3]]
    coldest = translator.sample(given, temperature=0.001)
    assert [d.text for [d] in coldest] == translator(given, beam_size=1)
    assert [d.text for [d] in translator.sample(given, top_p=1e-6)] == translator(
        given, beam_size=1
    )


def test_the_number_of_traces_is_bounded(translator):
    """200 sentences of random lengths, alone and together, run at a few shapes."""
    searches = Translator(
        translator.model, translator.source_tokenizer, translator.target_tokenizer, beam_size=1
    )
    given = texts(200, longest=31)
    searches(given)
    for text in given[:60]:
        searches([text])
    for count in (2, 5, 9, 30):
        searches(given[:count])
    # lengths 16 and 32, batches of 1, 8 and 32
    assert searches._search._program.cache_info().currsize <= 6


def test_batches_hold_each_source_once_and_few_tokens():
    lengths = np.random.default_rng(0).integers(1, 2000, 500).tolist()
    batches = list(_batches(lengths, 2048))
    assert sorted(index for batch in batches for index in batch) == list(range(500))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[i] for i in batch) <= 4096


def test_a_text_that_is_too_long(translator):
    long = " ".join(texts(10, longest=12)) + ". " + "the dog eats bread. " * 20
    with pytest.raises(TranslationError, match=r"Text 1 is too long: \d+ tokens.*takes 32.*split"):
        translator(["the dog", long])
    [_, whole] = translator(["the dog", long], too_long="split")
    assert len(whole) > 20
    [[only]] = translator.n_best([long], n=1, too_long="split")
    assert only.text == whole


@pytest.mark.parametrize(
    "text, expected",
    [
        ("One. Two! Three?", ["One. Two!", "Three?"]),
        ("one two three four", ["one two", "three four"]),
        ("onetwothreefour", ["onetwot", "hreefour"]),
        ("一二三。四五六。七八九十", ["一二三。", "四五六。七八九十"]),
        ("short", ["short"]),
        ("  ", []),
    ],
)
def test_where_texts_are_split(text, expected):
    longest = max(map(len, expected), default=0)
    assert split(text, lambda part: len(part) <= longest) == expected


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda t: t("a text"), "list of str"),
        (lambda t: t([1]), "list of str"),
        (lambda t: t(["a"], beam_size=0), "beam_size must be from 1"),
        (lambda t: t(["a"], n=3, beam_size=2), "n must be from 1 to beam_size=2"),
        (lambda t: t(["a"], max_length=33), "max_length must be from 1 to 32"),
        (lambda t: t(["a"], too_long="cut"), 'too_long must be "error" or "split"'),
        (lambda t: t.sample(["a"], temperature=0), "temperature must be"),
        (lambda t: t.sample(["a"], top_p=1.5), "top_p must be"),
        (lambda t: t.sample(["a"], top_k=0), "top_k must be"),
        (lambda t: t.sample(["a"], n=0), "n must be"),
    ],
)
def test_bad_input(translator, call, message):
    with pytest.raises(TranslationError, match=message):
        call(translator)


def test_tokenizers_must_be_the_models(translator):
    other = train_tokenizer(["one two"], "word", 270)
    with pytest.raises(TranslationError, match="target tokens. Received a tokenizer with"):
        Translator(translator.model, translator.source_tokenizer, other)


def test_alignment(translator):
    found = translator.alignment("the red dog", "the cat")
    assert found.source == [" the", " red", " dog", "</s>"]
    assert found.target == [" the", " cat", "</s>"]
    assert found.weights.shape == (3, 4)
    np.testing.assert_allclose(found.weights.sum(axis=1), 1.0, atol=1e-5)


@pytest.fixture(scope="module")
def folder(translator, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    translator.save(folder)
    return folder


def test_saved_and_loaded(translator, folder):
    given, loaded = texts(6), zoo.load(folder)
    assert isinstance(loaded, Translator)
    assert loaded(given) == translator(given)
    assert loaded.description() == translator.description()
    assert loaded.beam_size == 2


def test_an_unfinished_folder(translator, tmp_path):
    translator.save(tmp_path)
    (tmp_path / DESCRIPTION_FILE).unlink()
    with pytest.raises(FileNotFoundError, match="no finished run"):
        zoo.load(tmp_path)


def command(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "zoo", *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        **options,
    )


def test_the_command_line(translator, folder, tmp_path):
    given = ["the dog", "", "a cat sees bread"]
    process = command("translate", folder, *given)
    assert process.returncode == 0, process.stderr
    assert process.stdout.split("\n") == [*translator(given), ""]
    assert not process.stderr
    picture = tmp_path / "attention.png"
    process = command("translate", folder, "--attention", picture, input="the dog\n")
    assert process.stdout == translator(["the dog"])[0] + "\n"
    assert picture.stat().st_size > 1000
    report = json.loads(command("info", folder).stdout)
    assert report["model"]["type"] == "Transformer" and report["search"]["beam_size"] == 2


@pytest.mark.parametrize(
    "arguments, message",
    [
        ("classify {run} image.png", "cannot classify: use `python -m zoo translate`"),
        ("translate {run} --file {here}/latin1.txt", "not UTF-8"),
        ("translate {run} --file {here}/missing.txt", "missing.txt"),
        ("translate {here}/nowhere a", "no run folder"),
        ("translate {run} a b --attention x.png", "--attention takes one text"),
        ("translate {run} a --beam-size -1", "beam_size must be from 1"),
    ],
)
def test_the_command_line_on_bad_input(folder, tmp_path, capsys, arguments, message):
    (tmp_path / "latin1.txt").write_bytes("ni\xf1o".encode("latin-1"))
    assert main(arguments.format(run=folder, here=tmp_path).split()) == 2
    assert message in capsys.readouterr().err


def test_scores_of_given_translations_are_those_of_the_search(translator):
    texts = ["hello world", "the dog is here", "a"]
    best = [translations[0] for translations in translator.n_best(texts, length_penalty=0.0)]
    scores = translator.score(texts, [translation.text for translation in best])
    # sums of float32 log-probabilities, step by step and all at once
    np.testing.assert_allclose(scores, [translation.score for translation in best], atol=1e-4)
    alone = [translator.score([text], [best.text])[0] for text, best in zip(texts, best)]
    np.testing.assert_allclose(scores, alone, atol=1e-4)
    assert translator.score([], []) == []
    with pytest.raises(TranslationError, match="1 texts and 2 translations"):
        translator.score(["a"], ["a", "b"])
    with pytest.raises(TranslationError, match="Text 1 or its translation is too long"):
        translator.score(["a", "b"], ["a", "b " * 600])
