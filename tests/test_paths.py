"""Paths that TensorFlow takes for patterns, `~`, and names that are not UTF-8."""

import functools
import os

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import zoo
import zoo.training
from tests.deploy.small_models import random_images, small_classifier, small_translator
from zoo.__main__ import main
from zoo.data.image_folder import class_folders
from zoo.errors import UserError
from zoo.server.models import find, load
from zoo.training import state_file
from zoo.training.callbacks import history
from zoo.training.settings import ImageSettings

X = np.random.default_rng(0).normal(size=(12, 6)).astype("float32")
BATCHES = tf.data.Dataset.from_tensor_slices((X, X.argmax(axis=1) % 2)).batch(4)
ODD = ["exp[lr=0.1]", "a\\b", "[!a]*?", "ünï 日本🙂", "50%{x},$HOME#&;:'\"", "a\nb", "~"]
NOT_UTF8 = os.fsdecode(b"caf\xe9")


class Interrupt(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        if epoch == 1:
            raise KeyboardInterrupt


def train(folder, *callbacks):
    """The weights after three epochs, those with the lowest loss."""
    run = zoo.training.Run(out=folder)
    with run.scope():
        layers = [keras.Input((6,)), keras.layers.Dropout(0.5), keras.layers.Dense(2)]
        model = keras.Sequential(layers)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(5.0), loss)
    settings = {"validation_data": BATCHES, "restore_best": True, "callbacks": callbacks}
    return run.train(model, BATCHES, epochs=3, **settings).get_weights()


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    return train(tmp_path_factory.mktemp("plain"))


@pytest.mark.parametrize("name", ODD)
def test_runs_in_folders_of_any_name_resume_to_the_bit(tmp_path, name, expected, capsys):
    folder = tmp_path / name / "run"
    with pytest.raises(KeyboardInterrupt):
        train(folder, Interrupt())
    found = train(folder)
    assert "Resuming after 1 epochs" in capsys.readouterr().out
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.fixture(scope="module")
def classifier():
    return small_classifier(image=(8, 8, 3))


@pytest.mark.ci
def test_models_and_exports_in_folders_of_any_name(tmp_path, classifier, capsys):
    folder = tmp_path / "a[1]\\b*?" / "50%{x},ñ 🙂"
    image = random_images(classifier, 1)
    classifier.save(folder / "run")
    saved = zoo.load(folder / "run")
    expected = saved.probabilities(image)
    np.testing.assert_array_equal(expected, classifier.probabilities(image))
    for format in ("saved_model", "onnx", "litert"):
        if format == "onnx":
            pytest.importorskip("onnxruntime")
        zoo.export(saved, folder / format / "1", format=format)
    for export in (folder / "saved_model" / "1", folder / "saved_model"):
        [output] = load(*find(export)).call("pixels", {"pixels": image})["probabilities"]
        np.testing.assert_allclose(np.sort(output), np.sort(expected[0]), atol=1e-5)
    (folder / "data" / "ant").mkdir(parents=True)
    Image.fromarray(image[0]).save(folder / "data" / "ant" / "[1].png")
    for model in ("run", "saved_model/1"):
        report = zoo.evaluate(folder / model, folder / "data")
        assert report["items"] == 1 and report["accuracy"] == (expected.argmax() == 0)
    zoo.save_hf(classifier, folder / "hf")
    np.testing.assert_allclose(zoo.load(folder / "hf").probabilities(image), expected, atol=1e-5)


def test_the_folder_of_an_export_may_be_a_link(tmp_path, classifier):
    """As to a larger disk, where the export is then written and replaced."""
    pytest.importorskip("onnxruntime")
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    for overwrite in (False, True):
        zoo.export(classifier, tmp_path / "link", format="onnx", overwrite=overwrite)
        assert (tmp_path / "link").is_symlink() and (tmp_path / "disk" / "export.json").is_file()


@pytest.mark.ci
def test_translators_in_folders_of_any_name(tmp_path):
    pytest.importorskip("ctranslate2")
    folder = tmp_path / "a[1]\\b*?"
    small_translator().save(folder / "run")
    zoo.export(zoo.load(folder / "run"), folder / "1", format="ctranslate2")


