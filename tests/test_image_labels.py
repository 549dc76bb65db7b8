"""The image recipes with a table of labels: trained, resumed, loaded, evaluated and exported."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from sklearn.metrics import average_precision_score

import zoo
from tests.deploy.small_models import small_classifier
from tests.interrupted import assert_same, outcome
from tests.test_recipes import recipe
from zoo.__main__ import main
from zoo.errors import UserError
from zoo.evaluation.data import labeled_images
from zoo.training.settings import ImageSettings

vit_cifar10, vit_imagenet, vit_finetune = map(
    recipe, ("vit_cifar10", "vit_imagenet", "vit_finetune")
)
pytestmark = [pytest.mark.usefixtures("same_policy"), pytest.mark.ci]
COLORS = np.array(["red", "green", "blue"])
SMALL = {"embed_dim": 16, "num_heads": 2, "num_layers": 1, "ff_dim": 32, "image_size": 8}
SMALL |= {"epochs": 2, "batch_size": 16, "learning_rate": 0.03, "ema_momentum": 0.5}


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """160 images of noise in which each of red, green and blue is high or not; two tables."""
    folder = tmp_path_factory.mktemp("data") / "photos"
    (folder / "sub").mkdir(parents=True)
    random = np.random.default_rng(0)
    several = ["image,labels"]
    single = []
    for number in range(160):
        bright = number >> np.arange(3) & 1
        pixels = (bright * 150 + random.integers(0, 100, (8, 8, 3))).astype(np.uint8)
        Image.fromarray(pixels).save(folder / "sub" / f"{number}.png")
        several.append(f"sub/{number}.png,{'|'.join(COLORS[bright > 0])}")
        single.append(f"sub/{number}.png\t{'red' if bright[0] else 'dull'}")
    (folder.parent / "several.csv").write_text("\n".join(several))
    (folder.parent / "single.tsv").write_text("\n".join(single))
    return folder


def tables(photos):
    several = {"labels": str(photos.parent / "several.csv"), "problem": "multi_label"}
    return {"single": {"labels": str(photos.parent / "single.tsv")}, "several": several}


def config(photos, out, name="several", **settings):
    paths = {"data_dir": f"{photos}/", "out": str(out), "dataset": "cifar10", "optimizer": "adamw"}
    settings = {**SMALL, **paths, **tables(photos)[name], **settings}
    return dataclasses.replace(vit_cifar10.DIGITS, patch_size=4, **settings)


@pytest.fixture(scope="module")
def several(photos):
    """A run with several labels."""
    out = photos.parent / "several"
    vit_cifar10.main(config(photos, out, epochs=6))
    return out


def measured(run):
    return json.loads((run / "metrics.json").read_text())


@pytest.mark.slow
def test_a_run_with_one_label(photos, tmp_path, capsys):
    vit_cifar10.main(config(photos, tmp_path / "run", "single", class_weights="balanced"))
    classifier = zoo.load(tmp_path / "run")
    assert (classifier.problem, classifier.class_names) == ("single_label", ["dull", "red"])
    metrics = measured(tmp_path / "run")
    assert metrics["test_accuracy"] > 0.8 and metrics["test_counts"] == {"dull": 8, "red": 8}
    scores = zoo.evaluate(tmp_path / "run", photos, labels=tables(photos)["single"]["labels"])
    assert (scores["items"], scores["accuracy"]) == (16, metrics["test_accuracy"])
    assert "16 images" in scores["notes"][0] and "single.tsv, held out" in scores["notes"][0]


def test_a_run_with_several_labels(photos, several, tmp_path, capsys):
    """Its metrics are those of the saved model, of `zoo.evaluate` and of its export."""
    classifier = zoo.load(several)
    names = ["blue", "green", "red"]
    assert (classifier.problem, classifier.class_names) == ("multi_label", names)
    white, black = classifier([np.full((8, 8, 3), value, np.uint8) for value in (200, 50)])
    assert {name for name, _ in white} == {*names} and black == []
    metrics = measured(several)
    table = tables(photos)["several"]["labels"]
    data = labeled_images(photos, table, settings=classifier.settings, problem="multi_label")
    assert len(data.items) == metrics["test_images"] and metrics["train_images"] > 140
    true = np.array([np.isin(range(3), row) for row in data.labels])
    paths = [data.items.name(number) for number in data.items.numbers]
    probabilities = classifier.probabilities(paths)
    logits = classifier.model(classifier.preprocess(paths), training=False).numpy()
    np.testing.assert_allclose(probabilities, 1 / (1 + np.exp(-logits)), rtol=1e-5)
    precision = average_precision_score(true, probabilities, average="macro")
    assert metrics["mean_average_precision"] == pytest.approx(precision) and precision > 0.9
    loss = -np.log(np.where(true, probabilities, 1 - probabilities)).mean()
    assert metrics["test_loss"] == pytest.approx(loss, rel=1e-4)
    assert metrics["val_loss"] == pytest.approx(loss, abs=1e-4)
    accuracy = np.mean(true == (probabilities >= 0.5))
    assert metrics["val_accuracy"] == pytest.approx(accuracy, abs=1e-5)
    assert not (several / "confusion_matrix.png").exists() and (several / "attention.png").exists()

    zoo.export(classifier, tmp_path / "1")
    served = tf.saved_model.load(str(tmp_path / "1")).signatures["serving_default"]
    files = tf.constant([tf.io.read_file(path).numpy() for path in paths])
    [name] = served.structured_input_signature[1]
    outputs = {key: value.numpy() for key, value in served(**{name: files}).items()}
    order = [[names.index(label.decode()) for label in row] for row in outputs["labels"]]
    expected = np.take_along_axis(probabilities, np.array(order), axis=1)
    np.testing.assert_allclose(outputs["probabilities"], expected, atol=1e-5)
    scores, exported = zoo.evaluate([several, tmp_path / "1"], photos, labels=table)
    for name in ("mean_average_precision", "f1_micro", "f1_macro", "average_precision"):
        assert scores[name] == pytest.approx(metrics[name]) == exported[name]
    for found in (scores, exported):
        assert found["loss"] == pytest.approx(metrics["test_loss"], rel=1e-4)
        assert (found["items"], found["class_items"]) == (len(paths), metrics["items"])
    assert main(["evaluate", str(several), str(photos), "--labels", table]) == 0
    assert "mean average precision" in capsys.readouterr().out


@pytest.mark.slow
def test_another_table_is_evaluated_as_a_whole(photos, several, tmp_path):
    """An image without a label counts; one of the table of the run that has changed is named."""
    rows = "sub/7.png,red|green|blue\nsub/0.png,\nsub/1.png,red\n"
    other = tmp_path / "other.csv"
    other.write_text(rows)
    scores = zoo.evaluate(several, photos, labels=other)
    assert scores["items"] == 3 and scores["mean_average_precision"] == 1.0
    assert scores["class_items"] == {"blue": 1, "green": 1, "red": 2}
    settings = {**zoo.load(several).settings, "labels": str(other)}
    data = labeled_images(photos, str(other), settings=settings, problem="multi_label")
    assert data.seed is None and "other.csv has changed" in data.notes[-1]
    (tmp_path / "numbers.txt").write_text("0 1\n" * 160)  # of classes, in the order of names
    assert zoo.evaluate(several, photos, labels=tmp_path / "numbers.txt")["items"] == 160
    with pytest.raises(UserError, match="With several labels per image, pass labels"):
        zoo.evaluate(several, photos)
    with pytest.raises(UserError, match="models of the same kind"):
        zoo.evaluate([several, small_classifier()], photos, labels=other)
    other.write_text("sub/7.png,red|pink")
    with pytest.raises(UserError, match="classes of the data, such as 'pink'"):
        zoo.evaluate(several, photos, labels=other)


class Stopped(Exception):
    pass


@pytest.mark.slow
def test_a_run_goes_on_to_the_bit_with_the_same_table_only(photos, tmp_path, monkeypatch):
    """The table may be elsewhere."""
    settings = {"validation_split": 0.2, "mixup_alpha": 1.0, "label_smoothing": 0.1}
    vit_cifar10.main(config(photos, tmp_path / "whole", **settings))
    schedule = vit_cifar10.PatchDropoutRates
    begin = schedule.on_epoch_begin

    def stop(self, epoch, logs=None):
        if epoch == 1:
            raise Stopped
        begin(self, epoch, logs)

    table = tmp_path / "elsewhere.csv"
    table.write_text((photos.parent / "several.csv").read_text().replace("red", "rot"))
    part = config(photos, tmp_path / "part", **settings)
    with monkeypatch.context() as patched, pytest.raises(Stopped):
        patched.setattr(schedule, "on_epoch_begin", stop)
        vit_cifar10.main(part)
    part = dataclasses.replace(part, labels=str(table))
    with pytest.raises(UserError, match="other settings:\n(.*\n)*  checksum of labels: '"):
        vit_cifar10.main(part)
    table.write_text((photos.parent / "several.csv").read_text())
    vit_cifar10.main(part)
    assert_same(outcome(tmp_path / "part"), outcome(tmp_path / "whole"))


@pytest.mark.slow
def test_the_other_recipes(photos, tmp_path):
    small_classifier(image=(8, 8, 3), num_layers=1).save(tmp_path / "weights")
    paths = {"data_dir": str(photos), **tables(photos)["several"]}
    settings = {"weights": str(tmp_path / "weights"), "batch_size": 16, "steps": 2}
    settings |= {"eval_steps": 1, "warmup_steps": 1, "train_examples": 64}
    out = str(tmp_path / "finetune")
    vit_finetune.main(dataclasses.replace(vit_finetune.PETS, **paths, **settings, out=out))
    settings = {"image_size": 8, "eval_resize": 8, "size": "Ti/4", "epochs": 1, "batch_size": 64}
    out = str(tmp_path / "imagenet")
    vit_imagenet.main(vit_imagenet.Config(**paths, **settings, out=out))
    for name in ("finetune", "imagenet"):
        assert zoo.load(tmp_path / name).problem == "multi_label"
        assert 0 < measured(tmp_path / name)["mean_average_precision"] <= 1
    assert measured(tmp_path / "finetune")["train_images"] == 64


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"labels": "a.csv"}, "--labels needs --data-dir"),
        ({"problem": "multi_label"}, "--problem multi_label needs --labels"),
        ({"problem": "multi_label", "data_dir": "photos"}, "--problem multi_label needs --labels"),
        (
            {"problem": "multi_label", "labels": "a.csv", "data_dir": "photos"},
            "--class-weights needs one label per image",
        ),
    ],
)
def test_settings_that_do_not_fit_together(settings, message):
    with pytest.raises(UserError, match=message):
        ImageSettings(**settings, class_weights="balanced")
    if "class" not in message:
        with pytest.raises(UserError, match=message):
            vit_imagenet.Config(**settings)
