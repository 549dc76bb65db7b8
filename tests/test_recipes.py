"""The real recipes, shrunk: what they print and leave, and going on."""

import csv
import dataclasses
import importlib
import importlib.util
import json
import math
import pathlib
import shutil
import sys

from zoo.training.recipe import parse

import numpy as np
import pytest
from PIL import Image
from sklearn.metrics import average_precision_score, f1_score, log_loss

import zoo
from tests.checkpoints.test_text_checkpoints import folder_of
from tests.conftest import run_recipe
from tests.interrupted import RUNS
from zoo.errors import DataError, UserError
from zoo.training.report import translation_scores

ROOT = pathlib.Path(__file__).parents[1]


def recipe(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "recipes" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


causal_lm, vit_cifar10, vit_imagenet = map(recipe, ("causal_lm", "vit_cifar10", "vit_imagenet"))
pytestmark = [pytest.mark.usefixtures("same_policy"), pytest.mark.ci]


@pytest.fixture(scope="module")
def numbers(made_once):
    """A text of counting: a model that has learned it predicts the next number."""
    text = "".join(f"{n}\n" for n in range(3000))
    return made_once("numbers.txt", lambda path: path.write_text(text))[1]


@pytest.fixture(scope="module")
def numbers_run(made_once, numbers):
    flags = ("--text", str(numbers))
    return made_once("causal_lm", lambda folder: run_recipe("text", folder, *flags))


def rows_of(path, **format):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, **format))


FILES = {"checkpoints", "config.json", "history.csv", "learning_curves.png"}
FILES |= {"metrics.json", "model.keras", "tensorboard"}


IMAGE_FILES = "attention.png classifier.json confusion_matrix.png"
TEXT_FILES = "confusion_matrix.png predictions.tsv text_classifier.json text.spm"
PAIR_FILES = "attention.png source.spm target.spm translations.tsv translator.json"
TEXT_MODEL_FILES = "generator.json samples.txt text.spm"
SCORES = ["BLEU", "chrF", "nrefs:1|case:mixed", "exact matches", "reference"]


@pytest.mark.parametrize(
    "run, files, texts, items",
    [
        ("digits_run", IMAGE_FILES, ["test accuracy"], "images"),
        ("texts_run", TEXT_FILES, ["test accuracy"], "texts"),
        ("phrasebook_run", PAIR_FILES, SCORES, "tokens"),
        ("numbers_run", TEXT_MODEL_FILES, ["perplexity", "bits per byte"], "tokens"),
    ],
)
def test_a_run_ends_well_and_says_where_things_are(run, files, texts, items, request):
    process, folder = request.getfixturevalue(run)
    assert process.returncode == 0, process.stderr
    assert process.stdout.splitlines()[-1] == str(folder)
    assert all(text in process.stdout for text in [*texts, f"{items}/s"])
    unwanted = ("oneDNN custom operations", "cuda", "absl", "Warning")
    assert not any(text in process.stderr for text in unwanted)
    assert {path.name for path in folder.iterdir()} == FILES | set(files.split())
    assert any(folder.glob("tensorboard/*/events.out.tfevents*"))
    for picture in folder.glob("*.png"):
        pixels = np.asarray(Image.open(picture).convert("L"))
        assert pixels.std() > 10, f"{picture} is blank"
    columns = rows_of(folder / "history.csv")[-1].keys()
    assert {"loss", "val_loss", "val_accuracy", "learning_rate", f"{items}_per_second"} <= columns
    config = json.loads((folder / "config.json").read_text())
    assert config["config"]["epochs"] == 2 and "tensorflow" in config["environment"]["packages"]


def metrics_and_texts(folder, name):
    """The metrics of a run and the columns of its table of texts."""
    rows = rows_of(folder / name, delimiter="\t")
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    return json.loads((folder / "metrics.json").read_text()), columns


