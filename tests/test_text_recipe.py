"""The text classification recipe, shrunk: what it prints and leaves, resuming, and bad input."""

import csv
import dataclasses
import json

import numpy as np
import pytest

import zoo
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
