"""The fine-tuning recipe, shrunk: from a folder of Hugging Face to a run."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import zoo
from tests.deploy.small_models import small_classifier
from tests.interrupted import completed
from tests.test_recipes import recipe, rows_of
from zoo.__main__ import main
from zoo.errors import UserError
from zoo.training.fine_tuning import pretrained_classifier
from zoo.training.image_run import load_images

vit_finetune = recipe("vit_finetune")
CONFIG = dataclasses.replace(
    vit_finetune.PETS,
    dataset="digits",
    batch_size=64,
    steps=6,
    eval_steps=3,
    warmup_steps=2,
    layer_decay=0.75,
    crop_padding=1,
)


pytestmark = [pytest.mark.usefixtures("same_policy"), pytest.mark.ci]


@pytest.fixture(scope="module")
def weights(made_once, digits_run):
    """The digits run as a folder of Hugging Face."""
    name = "digits_hugging_face"
    return made_once(name, lambda folder: zoo.save_hf(zoo.load(digits_run[1]), folder))[1]


def test_a_folder_of_hugging_face_becomes_a_run(weights, tmp_path, capsys):
    out = tmp_path / "run"
    images = load_images(CONFIG).test
    config = dataclasses.replace(
        CONFIG, weights=str(weights), out=str(out), image_size=12, train_examples=200, lora_rank=2
    )
    vit_finetune.main(config)
    assert "test accuracy" in capsys.readouterr().out
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["train_images"] == 200 and metrics["epochs"] == len(rows_of(out / "history.csv"))
    classifier = zoo.load(out)
    assert classifier.model.input_shape == (12, 12, 1)
    published = zoo.load(weights).preprocessing
    assert classifier.preprocessing == published.with_shape((12, 12, 1))
    found = [int(name) for [(name, _)] in classifier(list(images.pixels))]
    assert metrics["test_accuracy"] == np.mean(found == images.labels)
    assert main(["info", str(out)]) == 0


@pytest.mark.slow
def test_lora_trains_saves_and_exports_on_two_devices(weights, tmp_path):
    """What is saved is a plain model, whose backbone has changed."""
    out = tmp_path / "run"
    flags = ["--weights", str(weights), "--lora-rank", "2", "--accumulation", "2"]
    completed("finetune", out, *flags, "--strategy", "mirrored", "--devices", "2")
    before, after = (zoo.load(path).model for path in (weights, out))
    for old, new in zip(before.weights, after.weights, strict=True):
        is_new = old.path.startswith("vit/head") or old.path.endswith(
            ("qkv/kernel", "hidden/kernel", "output_projection/kernel")
        )
        assert np.array_equal(old.numpy(), new.numpy()) != is_new, old.path
    rows = rows_of(out / "history.csv")
    metrics = json.loads((out / "metrics.json").read_text())
    # LoRA's two products in place of one sum, in float32
    assert abs(float(rows[-1]["val_loss"]) - metrics["test_loss"]) < 1e-4
    assert metrics["parameters"] == before.count_params()
    zoo.export(zoo.load(out), tmp_path / "export")


@pytest.mark.slow
def test_a_run_is_not_resumed_with_other_metadata_of_the_weights(weights, tmp_path, monkeypatch):
    """They are not in the checkpoints, unlike the weights."""
    folder = tmp_path / "weights"
    out = tmp_path / "run"
    shutil.copytree(weights, folder)
    config = dataclasses.replace(CONFIG, weights=str(folder), out=str(out), resume=True)
    monkeypatch.setattr("zoo.training.trainer.Trainer.fit", stop)

    with pytest.raises(Stopped):
        vit_finetune.main(config)
    tensors = load_file(folder / "model.safetensors")
    save_file({name: x + 1 for name, x in tensors.items()}, folder / "model.safetensors")
    with pytest.raises(Stopped):
        vit_finetune.main(config)
    others = {"config.json": {"hidden_act": "relu"}}
    others["preprocessor_config.json"] = {"image_mean": [0.1]}
    for name, changed in others.items():
        text = (folder / name).read_text()
        (folder / name).write_text(json.dumps({**json.loads(text), **changed}))
        with pytest.raises(UserError, match=r"(?s)other settings:.*\n  model of weights: '"):
            vit_finetune.main(config)
        (folder / name).write_text(text)


class Stopped(Exception):
    pass


def stop(*_, **__):
    raise Stopped


def test_without_the_weights_the_architecture_is_the_same(weights):
    published = zoo.load(weights, num_classes=10)
    classifier = pretrained_classifier(weights, 10, random=True)
    assert classifier.preprocessing == published.preprocessing
    for random, learned in zip(classifier.model.weights, published.model.weights, strict=True):
        assert random.path == learned.path and random.shape == learned.shape
    kernels = (c.model.patch_embed.projection.kernel.numpy() for c in (classifier, published))
    assert np.abs(np.subtract(*kernels)).max() > 0.1


def test_patches_are_left_out_as_the_settings_say(tmp_path, monkeypatch):
    """Not as in the training of the weights."""
    small_classifier(num_layers=1, patch_dropout=0.5).save(tmp_path / "weights")
    found = []

    def loaded(*args, **rates):
        found.append(pretrained_classifier(*args, **rates).model.patch_dropout)
        stop()

    monkeypatch.setattr("zoo.training.fine_tuning.pretrained_classifier", loaded)
    paths = {"weights": str(tmp_path / "weights"), "out": str(tmp_path / "run")}
    for rate in (0.0, 0.25):
        with pytest.raises(Stopped):
            vit_finetune.main(dataclasses.replace(CONFIG, **paths, patch_dropout=rate))
    assert found == [0.0, 0.25]
