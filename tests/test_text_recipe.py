"""The text classification recipe, shrunk: what it prints and leaves, resuming, and bad input."""

import csv
import dataclasses
import json

import numpy as np
import pytest

import zoo
from tests.interrupted import assert_same, killed, outcome, resumed
from tests.test_recipes import recipe
from zoo.errors import UserError

text_classifier = recipe("text_classifier")
CONFIG = dataclasses.replace(
    text_classifier.Config(),
    vocab_size=400,
    embed_dim=16,
    num_heads=2,
    num_layers=1,
    ff_dim=16,
    epochs=2,
    tokens_per_batch=2048,
)


pytestmark = [pytest.mark.usefixtures("same_policy"), pytest.mark.ci]


def predictions(folder):
    with open(folder / "predictions.tsv", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def test_the_metrics_are_those_of_the_saved_model(texts_run, sentences_part):
    folder = texts_run[1]
    metrics, rows = json.loads((folder / "metrics.json").read_text()), predictions(folder)
    given = dict(line.split("\t")[::-1] for line in sentences_part.read_text().splitlines())
    assert len(rows) == metrics["test_texts"] > 100
    assert all(given[row["text"]] == row["label"] for row in rows)
    right = [row["label"] == row["prediction"] for row in rows]
    assert metrics["test_accuracy"] == np.mean(right)
    classifier = zoo.load(folder)
    answers = classifier([row["text"] for row in rows])
    assert [name for [(name, _)] in answers] == [row["prediction"] for row in rows]
    of_labels = [
        dict(answer)[row["label"]]
        for answer, row in zip(classifier([row["text"] for row in rows], top_k=8), rows)
    ]
    np.testing.assert_allclose(metrics["test_loss"], -np.log(of_labels).mean(), rtol=1e-5)
    parts = metrics["train_texts"] + metrics["valid_texts"] + metrics["test_texts"]
    assert parts == len(given) == 3000


@pytest.mark.slow
def test_other_settings_learn_to_classify(tmp_path):
    words = {"fruit": "apple pear plum fig".split(), "animal": "dog cat cow fox".split()}
    random = np.random.default_rng(0)
    with open(tmp_path / "words.tsv", "w") as file:
        for n in range(600):
            label = ("fruit", "animal")[n % 2]
            filler = " ".join(map(str, random.integers(0, 100, random.integers(0, 30))))
            file.write(f"{label}\t{filler} {words[label][random.integers(4)]} {n}\n")
    config = dataclasses.replace(
        CONFIG,
        tsv=str(tmp_path / "words.tsv"),
        tokenizer="word",
        max_length=48,
        positions="relative",
        norm="post",
        pool="cls",
        precision="mixed_bfloat16",
        epochs=12,
        learning_rate=1e-2,
        ema_momentum=0.9,
        label_smoothing=0.1,
        out=str(tmp_path / "run"),
    )
    text_classifier.main(config)
    classifier = zoo.load(tmp_path / "run")
    assert (classifier.model.pool, classifier.model.norm) == ("cls", "post")
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["test_accuracy"] > 0.9
    answers = classifier(["the cat", "a plum 12", "pear " * 60], too_long="truncate")
    assert [name for [(name, _)] in answers] == ["animal", "fruit", "fruit"]


@pytest.mark.slow  # the other recipes resume in the same way
def test_killed_while_it_writes_a_checkpoint_it_resumes_bit_for_bit(
    tmp_path, texts_run, sentences_part
):
    folder, flags = tmp_path / "run", ("--tsv", str(sentences_part))
    killed("texts", folder, "writing", *flags)
    assert_same(resumed("texts", folder, *flags), outcome(texts_run[1]))


@pytest.mark.slow
def test_a_run_that_stopped_early_is_resumed_in_its_report(sentences_part, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    config = dataclasses.replace(
        CONFIG, tsv=str(sentences_part), epochs=9, patience=1, learning_rate=1.0, out=str(folder)
    )
    with monkeypatch.context() as patch, pytest.raises(TypeError):
        patch.setattr("zoo.training.report.finish_text_classifier", None)
        text_classifier.main(config)
    history = (folder / "history.csv").read_text()
    assert len(history.splitlines()) - 1 < 9, "it stops early: the learning rate is too high"
    text_classifier.main(config)
    assert (folder / "history.csv").read_text() == history
    assert (folder / "metrics.json").is_file()


@pytest.mark.parametrize(
    "settings, message",
    [
        ({}, "--dataset phrasebook"),
        ({"dataset": "phrasebook", "tsv": "a.tsv"}, "exactly one of"),
        ({"tsv": "nowhere.tsv"}, "nowhere.tsv"),
        ({"tsv": "{sentences}", "num_heads": 3}, "embed_dim=16, num_heads=3"),
        ({"tsv": "{sentences}", "vocab_size": 10}, "vocab_size"),
        ({"dataset": "imdb_reviews", "data_dir": "nowhere"}, "no folder nowhere"),
    ],
)
def test_bad_settings_leave_nothing_behind(sentences_part, tmp_path, settings, message):
    if "tsv" in settings:
        settings = {**settings, "tsv": settings["tsv"].format(sentences=sentences_part)}
    config = dataclasses.replace(CONFIG, out=str(tmp_path / "run"), **settings)
    with pytest.raises(UserError, match=message):
        text_classifier.main(config)
    assert not (tmp_path / "run").exists()
