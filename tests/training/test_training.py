"""Optimizer, run folder, figures and history."""

import contextlib
import dataclasses
import json
import math
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import zoo
from tests.test_recipes import recipe
from zoo.errors import UserError
from zoo.layers import PatchDropout
from zoo.training import pictures
from zoo.training.callbacks import EpochFigures, HistoryFiles, PatchDropoutRates
from zoo.training.hardware import peak_memory
from zoo.training.optimizers import adamw, muon
from zoo.training.report import _median
from zoo.training.run_folder import RunFolder, RunFolderError, disable_auto_resume
from zoo.training.settings import Settings
from zoo.training.trainer import Trainer

ROOT = pathlib.Path(__file__).parents[2]
SMALL = {
    "input_shape": (8, 8, 3),
    "num_classes": 3,
    "patch_size": 4,
    "embed_dim": 8,
    "num_heads": 2,
    "num_layers": 2,
    "num_registers": 1,
    "layer_scale": 0.1,
}
IMAGES = np.random.default_rng(0).normal(size=(8, 8, 8, 3)).astype("float32")
LABELS = np.eye(3, dtype="float32")[np.arange(8) % 3]


def compiled(optimizer=adamw, **options):
    keras.utils.set_random_seed(0)
    model = zoo.vit(**SMALL)
    settings = {"learning_rate": 0.1, "weight_decay": 0.5, "total_steps": 100, **options}
    model.compile(
        optimizer(model, **settings), keras.losses.CategoricalCrossentropy(from_logits=True)
    )
    return model


@pytest.mark.parametrize("first, expected", [(0, [3, 4]), (3, [4])])
def test_rates_of_patch_dropout_follow_each_other(first, expected, monkeypatch):
    """Each is traced when its epochs begin, also if training is resumed there."""
    tokens, call = [], PatchDropout.call

    def record(self, x, training=False):
        x = call(self, x, training)
        tokens.extend([x.shape[1]] * bool(training))
        return x

    model = zoo.vit(**SMALL, patch_dropout=0.75)  # a class token, a register token and four patches
    trainer = Trainer(model)
    loss = keras.losses.CategoricalCrossentropy(from_logits=True, reduction="sum")
    trainer.compile(keras.optimizers.SGD(0.01), loss)
    batches = tf.data.Dataset.from_tensors((IMAGES, LABELS, np.ones(8, "float32"))).repeat()
    monkeypatch.setattr(PatchDropout, "call", record)
    trainer.fit(
        batches,
        epochs=4,
        initial_epoch=first,
        steps_per_epoch=2,
        callbacks=[PatchDropoutRates([0.75, 0.5], 4)],
        verbose=0,
    )
    assert list(dict.fromkeys(tokens)) == expected


@pytest.mark.parametrize("optimizer", [adamw, muon])
def test_only_matrices_decay(optimizer):
    """Without gradients, a step changes what decays and nothing else."""
    model = compiled(optimizer)
    before = [v.numpy() for v in model.trainable_variables]
    zeros = [np.zeros(v.shape, "float32") for v in model.trainable_variables]
    model.optimizer.apply(zeros, model.trainable_variables)
    decayed = {
        variable.path
        for variable, old in zip(model.trainable_variables, before)
        if not np.array_equal(variable.numpy(), old)
    }
    assert decayed == {v.path for v in model.trainable_variables if v.path.endswith("kernel")}
    assert len(decayed) == 2 + 4 * 2  # patches and head, and four in each of two blocks


@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16", "bfloat16", "float64"])
def test_muon_moves_the_matrices_of_blocks_alike_in_all_directions(precision, same_policy):
    """Their updates are close to orthogonal, of AdamW's size; all else moves as with AdamW."""
    keras.config.set_dtype_policy(precision)
    models = [compiled(optimizer, weight_decay=0.0) for optimizer in (adamw, muon)]
    assert models[1].optimizer.in_bfloat16 == ("bfloat16" in precision)
    random = np.random.default_rng(0)
    gradients = [
        random.normal(size=v.shape).astype("float32") for v in models[0].trainable_variables
    ]
    moved = []
    for model in models:
        before = [v.numpy() for v in model.trainable_variables]
        tensors = list(map(keras.ops.convert_to_tensor, gradients))
        model.optimizer.apply(tensors, model.trainable_variables)
        moved.append([old - v.numpy() for v, old in zip(model.trainable_variables, before)])
    matrices = 0
    for variable, by_adamw, by_muon in zip(models[0].trainable_variables, *moved):
        if not (variable.path.startswith("vit/encoder_") and variable.name == "kernel"):
            np.testing.assert_allclose(by_muon, by_adamw, atol=1e-6)
            continue
        matrices += 1
        sizes = np.linalg.svd(by_muon, compute_uv=False)
        # 0.2 · √(longer side) times a singular value that is close to one, between 0.5 and 1.3
        expected = 0.1 * 0.2 * max(by_muon.shape) ** 0.5
        assert 0.5 * expected < sizes.min() and sizes.max() < 1.3 * expected
    assert matrices == 4 * 2


