"""Every flag of every recipe changes what its run does, or is refused: none is silently ignored.

A run is looked at up to its first step: the model and its weights, what the model computes in
training, the loss, the optimizer, the callbacks, the data, and what the report is made of.
"""

import dataclasses
import hashlib
import importlib
import json
import pathlib
from typing import Literal, get_args, get_origin

import keras
import numpy as np
import pytest
import tensorflow_datasets as tfds

from tests.checkpoints.test_text_checkpoints import folder_of
from tests.checkpoints.translation_folders import write_m2m100
from tests.data.prepared import prepare
from tests.deploy.small_models import small_classifier
from tests.test_recipes import recipe, write_images
from zoo.data.image_batches import training_batches
from zoo.training import image_run
from zoo.training.callbacks import AverageCheckpoints
from zoo.training.trainer import Trainer

pytestmark = [pytest.mark.usefixtures("same_policy"), pytest.mark.ci]

RECIPES = [path.stem for path in (pathlib.Path(__file__).parents[1] / "recipes").glob("*.py")]
MODEL = {"embed_dim": 16, "num_heads": 2, "num_layers": 2, "ff_dim": 16}
AUGMENTED = {"randaugment_num_ops": 1, "mixup_alpha": 0.5, "cutmix_alpha": 0.5}
# Settings of a small run, in which each flag has an effect.
SMALL = {
    "vit_cifar10": {**MODEL, **AUGMENTED, "dataset": "digits", "patch_size": 2, "epochs": 4},
    "vit_imagenet": {**AUGMENTED, "size": "Ti/8", "image_size": 16, "eval_resize": 40},
    "cnn_cifar10": {"dataset": "digits", "epochs": 4, "widths": (8, 16)},
    "vit_finetune": {**AUGMENTED, "dataset": "digits", "steps": 8, "eval_steps": 4},
    "translate": {**MODEL, "vocab_size": 300},
    "text_classifier": {**MODEL, "vocab_size": 300},
    "causal_lm": {**MODEL, "vocab_size": 300, "max_length": 16},
}
SMALL["cnn_cifar10"] |= {"batch_size": 16, "randaugment_num_ops": 1, "precision": "float32"}
SMALL["vit_cifar10"] |= {"batch_size": 16, "patch_dropout": (0.5, 0.25), "precision": "float32"}
SMALL["vit_imagenet"] |= {"batch_size": 8, "epochs": 200, "warmup_steps": 9}
SMALL["text_classifier"] |= {"tokens_per_batch": 300}  # more updates, whose weights are averaged
SMALL["vit_finetune"] |= {"batch_size": 16, "optimizer": "adamw", "warmup_steps": 2}
# Flags without an effect on what is compared, and why.
NOT_COMPARED = {
    "strategy": "a process selects its devices once: tests/training/test_distribution.py",
    "devices": "as strategy",
    "overwrite": "of a finished run: tests/test_recipes.py",
    "resume": "as overwrite",
    "profile": "of later steps: tests/training/test_run.py",
    "labels": "of a table: tests/test_image_labels.py",
    "problem": "as labels",
    "preset": "selects defaults: tests/training/test_settings.py",
    "teacher": "of another run: tests/training/test_distillation.py",
    "distillation": "as teacher",
    "distillation_token": "as teacher",
    "distillation_weight": "as teacher",
    "temperature": "as teacher",
    "monolingual": "of another run: tests/training/test_teacher_translations.py",
    "monolingual_target": "as monolingual",
    "reverse_teacher": "as monolingual",
    "keep_references": "as monolingual",
    "drop_worst": "as monolingual",
}
MARKS = dict.fromkeys(RECIPES, pytest.mark.slow)  # minutes each
# Other values than `another` finds: of one setting, or of several together.
VALUES = {
    "accumulation": 2,
    "attention": "linear",
    "bleu_tokenize": "char",
    "class_weights": "balanced",
    "dropout": 0.25,
    "embed_dim": 32,
    "ema_momentum": 0.5,
    "epochs": 6,
    "eval_resize": 32,
    "eval_steps": 2,
    "from_scratch": True,
    "image_size": 32,
    "layer_decay": 0.5,
    "length_penalty": 2.0,
    "lora_rank": 2,
    "min_crop_area": 0.5,
    "num_decoder_layers": 1,
    "num_heads": 4,
    "patch_dropout": 0.5,
    "patch_size": 4,
    "patience": 5,
    "positions": "sinusoidal",
    "precision": "mixed_bfloat16",
    "size": "Ti/4",
    "steps": 12,
    "tokens_per_batch": 512,
    "train_examples": 500,
    "validation_freq": 2,
    "validation_split": 0.25,
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Small data and models, {name: path}."""
    folder = tmp_path_factory.mktemp("files")
    random = np.random.default_rng(0)
    words = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    sentences = {}
    for name in ("source", "valid_source", "test_source", "other"):
        numbers = random.integers(0, 10, (300 if name == "source" else 60, 3))
        sentences[name] = [" ".join(words[digit] for digit in row).capitalize() for row in numbers]
    sentences["target"] = [text[::-1] + "ﬁ" for text in sentences["source"]]
    for part in ("valid", "test"):
        sentences[f"{part}_target"] = [text[::-1] for text in sentences[f"{part}_source"]]
    paths = {name: folder / name for name in sentences}
    for name, path in paths.items():
        path.write_text("\n".join(sentences[name]) + "\n")
    pairs = zip(sentences["source"], sentences["target"])
    paths["tsv"] = folder / "pairs.tsv"
    paths["tsv"].write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    paths["tsv2"] = folder / "pairs2.tsv"
    paths["tsv2"].write_text("".join(f"{pair}\tOtro {pair}\n" for pair in sentences["source"]))
    labeled = [f"{len(text) % 3}\t{text}\n" for text in sentences["source"]]
    paths["labeled"] = folder / "labeled.tsv"
    paths["labeled"].write_text("".join(labeled))
    paths["several"] = folder / "several.tsv"
    paths["several"].write_text("".join(line.replace("1", "0|2", 1) for line in labeled))
    paths["images"] = folder / "images"
    paths["images2"] = folder / "images2"
    for first, name in enumerate(("images", "images2")):
        write_images(paths[name] / "train", range(first, first + 16))
        write_images(paths[name] / "test", range(4))
        (paths[name] / "train" / "red" / "3.jpg").unlink()  # classes of different sizes
    paths["vit"] = folder / "vit"
    paths["vit2"] = folder / "vit2"
    for seed, name in enumerate(("vit", "vit2")):
        small_classifier(num_registers=seed).save(paths[name])
    for name in ("m2m", "m2m2"):
        paths[name] = folder / name
        paths[name].mkdir()
        write_m2m100(paths[name], **({"d_model": 8} if name == "m2m" else {"encoder_layers": 1}))
    for name in ("roberta", "distilbert"):
        paths[name] = folder_of(folder, name).rename(folder / name)
    for name in ("prepared", "prepared2"):
        paths[name] = folder / name
        write_prepared(paths[name], sentences["source"], sentences["target"], len(name))
    return {name: str(path) for name, path in paths.items()}


def write_prepared(folder, sources, targets, skipped):
    """Data sets of TensorFlow Datasets: two of images, of texts and of pairs."""
    image = tfds.features.Image(shape=(8, 8, 3))
    color = tfds.features.FeaturesDict(
        {"image": image, "label": tfds.features.ClassLabel(num_classes=2)}
    )
    text = tfds.features.FeaturesDict(
        {"text": tfds.features.Text(), "label": tfds.features.ClassLabel(num_classes=2)}
    )
    pair = tfds.features.FeaturesDict({"en": tfds.features.Text(), "es": tfds.features.Text()})
    for number in (1, 2):
        first = skipped * number
        random = np.random.default_rng(first)
        images = random.integers(0, 256, (40, 8, 8, 3), np.uint8)
        rows = [{"image": x, "label": place % 2} for place, x in enumerate(images)]
        prepare(
            folder, f"colors{number}", color, {"train": rows, "test": rows[:4]}, ("image", "label")
        )
        rows = [{"text": x, "label": len(x) % 2} for x in sources[first:]]
        prepare(folder, f"texts{number}", text, {"train": rows}, ("text", "label"))
        rows = [{"en": en, "es": es} for en, es in zip(sources[first:], targets[first:])]
        prepare(folder, f"pairs{number}", pair, {"train": rows}, ("en", "es"))


def base(name, files):
    """Settings of a small run, in which each flag has an effect."""
    if name == "vit_imagenet":
        return {**SMALL[name], "data_dir": files["images"]}
    if name == "vit_finetune":
        return {**SMALL[name], "weights": files["vit"]}
    if name == "translate":
        sides = [
            f"{part}{side}" for part in ("", "valid_", "test_") for side in ("source", "target")
        ]
        return {**SMALL[name], **{side: files[side] for side in sides}}
    if name == "text_classifier":
        return {**SMALL[name], "tsv": files["labeled"]}
    if name == "causal_lm":
        return {**SMALL[name], "text": (files["source"],)}
    return SMALL[name]


def of_files(name, files):
    """{setting: (settings of both runs, settings of the second)} of data and models."""
    own = dict.fromkeys(("source", "target", "valid_source", "valid_target"))
    own |= dict.fromkeys(("test_source", "test_target", "tsv"))
    if name == "causal_lm":
        return {"text": ({}, {"text": (files["target"],)}), "dataset": None}  # one choice
    if name == "text_classifier":
        tfds_set = {"tsv": None, "dataset": "texts1", "data_dir": files["prepared"]}
        model = dataclasses.asdict(recipe(name).FINE_TUNING) | {"tsv": files["labeled"]}
        return {
            "weights": (model | {"weights": files["roberta"]}, {"weights": files["distilbert"]}),
            "tsv": ({}, {"tsv": files["several"]}),
            "label_separator": ({"tsv": files["several"]}, {"label_separator": "|"}),
            "dataset": (tfds_set, {"dataset": "texts2"}),
            "data_dir": (tfds_set, {"data_dir": files["prepared2"]}),
        }
    if name == "translate":
        tfds_set = {**own, "dataset": "pairs1", "data_dir": files["prepared"]}
        model = dataclasses.asdict(recipe(name).FINE_TUNING) | {"tsv": files["tsv"]}
        model |= {"weights": files["m2m"], "src_lang": "en", "tgt_lang": "es"}
        return {
            "tsv": ({**own, "tsv": files["tsv"]}, {"tsv": files["tsv2"]}),
            "dataset": (tfds_set, {"dataset": "pairs2"}),
            "data_dir": (tfds_set, {"data_dir": files["prepared2"]}),
            "source": ({}, {"source": files["target"]}),
            "target": ({}, {"target": files["source"]}),
            "valid_source": ({}, {"valid_source": files["test_source"]}),
            "valid_target": ({}, {"valid_target": files["test_target"]}),
            "test_source": ({}, {"test_source": files["valid_source"]}),
            "test_target": ({}, {"test_target": files["valid_target"]}),
            "weights": (model, {"weights": files["m2m2"]}),
            "src_lang": (model, {"src_lang": "fr"}),
            "tgt_lang": (model, {"tgt_lang": "fr"}),
            "cache_dir": ({}, {"cache_dir": files["m2m"] + "_cache"}),
        }
    tfds_set = {"dataset": "colors1", "data_dir": files["prepared"]}
    return {
        "dataset": (tfds_set, {"dataset": "colors2"}),
        "data_dir": (
            {"image_size": 16, "data_dir": files["images"]},
            {"data_dir": files["images2"]},
        ),
        "weights": ({}, {"weights": files["vit2"]}),
    }


def another(annotation, value):
    """Another value of a setting."""
    if get_origin(annotation) is not Literal:
        for part in get_args(annotation):
            if get_origin(part) is Literal:
                annotation = part
    if get_origin(annotation) is Literal:
        return next(choice for choice in get_args(annotation) if choice not in (value, None))
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    return value / 2 if value else 0.5


def digest(*arrays):
    result = hashlib.sha256()
    for array in keras.tree.flatten(arrays):
        if array is not None:
            result.update(np.asarray(array).tobytes())
    return result.hexdigest()[:8]


def look(trainer, seen, arguments):
    """Looks at the first step of a run, in place of training."""
    batches = arguments["batches"].whole()
    first = next(iter(batches))
    seen["batch"] = digest(first)
    seen["validation"] = digest(next(iter(arguments["validation_data"].whole())))
    lengths = ("epochs", "steps_per_epoch", "validation_freq", "accumulation")
    seen["lengths"] = [arguments[name] for name in lengths]
    model = trainer.model
    seen["weights"] = digest([variable.numpy() for variable in model.weights])
    seen["trainable"] = [variable.path for variable in model.trainable_variables]
    seen["model"] = str(model.get_config())
    inputs, labels, weights = first[0] if isinstance(first[0], tuple) else first
    if trainer.preprocess is not None:
        inputs = trainer.preprocess(inputs)
    keras.utils.set_random_seed(1)
    logits = model(inputs, training=True)
    seen["logits"] = digest(logits)
    for loss in keras.tree.flatten(trainer.loss):
        seen["loss"] = digest(loss(labels, logits, sample_weight=weights))
    seen["optimizer"] = str({**trainer.optimizer.get_config(), "name": ""})
    seen["jit_compile"] = str(trainer._uses_xla)
    for callback in arguments["callbacks"]:
        plain = (int, float, str, bool, tuple, list, type(None))
        for name, value in vars(callback).items():
            if isinstance(value, plain) and name != "log_dir" and name[0] != "_":
                seen[f"{type(callback).__name__}.{name}"] = str(value)


@pytest.fixture
def looked(monkeypatch, tmp_path):
    """Function (module of a recipe, settings) that returns what the run does."""
    seen = {}
    number = iter(range(1000))

    def fit(self, batches, **arguments):
        look(self, seen, {"batches": batches, **arguments})

    def finish(folder, task, *others, **named):
        seen["task"] = json.dumps(task.description(), default=str)
        seen["report"] = str([x for x in others if isinstance(x, str)])
        seen["test"] = str([x.test for x in others if isinstance(getattr(x, "test", None), list)])

    def without_augmentation(*data, augment, min_crop_area, **options):
        """Building the graph takes seconds; `test_augmentation` is about what it computes."""
        seen["augmentation"] = f"{augment}, {min_crop_area}"
        return training_batches(*data, **options)

    monkeypatch.setattr(image_run, "training_batches", without_augmentation)
    monkeypatch.setattr(Trainer, "fit", fit)
    monkeypatch.setattr(AverageCheckpoints, "average", lambda *given: None)
    monkeypatch.setattr(image_run, "finish_classifier", finish)
    monkeypatch.setitem(importlib.import_module("zoo.models.vit").SIZES, "Ti", MODEL)

    def run(module, settings):
        for name in ("finish_translator", "finish_text_classifier", "finish_generator"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, finish)
        seen.clear()
        out = settings.get("out") or str(tmp_path / str(next(number)))
        config = module.Config(**{"precision": "float32", **settings, "out": out})
        module.main(config)
        seen["out"] = (pathlib.Path(out) / "config.json").is_file() and settings.get("out")
        if settings.get("cache_dir"):
            seen["cache"] = sorted(
                path.name for path in pathlib.Path(settings["cache_dir"]).iterdir()
            )
        return dict(seen)

    return run


def change_of(field, value, paths):
    """(settings of both runs, settings of the second) for a field; None if it is not compared."""
    if field.name in NOT_COMPARED:
        return None
    if field.name in paths:
        return paths[field.name]
    changed = VALUES.get(field.name, value)
    if changed == value:
        changed = another(field.type, value)
    if isinstance(value, tuple):
        changed = (changed,)
    return {}, {field.name: changed}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=MARKS.get(name, ())) for name in RECIPES]
)
def test_every_flag_changes_the_run(name, files, looked, tmp_path):
    module = recipe(name)
    settings = base(name, files)
    default = looked(module, settings)
    again = looked(module, settings)
    assert {key: (again[key], default[key]) for key in again if again[key] != default[key]} == {}
    paths = {**of_files(name, files), "out": ({}, {"out": str(tmp_path / "elsewhere")})}
    without_effect = []
    for field in dataclasses.fields(module.Config):
        change = change_of(field, settings.get(field.name, field.default), paths)
        if change is None:
            continue
        both, changed = change
        expected = looked(module, {**settings, **both}) if both else default
        if looked(module, {**settings, **both, **changed}) == expected:
            without_effect.append(changed)
    assert without_effect == []
