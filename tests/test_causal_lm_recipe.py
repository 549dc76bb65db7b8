"""The recipe of the language model, shrunk: what it prints and leaves, and resuming."""

import dataclasses
import json
import math
import shutil

import pytest

import zoo
from tests.conftest import run_recipe
from tests.test_recipes import recipe
from zoo.errors import UserError

pytestmark = pytest.mark.ci

causal_lm = recipe("causal_lm")


@pytest.fixture(scope="module")
def text(made_once):
    """Counting: a model that has learned it predicts the next number."""
    numbers = "".join(f"{n}\n" for n in range(3000))
    return made_once("numbers.txt", lambda path: path.write_text(numbers))[1]


@pytest.fixture(scope="module")
def run(made_once, text):
    return made_once("causal_lm", lambda folder: run_recipe("text", folder, "--text", str(text)))


def test_a_run_ends_well_and_leaves_a_model(run):
    process, folder = run
    assert process.returncode == 0, process.stderr
    assert process.stdout.splitlines()[-1] == str(folder)
    for words in ("perplexity", "bits per byte", "tokens/s"):
        assert words in process.stdout
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["perplexity"] == pytest.approx(math.exp(metrics["val_loss"]))
    assert metrics["perplexity"] < metrics["vocab_size"] / 4, "it has learned something"
    assert 0 < metrics["bits_per_byte"] < 8
    names = {path.name for path in folder.iterdir()}
    assert {"model.keras", "text.spm", "samples.txt", "learning_curves.png"} <= names
    generator = zoo.load(folder)
    assert generator.model.count_params() == metrics["parameters"]
    [found] = generator(["10\n11\n"], max_new_tokens=8)
    assert found.startswith("10\n11\n")


def test_a_run_is_not_resumed_with_another_text(run, text, tmp_path):
    """Its tokens would have other ids."""
    folder, other = tmp_path / "run", tmp_path / text.name
    shutil.copytree(run[1], folder)
    other.write_text(text.read_text().replace("7", "x"))
    config = json.loads((folder / "config.json").read_text())["config"]
    names = [field.name for field in dataclasses.fields(causal_lm.Config) if field.name in config]
    settings = {name: config[name] for name in names} | {"text": (str(text),)}
    config = causal_lm.Config(**settings, out=str(folder), resume=True)
    causal_lm.main(config)  # is finished
    (folder / "config.json").write_text(
        (folder / "config.json").read_text().replace(str(text), str(other))
    )
    with pytest.raises(UserError, match="other settings:\n  (.*\n  )?checksum of the tokenizer: '"):
        causal_lm.main(dataclasses.replace(config, text=(str(other),)))
