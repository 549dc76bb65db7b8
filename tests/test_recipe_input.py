"""Bad input of the recipes: the error says what is wrong, and nothing is left behind."""

import dataclasses
import os
import subprocess
import sys

import pytest

from tests.checkpoints.test_text_checkpoints import folder_of
from tests.checkpoints.translation_folders import write_marian
from tests.conftest import ROOT
from tests.deploy.small_models import small_text_classifier
from tests.test_recipes import recipe
from zoo.errors import UserError

pytestmark = [pytest.mark.usefixtures("same_policy"), pytest.mark.ci]

SMALL = {"embed_dim": 16, "num_heads": 2, "num_layers": 1, "ff_dim": 16}
GOOD = {  # recipe and its defaults
    "vit_cifar10 DIGITS": SMALL,
    "vit_finetune PETS": {"weights": "{digits}", "dataset": "digits", "batch_size": 64},
    "translate Config": {**SMALL, "vocab_size": 400},
    "translate FINE_TUNING": {"weights": "{marian}", "tsv": "{pairs}"},
    "text_classifier Config": {**SMALL, "vocab_size": 400},
    "text_classifier FINE_TUNING": {"weights": "{roberta}", "tsv": "{sentences}"},
    "causal_lm Config": {},
}
BAD = {
    "vit_cifar10 DIGITS": [
        ({"num_heads": 3}, "embed_dim=16, num_heads=3"),
        ({"batch_size": 5000}, "from 1 to the number of training images, 1,437"),
        ({"dataset": "cifar10", "data_dir": "nowhere"}, "no folder nowhere"),
        ({"data_dir": "{images}"}, "--image-size"),
    ],
    "vit_finetune PETS": [
        ({"weights": None}, "Pass --weights with"),
        ({"weights": "nowhere"}, "--weights: There is no file or folder nowhere"),
        ({"weights": "{images}"}, "no finished run"),
        ({"weights": "{marian}"}, "num_classes is not an option of this model"),
        (
            {"weights": "{texts}"},
            "a run of the model EncoderClassifier.* other than dtype\\. .* num_classes",
        ),
        ({"image_size": 11}, "11x11 pixels, patch_size=2"),
        ({"batch_size": 256, "train_examples": 128}, "number of training images, 128"),
        ({"train_examples": 3}, "from 10, the number of classes"),
    ],
    "translate Config": [
        ({}, "--dataset phrasebook"),
        ({"dataset": "phrasebook", "tsv": "a.tsv"}, "exactly one of"),
        ({"tsv": "nowhere.tsv"}, "nowhere.tsv"),
        ({"source": "only.en"}, "target"),
        ({"tsv": "{pairs}", "vocab_size": 10}, "vocab_size"),
    ],
    "translate FINE_TUNING": [
        ({"num_layers": 2, "norm": "pre"}, "has its own tokenizers.* Remove --num-layers, --norm"),
        ({"weights": None}, "Without --weights, a value is needed: --activation, --decoder, "),
        ({"weights": "nowhere"}, "--weights: There is no file or folder nowhere"),
        ({"weights": "{digits}"}, "must be a translator"),
        ({"src_lang": "en"}, "src_lang is not an option of this model"),
    ],
    "text_classifier Config": [
        ({}, "--dataset phrasebook"),
        ({"tsv": "nowhere.tsv"}, "nowhere.tsv"),
        ({"dataset": "phrasebook", "label_separator": "|"}, "--label-separator needs --tsv"),
        ({"tsv": "{sentences}", "label_separator": ""}, "--label-separator is empty"),
        ({"dataset": "imdb_reviews", "data_dir": "nowhere"}, "no folder nowhere"),
    ],
    "text_classifier FINE_TUNING": [
        ({"num_layers": 2, "norm": "pre"}, "has its own tokenizer.* Remove --num-layers, --norm"),
        ({"weights": None}, "Without --weights, a value is needed: --tokenizer, --vocab-size, "),
        ({"weights": "nowhere"}, "There is no file or folder nowhere"),
        ({"weights": "{digits}"}, "is not a model that classifies texts"),
        ({"weights": "{marian}"}, "num_classes is not an option of this model"),
    ],
    "causal_lm Config": [
        ({"text": ("no_such_file.txt",)}, "The file no_such_file.txt cannot be read"),
        ({"text": ("README.md",), "batch_size": 10000}, "too few for a batch of 10000"),
    ],
}


@pytest.fixture(scope="module")
def paths(tmp_path_factory, digits_run, phrasebook_part, sentences_part):
    """What settings name in braces."""
    folder = tmp_path_factory.mktemp("paths")
    for name in ("images/train/cat", "images/train/dog", "marian"):
        (folder / name).mkdir(parents=True)
        for image in ("1.png", "2.png"):
            (folder / name / image).touch()
    write_marian(folder / "marian")
    small_text_classifier().save(folder / "texts")
    folder_of(folder, "roberta").rename(folder / "roberta")
    names = {name: folder / name for name in ("images", "marian", "texts", "roberta")}
    return {**names, "digits": digits_run[1], "pairs": phrasebook_part, "sentences": sentences_part}


@pytest.mark.parametrize(
    "name, bad, message", [(name, *case) for name, cases in BAD.items() for case in cases]
)
def test_bad_input_leaves_nothing_behind(name, bad, message, paths, tmp_path):
    recipe_name, defaults_name = name.split()
    module = recipe(recipe_name)
    defaults = getattr(module, defaults_name)
    config = defaults() if isinstance(defaults, type) else defaults
    settings = {**GOOD[name], **bad}
    settings = {k: v.format(**paths) if isinstance(v, str) else v for k, v in settings.items()}
    out = tmp_path / "run"
    with pytest.raises(UserError, match=message):
        module.main(dataclasses.replace(config, **settings, out=str(out)))
    assert not out.exists()


@pytest.mark.ci
@pytest.mark.parametrize("start", [["recipes/vit_cifar10.py"], ["-m", "zoo", "info", "run"]])
def test_a_backend_that_is_not_installed_is_one_error(start, tmp_path):
    environment = {**os.environ, "KERAS_BACKEND": "jax"}
    command = [sys.executable, *start]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert "\nerror: Keras computes with jax" in f"\n{done.stderr}" and "\n  " not in done.stderr
