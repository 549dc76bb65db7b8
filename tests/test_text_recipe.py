"""The text classification recipe, shrunk: what it prints and leaves, resuming, and bad input."""

import csv
import dataclasses
import json

import numpy as np
import pytest

import zoo
from tests.interrupted import assert_same, outcome
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


class Stop(Exception):
    pass


@pytest.mark.slow  # the other recipes resume in the same way
@pytest.mark.parametrize("moment", ["in an epoch", "after training"])
def test_a_resumed_run_ends_as_an_uninterrupted_one(sentences_part, tmp_path, monkeypatch, moment):
    """Also if early stopping has ended the training, and the report was interrupted."""
    from zoo.training import checkpoint, report

    config = dataclasses.replace(
        CONFIG, tsv=str(sentences_part), epochs=9, patience=1, checkpoint_steps=1,
        learning_rate=1.0, dropout=0.0, out=str(tmp_path / "whole"),
    )  # fmt: skip
    text_classifier.main(config)
    expected = outcome(tmp_path / "whole")
    assert len(expected[1]) < 9, "it stops early: the learning rate is too high"
    config = dataclasses.replace(config, out=str(tmp_path / "run"))

    def stop(*args, **settings):
        raise Stop

    with monkeypatch.context() as patch:
        if moment == "after training":
            patch.setattr(report, "finish_text_classifier", stop)
        else:
            save = checkpoint.Checkpoint._save

            def save_some(self, *args):
                save(self, *args)
                if self.step == 12:
                    raise Stop

            patch.setattr(checkpoint.Checkpoint, "_save", save_some)
        with pytest.raises(Stop):
            text_classifier.main(config)
    text_classifier.main(dataclasses.replace(config, resume=True))
    assert_same(outcome(tmp_path / "run"), expected)


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