@pytest.mark.parametrize("optimizer", [adamw, muon])
def test_the_learning_rate_rises_and_falls(optimizer):
    model = compiled(optimizer, learning_rate=0.2, total_steps=100, warmup_steps=10)
    schedule = model.optimizer._learning_rate
    rates = np.array([float(schedule(step)) for step in range(101)])
    np.testing.assert_allclose(rates[:11], 0.2 * np.arange(11) / 10, atol=1e-6)
    expected = 0.1 * (1 + np.cos(np.pi * np.arange(91) / 90))
    np.testing.assert_allclose(rates[10:], expected, atol=1e-6)


def test_gradients_are_clipped_together():
    model = compiled(learning_rate=1.0, weight_decay=0.0, clip_norm=1e-3)
    gradients = [np.ones(v.shape, "float32") for v in model.trainable_variables]
    clipped = model.optimizer._clip_gradients([keras.ops.convert_to_tensor(g) for g in gradients])
    norm = np.sqrt(sum(float(keras.ops.sum(g**2)) for g in clipped))
    assert abs(norm - 1e-3) < 1e-6
    values = {round(float(keras.ops.max(g)), 8) for g in clipped}
    assert len(values) == 1, "all shrink by the same factor"


def test_the_model_ends_with_averaged_weights():
    model = compiled(ema_momentum=0.9, weight_decay=0.0)
    seen = []

    class Record(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            seen.append(model.head.kernel.numpy())

    model.fit(
        IMAGES, LABELS, batch_size=2, epochs=2, shuffle=False, callbacks=[Record()], verbose=0
    )
    average = seen[0]
    for weights in seen[1:]:
        average = 0.9 * average + 0.1 * weights
    np.testing.assert_allclose(model.head.kernel.numpy(), average, atol=1e-6)


@pytest.mark.parametrize("first_step,expected", [(0, 2.0), (7, 0.5), (4, 2.0)])
def test_speed_is_that_of_training_alone(monkeypatch, first_step, expected):
    """Of what was trained on in this process, in an epoch that it began or went on with."""
    now = iter([10.0, 14.0, 99.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(now))
    figures = EpochFigures(steps_per_epoch=4, first_step=first_step, images_per_epoch=8)
    figures.set_model(compiled(learning_rate=0.2))
    logs = {}
    figures.on_epoch_begin(1)
    figures.on_test_begin()
    figures.on_epoch_end(1, logs)
    assert logs["images_per_second"] == logs["images_per_second_per_device"] == expected
    assert abs(logs["learning_rate"] - 0.2) < 1e-6


def test_the_speed_is_unknown_if_only_validation_was_left(monkeypatch):
    figures = EpochFigures(steps_per_epoch=4, first_step=8, images_per_epoch=8)
    figures.set_model(compiled(learning_rate=0.2))
    logs = {}
    figures.on_epoch_begin(1)
    figures.on_epoch_end(1, logs)
    assert math.isnan(logs["images_per_second"])


def test_the_history_is_written_whole_and_once(tmp_path):
    """An epoch that is run again takes the place of itself and of those after it."""
    files = HistoryFiles(tmp_path)
    for epoch, loss in ((0, 3.0), (1, float("nan")), (2, 1.0)):
        files.on_epoch_end(epoch, {"loss": np.float32(loss)})
    rows = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    assert rows == [
        {"epoch": 0, "loss": 3.0},
        {"epoch": 1, "loss": None},
        {"epoch": 2, "loss": 1.0},
    ]
    assert (tmp_path / "history.csv").read_text().split() == [
        "epoch,loss",
        "0,3.0",
        "1,nan",
        "2,1.0",
    ]
    HistoryFiles(tmp_path).on_epoch_end(1, {"loss": 2.0, "val_loss": 4.0})
    assert (tmp_path / "history.csv").read_text().split() == [
        "epoch,loss,val_loss",
        "0,3.0,nan",
        "1,2.0,4.0",
    ]


def test_an_interrupted_run_resumes_automatically(tmp_path):
    run = RunFolder(tmp_path / "run", {"epochs": 3})
    run.enable_auto_resume()
    run.close()
    RunFolder(tmp_path / "run", {"epochs": 3}).close()
    with pytest.raises(RunFolderError, match="epochs: 3, now 4"):
        RunFolder(tmp_path / "run", {"epochs": 4})
    disable_auto_resume(run.path)
    with pytest.raises(RunFolderError, match="--resume"):
        RunFolder(tmp_path / "run", {"epochs": 3})


def test_a_run_killed_while_its_folder_was_made_can_begin(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "partial.config.json").write_text('{"conf')
    RunFolder(tmp_path / "run", {})
    assert json.loads((tmp_path / "run" / "config.json").read_text())["config"] == {}


def test_a_run_where_the_system_has_no_locks(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)  # as on Windows
    monkeypatch.setitem(sys.modules, "resource", None)
    for _ in range(2):
        RunFolder(tmp_path / "run", {}, overwrite=True).close()
    assert peak_memory() == ""


def test_a_run_folder_guards_what_it_holds(tmp_path):
    run = RunFolder(tmp_path / "run", {"epochs": 3, "size": (8, 8)})
    assert not run.is_finished
    with pytest.raises(RunFolderError, match="Another process is training in"):
        RunFolder(tmp_path / "run", {"epochs": 3, "size": (8, 8)}, resume=True)
    run.close()
    with pytest.raises(RunFolderError, match="--resume.*--overwrite"):
        RunFolder(tmp_path / "run", {"epochs": 3, "size": (8, 8)})
    RunFolder(tmp_path / "run", {"epochs": 3, "size": (8, 8)}, resume=True).close()
    with pytest.raises(RunFolderError, match="epochs: 3, now 4"):
        RunFolder(tmp_path / "run", {"epochs": 4, "size": (8, 8)}, resume=True)
    (tmp_path / "run" / "old").write_text("old")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run" / "link").symlink_to(tmp_path / "elsewhere")
    RunFolder(tmp_path / "run", {"epochs": 4}, overwrite=True)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["config.json"]
    assert (tmp_path / "elsewhere").is_dir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("precious")
    for options in ({}, {"overwrite": True}, {"resume": True}):
        with pytest.raises(RunFolderError, match="contains no run"):
            RunFolder(tmp_path / "other", {}, **options)
    assert (tmp_path / "other" / "thesis.txt").read_text() == "precious"
    with pytest.raises(RunFolderError, match="is a file"):
        RunFolder(tmp_path / "other" / "thesis.txt", {})


@pytest.mark.parametrize("content", ['{"model_type": "vit"}', "[1]", '{"config": {}}', '{"conf'])
def test_a_config_that_is_not_of_a_run(content, tmp_path):
    """Folders of published weights have a config.json, too."""
    (tmp_path / "config.json").write_text(content)
    (tmp_path / "model.safetensors").write_text("precious")
    for options in ({}, {"overwrite": True}, {"resume": True}):
        with pytest.raises(RunFolderError, match="contains no run"):
            RunFolder(tmp_path, {}, **options)
    assert (tmp_path / "model.safetensors").read_text() == "precious"


def test_the_median_of_a_metric_is_over_the_epochs_in_which_it_was_measured(tmp_path):
    run = RunFolder(tmp_path / "run", {})
    for speeds, expected in (("5 nan 3 4", 4.0), ("5 3", 4.0), ("nan", None)):
        rows = [f"{epoch},{speed}" for epoch, speed in enumerate(speeds.split())]
        (run / "history.csv").write_text("\n".join(["epoch,images_per_second", *rows]))
        assert _median(run.history()["images_per_second"]) == expected


@pytest.mark.filterwarnings("error")
def test_class_names_are_drawn_as_they_are(tmp_path):
    names = ["pos, very", r"$\frac$", "5 $ or 10 $", "良い", "x" * 200, "a\x07b", ""]
    pictures.confusion_matrix(range(7), range(7), names, tmp_path / "matrix.png", "texts")
    pixels, answers = np.zeros((7, 8, 8, 3), np.uint8), [(name, 0.5) for name in names]
    pictures.attention(pixels, np.ones((7, 2, 2)), answers, names[::-1], tmp_path / "maps.png")
    for path in tmp_path.iterdir():
        assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"clip_norm": None, "ema_momentum": 1.0}, None),
        ({"clip_norm": 1e9, "ema_momentum": 0}, None),
        ({"clip_norm": -1.0}, "--clip-norm must be at least 0. Received: -1.0"),
        ({"clip_norm": math.nan}, "--clip-norm must be at least 0. Received: nan"),
        ({"ema_momentum": 1.1}, "--ema-momentum must be from 0 to 1. Received: 1.1"),
        ({"seed": -1}, "--seed must be from 0 to 4294967295. Received: -1"),
    ],
)
def test_limits_of_settings(settings, message):
    @dataclasses.dataclass
    class Some(Settings):
        clip_norm: float | None = 1.0
        ema_momentum: float = 0.5
        seed: int = 0

    with pytest.raises(UserError, match=message) if message else contextlib.nullcontext():
        Some(**settings)


@pytest.mark.parametrize("name", [path.stem for path in (ROOT / "recipes").glob("*.py")])
def test_every_setting_has_a_help_text(name):
    """And the hyperparameters of the recipe come before the settings of all recipes."""
    help_text = subprocess.run(
        [sys.executable, ROOT / "recipes" / f"{name}.py", "--help"], capture_output=True, text=True
    ).stdout
    text = " ".join(help_text.replace("│", " ").split())
    config = recipe(name).Config
    places = {}
    for field in dataclasses.fields(config):
        flag = "--" + field.name.replace("_", "-")
        places[field.name] = max(text.rfind(f" {flag} "), text.rfind(f" {flag}, "))
        described = text[places[field.name] :].partition(" (default")[0]
        assert described.endswith("."), described
    assert max(map(places.get, config.__annotations__)) < places["out"]