def test_the_metrics_of_a_translator_are_those_of_the_saved_model(phrasebook_run):
    folder = phrasebook_run[1]
    metrics, texts = metrics_and_texts(folder, "translations.tsv")
    assert len(texts["source"]) == metrics["test_sentences"] > 100
    found = translation_scores(texts["translation"], texts["reference"])
    assert {name: metrics[name] for name in found} == found
    assert zoo.load(folder)(texts["source"][:8]) == texts["translation"][:8]
    # two epochs of a tiny model: it has learned something
    assert 0.1 < metrics["val_accuracy"] < 1


def test_the_metrics_of_a_text_classifier_are_those_of_the_saved_model(texts_run, sentences_part):
    folder = texts_run[1]
    metrics, found = metrics_and_texts(folder, "predictions.tsv")
    texts = found["text"]
    labels = found["label"]
    given = dict(line.split("\t")[::-1] for line in sentences_part.read_text().splitlines())
    assert len(texts) == metrics["test_texts"] > 100
    assert [given[text] for text in texts] == labels
    assert metrics["test_accuracy"] == np.mean(np.equal(labels, found["prediction"]))
    answers = zoo.load(folder)(texts, top_k=8)
    assert [answer[0][0] for answer in answers] == found["prediction"]
    of_labels = [dict(answer)[label] for answer, label in zip(answers, labels)]
    np.testing.assert_allclose(metrics["test_loss"], -np.log(of_labels).mean(), rtol=1e-5)
    parts = metrics["train_texts"] + metrics["valid_texts"] + metrics["test_texts"]
    assert parts == len(given) == 3000
    assert sum(metrics["test_counts"].values()) == len(texts) and metrics["notes"] == []
    assert metrics["balanced_accuracy"] < metrics["test_accuracy"], "actions are half of them"


@pytest.mark.slow
def test_a_text_classifier_of_several_labels(sentences_part, tmp_path):
    """Of words in the texts; its metrics are those that scikit-learn finds for the saved model."""
    words = ["my", "the", "to"]
    lines = sentences_part.read_text().splitlines()
    texts = [line.split("\t")[1] for line in lines]
    found = ["|".join(word for word in words if word in text.lower().split()) for text in texts]
    assert {"", "my", "the", "to", "the|to"} <= {*found}
    data = tmp_path / "words.tsv"
    data.write_text("".join(f"{label}\t{text}\n" for label, text in zip(found, texts)))
    module = recipe("text_classifier")
    folder = tmp_path / "run"
    settings = {"tsv": str(data), "label_separator": "|", "epochs": 6, "out": str(folder)}
    settings |= {"learning_rate": 1e-2, "ema_momentum": 0.8}
    module.main(dataclasses.replace(module.PHRASEBOOK, dataset=None, **settings))

    classifier = zoo.load(folder)
    assert (classifier.problem, classifier.class_names) == ("multi_label", words)
    metrics, table = metrics_and_texts(folder, "predictions.tsv")
    probabilities = classifier.probabilities(table["text"])
    labels = np.array([[word in label.split("|") for word in words] for label in table["label"]])
    expected = average_precision_score(labels, probabilities, average=None)
    assert list(metrics["average_precision"].values()) == pytest.approx(expected, abs=1e-6)
    assert metrics["mean_average_precision"] == pytest.approx(expected.mean(), abs=1e-6)
    assert metrics["mean_average_precision"] > 0.5 > labels.mean(), "it has learned something"
    f1 = f1_score(labels, probabilities >= 0.5, average="micro", zero_division=0)
    assert metrics["f1_micro"] == pytest.approx(f1)
    assert metrics["items"] == dict(zip(words, labels.sum(axis=0).tolist()))
    answers = ["|".join(sorted(name for name, _ in one)) for one in classifier(table["text"])]
    assert answers == table["prediction"]
    assert metrics["test_loss"] == pytest.approx(
        log_loss(labels.ravel(), probabilities.ravel()), abs=1e-4
    )