def test_similar_names_of_a_missing_file_are_no_pattern(tmp_path):
    (tmp_path / "model[1].onnx").touch()
    (tmp_path / "other.onnx").touch()
    with pytest.raises(FileNotFoundError, match=r"model\[1\].onnx is an export"):
        zoo.load(tmp_path / "model[1]")
    with pytest.raises(FileNotFoundError) as error:
        zoo.load(tmp_path / "*")
    assert "other.onnx" not in str(error.value)


@pytest.mark.slow
def test_a_tilde_is_the_home_folder(tmp_path, monkeypatch, classifier, expected, capsys):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    home = {*tmp_path.iterdir()}
    train("~/run")
    assert (tmp_path / "run" / "model.keras").is_file()
    assert len(history("~/run")["loss"]) == 3
    assert state_file.paths("~/run/checkpoints/best")
    classifier.save("~/classifier")
    assert zoo.load("~/classifier").class_names == classifier.class_names
    zoo.save_hf(classifier, "~/hf")
    zoo.export(classifier, "~/digits/1")
    assert find("~/digits")[:2] == find("digits=~/digits")[:2] == ("digits", 1)
    image = random_images(classifier, 1)[0]
    (tmp_path / "data" / "ant").mkdir(parents=True)
    Image.fromarray(image).save(tmp_path / "data" / "ant" / "image.png")
    (tmp_path / "labels").write_text("0\n")
    assert classifier(["~/data/ant/image.png"]) == classifier([image])
    for model in ("~/classifier", "~/digits/1"):
        assert zoo.evaluate(model, "~/data", labels="~/labels")["items"] == 1
    assert main(["evaluate", "~/classifier", "~/data", "--out", "~/scores.json"]) == 0
    assert main(["classify", "~/classifier", "~/data", "~/data/ant/image.png"]) == 0
    assert main(["info", "~/classifier"]) == 0
    settings = ImageSettings(out="~/run", data_dir="~/data")
    assert settings.out == str(tmp_path / "run") and settings.is_folder
    names = {"run", "classifier", "hf", "digits", "data", "labels", "scores.json"}
    assert {*tmp_path.iterdir()} - home == {tmp_path / name for name in names}  # and no `~`


@pytest.mark.slow
def test_names_that_are_not_utf8(tmp_path, classifier, capsys):
    """Images and models are read; what TensorFlow cannot write is refused, with its name."""
    folder = tmp_path / NOT_UTF8
    (folder / "data" / "ant").mkdir(parents=True)
    file = folder / "data" / "ant" / f"{NOT_UTF8}.png"
    image = random_images(classifier, 1)[0]
    with open(file, "wb") as opened:
        Image.fromarray(image).save(opened, "png")
    assert classifier([file]) == classifier([image])
    assert zoo.evaluate(classifier, folder / "data")["items"] == 1
    classifier.save(folder / "run")
    assert main(["classify", str(folder / "run"), str(folder / "data")]) == 0
    assert "caf\\xe9.png\t" in capsys.readouterr().out
    zoo.export(zoo.load(folder / "run"), tmp_path / "1")  # export.json names the run
    named = r"caf\\xe9.* is not UTF-8"
    with pytest.raises(UserError, match=named):
        zoo.training.Run(out=folder / "new")
    with pytest.raises(UserError, match=named):
        zoo.export(classifier, folder / "1")
    with pytest.raises(UserError, match=named):
        zoo.evaluate(classifier, "digits_of_tfds", data_dir=folder)
    (tmp_path / "images" / NOT_UTF8).mkdir(parents=True)
    with pytest.raises(UserError, match=named):
        class_folders(tmp_path / "images")


@pytest.mark.parametrize("url", ["s3://bucket/run", "file:///tmp/run"])
def test_urls_are_no_folders_to_write(url, classifier, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for write in (classifier.save, functools.partial(zoo.export, classifier), zoo.training.Run):
        with pytest.raises(UserError, match=f"{url} is a URL"):
            write(**{"out" if write is zoo.training.Run else "folder": url})
    assert not [*tmp_path.iterdir()]


def test_a_run_stays_where_it_was_created(tmp_path, monkeypatch):
    """Also if a script changes the working directory before it trains."""
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    run = zoo.training.Run(out="run")
    with run.scope():
        model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    monkeypatch.chdir(tmp_path / "other")
    run.train(model, BATCHES, epochs=1)
    assert (tmp_path / "run" / "model.keras").exists()
    assert not [*(tmp_path / "other").iterdir()]