@pytest.mark.slow
def test_fine_tuning_of_a_text_classifier(tmp_path):
    """The run has the tokenizer and the special tokens of the weights, and a new head."""
    published = folder_of(tmp_path, "roberta")
    lines = [f"{'ab'[n % 2]}\t{['the cat', 'a book'][n % 2]} {n}\n" for n in range(300)]
    (tmp_path / "texts.tsv").write_text("".join(lines))
    module = recipe("text_classifier")
    config = dataclasses.replace(
        module.FINE_TUNING,
        weights=str(published),
        tsv=str(tmp_path / "texts.tsv"),
        epochs=2,
        learning_rate=5e-3,
        tokens_per_batch=300,
        dropout=0.0,
        out=str(tmp_path / "run"),
    )
    module.main(config)
    before = zoo.load(published)
    after = zoo.load(tmp_path / "run")
    assert after.tokenizer == before.tokenizer and after.special_tokens == before.special_tokens
    assert after.class_names == ["a", "b"] and after.model.dropout == 0.0
    assert after.model.max_length == before.model.max_length == 32 < config.max_length
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["test_accuracy"] > 0.9


def test_the_metrics_of_a_language_model_are_those_of_the_saved_model(numbers_run):
    folder = numbers_run[1]
    metrics = json.loads((folder / "metrics.json").read_text())
    generator = zoo.load(folder)
    assert metrics["perplexity"] == pytest.approx(math.exp(metrics["val_loss"]))
    assert metrics["perplexity"] < metrics["vocab_size"] / 4, "it has learned something"
    assert 0 < metrics["bits_per_byte"] < 8
    assert generator.model.count_params() == metrics["parameters"]
    [found] = generator(["10\n11\n"], max_new_tokens=8)
    assert found.startswith("10\n11\n")


def test_a_run_is_not_resumed_with_another_text(numbers_run, numbers, tmp_path):
    """Its tokens would have other ids."""
    folder = shutil.copytree(numbers_run[1], tmp_path / "run")
    other = tmp_path / numbers.name
    other.write_text(numbers.read_text().replace("7", "x"))
    flags = [*RUNS["text"][1].split(), "--text", str(numbers), "--out", str(folder), "--resume"]
    config = parse(flags, causal_lm.Config, {}, "")
    causal_lm.main(config)  # is finished
    settings = folder / "config.json"
    settings.write_text(settings.read_text().replace(str(numbers), str(other)))
    with pytest.raises(UserError, match="other settings:\n  (.*\n  )?checksum of the tokenizer: '"):
        causal_lm.main(dataclasses.replace(config, text=(str(other),)))


def test_a_finished_run_is_kept(digits_run):
    folder = digits_run[1]
    before = (folder / "model.keras").read_bytes()
    flags = [*RUNS["digits"][1].split(), "--out", str(folder)]
    config = parse(flags, vit_cifar10.Config, {"digits": vit_cifar10.DIGITS}, "")
    with pytest.raises(UserError, match="contains a finished run.*--overwrite"):
        vit_cifar10.main(config)
    with pytest.raises(UserError, match="not both"):
        vit_cifar10.main(dataclasses.replace(config, overwrite=True, resume=True))
    advice = f"vit_finetune.py .*--weights {folder} --out OTHER"
    with pytest.raises(UserError, match=f"(?s)patience: None, now 1.*epochs: 2, now 3.*{advice}"):
        vit_cifar10.main(dataclasses.replace(config, epochs=3, patience=1, resume=True))
    vit_cifar10.main(dataclasses.replace(config, resume=True))
    assert (folder / "model.keras").read_bytes() == before


def write_images(folder, numbers):
    """Red and green images of different sizes."""
    for color, name in enumerate(("red", "green")):
        (folder / name).mkdir(parents=True)
        for number in numbers:
            shape = (20 + number, 40 - number, 3)
            pixels = np.random.default_rng(number).integers(0, 60, shape, np.uint8)
            pixels[..., color] += 150
            Image.fromarray(pixels).save(folder / name / f"{number}.jpg")


@pytest.mark.slow
def test_unbalanced_classes_and_the_best_epoch(tmp_path, capsys):
    """The rare class counts as much; the averaged weights of the best epoch are tested and kept."""
    write_images(tmp_path / "images/train", range(20))
    write_images(tmp_path / "images/validation", range(20))
    for number in range(3, 20):
        (tmp_path / f"images/train/green/{number}.jpg").unlink()
    (tmp_path / "images/train/green/notes.txt").touch()
    config = dataclasses.replace(
        vit_cifar10.DIGITS,
        **{"embed_dim": 16, "num_heads": 2, "num_layers": 1, "ff_dim": 16},
        data_dir=str(tmp_path / "images"),
        image_size=8,
        batch_size=8,
        epochs=20,
        warmup_fraction=0.0,
        learning_rate=0.1,
        clip_norm=100.0,
        patience=2,
        class_weights="balanced",
        out=str(tmp_path / "run"),
    )
    vit_cifar10.main(config)
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["train_counts"] == {"green": 3, "red": 20}
    assert metrics["test_counts"] == {"green": 20, "red": 20}
    assert metrics["balanced_accuracy"] == metrics["test_accuracy"]
    assert metrics["notes"][1:] == [
        "Not used: 1 (train/green/notes.txt).",
        "Test images that are also training images: 23 of 40.",
    ]
    rows = rows_of(tmp_path / "run" / "history.csv")
    output = capsys.readouterr().out
    losses = [float(row["val_loss"]) for row in rows]
    best = losses.index(min(losses))
    assert best < len(rows) - 1 == min(best + 2, 19), "the run has stopped after its best epoch"
    assert metrics["best_epoch"] == metrics["tested_epoch"] == best + 1
    assert f"after epoch {best + 1} of {len(rows)} (best: {best + 1})" in output
    assert abs(metrics["test_accuracy"] - float(rows[best]["val_accuracy"])) < 1e-6
    for name in ("val_accuracy", "val_loss"):
        assert metrics[name] == float(rows[best][name]), name
    assert metrics["train_loss"] == float(rows[best]["loss"])


def test_the_imagenet_recipe_on_a_few_images(tmp_path, monkeypatch):
    """Of different sizes; a damaged one, which is met in training, is named.

    It validates on held-out training images, and tests on all test images at the end.
    """
    vit = importlib.import_module("zoo.models.vit")
    size = {"embed_dim": 16, "num_layers": 1, "num_heads": 2, "ff_dim": 32}
    monkeypatch.setitem(vit.SIZES, "Ti", size)
    write_images(tmp_path / "images/val", range(4))
    write_images(tmp_path / "images/train", range(4, 24))
    damaged = tmp_path / "images/train/red/4.jpg"
    image = damaged.read_bytes()
    damaged.write_bytes(b"broken")
    config = vit_imagenet.Config(
        data_dir=str(tmp_path / "images"),
        image_size=16,
        eval_resize=18,
        size="Ti/8",
        epochs=12,
        batch_size=20,
        validation_split=0.25,
        accumulation=2,
        learning_rate=0.01,
        randaugment_num_ops=0,
        mixup_alpha=0.0,
        out=str(tmp_path / "run"),
    )
    with pytest.raises(DataError, match="1 of [13]0 images cannot be read.*/4.jpg cannot be read"):
        vit_imagenet.main(dataclasses.replace(config, out=str(tmp_path / "stopped")))
    damaged.write_bytes(image)
    vit_imagenet.main(config)
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["test_images"] == 8 and metrics["train_images"] == 30
    assert metrics["test_accuracy"] == metrics["val_accuracy"] == 1.0
    classifier = zoo.load(tmp_path / "run")
    assert classifier.preprocessing.resize == 18 and classifier.preprocessing.mean == (0.5,) * 3
    [[(name, _)]] = classifier([tmp_path / "images/train/green/20.jpg"])
    assert name == "green"
