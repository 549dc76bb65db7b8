"""The code of the tutorials in `docs` prints what the pages say, and draws their pictures.

A block of Python code is followed by its output, if it prints any, in a block of text.
"""

import contextlib
import csv
import functools
import io
import json
import pathlib
import pkgutil
import re
import runpy
import shlex
import subprocess
import sys

import keras
import matplotlib.image
import numpy as np
import pytest

from tests import contracts
from tests.models import test_contracts
from zoo.checkpoints.formats import registry
from zoo.models import Transformer
from zoo.training import recipe as recipes

ROOT = pathlib.Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = ["inside_a_transformer", "adding_a_model", "adding_a_format"]
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:```text\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def run(code, namespace):
    """What the code prints."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(code, namespace)
    return output.getvalue()


def assert_same_output(found, expected):
    """Equal words, and equal numbers up to one unit of the last digit that the page prints."""
    words = [NUMBER.sub("", text).split() for text in (found, expected)]
    assert words[0] == words[1]
    for one, other in zip(NUMBER.findall(found), NUMBER.findall(expected), strict=True):
        decimals = len(other.partition(".")[2])
        unit = 1.01 * 10**-decimals if decimals else 0  # 1.01: differences of floats are inexact
        assert abs(float(one) - float(other)) <= unit, f"{one} instead of {other}"


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """{page: (folder its code ran in, its namespace, [(output, output on the page)])}."""
    results = {}
    for page in PAGES:
        folder = tmp_path_factory.mktemp(page)
        namespace = {"__name__": page}
        outputs = []
        (folder / "docs" / "images").mkdir(parents=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            patch.setattr(registry, "FORMATS", registry.FORMATS)  # a page adds one
            for code, expected in BLOCK.findall((DOCS / f"{page}.md").read_text()):
                outputs.append((run(code, namespace), expected))
        results[page] = folder, namespace, outputs
    return results


@pytest.mark.parametrize("page", PAGES)
def test_code_prints_what_the_page_says(pages, page):
    _, _, outputs = pages[page]
    assert len(outputs) >= 5
    for found, expected in outputs:
        assert_same_output(found, expected)


def test_pictures_are_those_that_the_code_draws(pages):
    folder, _, _ = pages["inside_a_transformer"]
    text = (DOCS / "inside_a_transformer.md").read_text()
    pictures = re.findall(r"!\[.+\]\((.+)\)", text)
    assert len(pictures) >= 3
    for picture in pictures:
        assert_same_picture(folder / "docs" / picture, DOCS / picture)


def assert_same_picture(path, expected_path, tolerance=0.003):
    drawn = matplotlib.image.imread(path)
    expected = matplotlib.image.imread(expected_path)
    assert drawn.shape == expected.shape
    # The edges of letters differ between builds of FreeType; other labels change 0.006.
    assert np.abs(drawn - expected).mean() < tolerance, path


def test_the_picture_of_the_rooms_is_the_one_that_its_program_draws(tmp_path):
    program = runpy.run_path(DOCS / "images" / "architecture.py")
    program["main"](tmp_path / "architecture.png")
    assert_same_picture(tmp_path / "architecture.png", DOCS / "images" / "architecture.png")
    rooms = {path.stem for path in (ROOT / "zoo").iterdir() if path.is_dir()} - {"__pycache__"}
    assert rooms <= set(program["ROOMS"])


@pytest.mark.ci
def test_the_script_with_a_teacher_trains_a_student(tmp_path, monkeypatch, same_policy):
    *_, (code, _) = BLOCK.findall((DOCS / "distillation.md").read_text())
    monkeypatch.chdir(tmp_path)
    layers = [keras.Input((8, 8, 1)), keras.layers.Flatten(), keras.layers.Dense(10)]
    keras.Sequential(layers).save("teacher.keras")
    assert "epochs=10" in code
    run(code.replace("epochs=10", "epochs=1"), {"__name__": "train"})
    metrics = json.loads((tmp_path / "runs" / "student" / "metrics.json").read_text())
    assert metrics["val_accuracy"] > 0.2  # by chance 0.1


def test_the_picture_of_a_student_shows_its_report(tmp_path):
    program = runpy.run_path(DOCS / "images" / "distillation.py")
    program["main"](tmp_path / "distillation.png")
    picture = DOCS / "images" / "distillation.png"
    # Bars that are 7 % shorter change the mean by 0.0025.
    assert_same_picture(tmp_path / "distillation.png", picture, tolerance=0.001)


def test_the_table_of_a_student_is_its_report():
    metrics = json.loads((DOCS / "results" / "translate_spa_tiny" / "metrics.json").read_text())
    table = (DOCS / "distillation.md").read_text()
    for name, values in metrics["distillation"].items():
        [row] = [line for line in table.splitlines() if line.startswith(f"| {name} |")]
        _, _, _, bleu, chrf, size, alone, together, _ = row.split("|")
        assert bleu.split()[0] == f"{values['bleu']:.2f}"
        assert chrf.strip() == f"{values['chrf']:.2f}"
        assert size.strip() == f"{values['megabytes']:.1f} MB"
        assert alone.split()[0] == f"{values['tokens_per_second_batch_1']:,.0f}"
        assert together.split()[0] == f"{values['tokens_per_second_batch_32']:,.0f}"


def test_the_whole_model_gives_the_logits_of_the_steps(pages):
    _, namespace, _ = pages["inside_a_transformer"]
    model = namespace["model"]
    assert isinstance(model, Transformer)
    logits = model({"source": namespace["source"], "target": namespace["target"]})
    steps = namespace["output_layer"](namespace["decoded"])
    np.testing.assert_allclose(logits, steps, atol=1e-5)  # float32


def test_the_new_model_keeps_the_contracts(pages, tmp_path):
    _, namespace, _ = pages["adding_a_model"]
    case = namespace["case"]
    contracts.check_config_is_complete(case)
    contracts.check_subclass_config(case)
    contracts.check_paths(case)
    contracts.check_dropout_acts_in_fit(case)
    without_remat = case._replace(make=functools.partial(case.make, remat=False))
    with pytest.raises(AssertionError, match="tokens/output_projection/bias"):
        contracts.check_every_weight_learns(without_remat)
    contracts.check_all_is_built(without_remat)
    contracts.check_save_load_save(case, tmp_path)
    test_contracts.test_a_subclass_with_arguments_by_name_only(case, tmp_path)
    test_contracts.test_export_of_a_model_that_was_never_called(case, tmp_path)
    test_contracts.test_remat_may_be_set_later(case)


@pytest.mark.parametrize(
    "page", sorted([*ROOT.glob("*.md"), *DOCS.glob("*.md")]), ids=lambda p: p.name
)
def test_links_lead_somewhere(page):
    text = page.read_text()
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        if not path.startswith("http"):
            assert (page.parent / path).exists(), target
            assert not anchor or anchor in anchors((page.parent / path) if path else page), target


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_paths_and_names_in_them_exist(page):
    """Such as `zoo/layers/rotary.py`, or `SIZES` in the file that a row of a table names next."""
    text = (ROOT / page).read_text()
    paths = re.findall(r"`((?:zoo|tests|recipes|benchmarks)/[\w/]+(?:\.\w+)?)`", text)
    assert page != "CONTRIBUTING.md" or len(paths) > 50
    assert not [path for path in paths if not (ROOT / path).exists()]
    for name, path in re.findall(r"`(\w+)`(?: and a \w+)? (?:in|of) `(\w[\w/]+\.py)`", text):
        assert re.search(rf"\b{name}\b", (ROOT / path).read_text()), (name, path)


def recipe_commands():
    """(recipe, flags) of all commands in blocks of shell code."""
    found = []
    for path in (ROOT / "README.md", *DOCS.glob("*.md")):
        for block in re.findall(r"^```bash\n(.*?)^```", path.read_text(), re.DOTALL | re.MULTILINE):
            code = block.replace("\\\n", " ")
            for array, values in re.findall(r"^([A-Z]+)=\(([^()]*)\)$", code, re.MULTILINE):
                code = code.replace(f'"${{{array}[@]}}"', values.replace("\n", " "))
            for name, flags in re.findall(r"\bpython recipes/(\w+)\.py(.*)", code):
                found.append((name, shlex.split(re.split(r"[>|&]", flags)[0], comments=True)))
    return found


def test_recipes_accept_the_commands_in_the_docs(monkeypatch):
    parsed = []

    def parse(main, config_class, presets, description, selector="dataset"):
        parsed.append(recipes.parse(sys.argv[1:], config_class, presets, description, selector))

    monkeypatch.setattr(recipes, "run_recipe", parse)
    commands = [(name, flags) for name, flags in recipe_commands() if "--help" not in flags]
    for name, flags in commands:
        path = ROOT / "recipes" / f"{name}.py"
        monkeypatch.setattr(sys, "argv", [str(path), *flags])
        runpy.run_path(str(path), run_name="__main__")
    assert len(parsed) == len(commands) > 40


def test_names_in_the_docs_exist():
    """The changelog also names what there was, and the tutorial what it adds."""
    pages = {*ROOT.glob("*.md"), *DOCS.glob("*.md")}
    pages -= {ROOT / "CHANGELOG.md", DOCS / "adding_a_model.md"}
    for page in pages:
        for name in set(re.findall(r"\bzoo(?:\.[A-Za-z_]\w*)+", page.read_text())):
            pkgutil.resolve_name(name)


def anchors(page):
    titles = re.findall(r"^#+ (.*)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}


RESULTS = DOCS / "results"


@pytest.mark.parametrize("folder", [path.name for path in RESULTS.iterdir() if path.is_dir()])
def test_scores_are_those_of_their_runs(folder):
    """In the table of runs, and in the last epoch of the run's history."""
    run = RESULTS / folder
    metrics = json.loads((run / "metrics.json").read_text())
    with open(run / "history.csv", newline="") as file:
        epochs = list(csv.DictReader(file))
    config = json.loads((run / "config.json").read_text())
    assert len(epochs) == metrics["epochs"] <= config["config"]["epochs"]
    assert f"runs/{folder}" in config["environment"]["command"].split()
    if "bleu" in metrics:
        score = f"{metrics['bleu']:.2f} BLEU, {metrics['chrf']:.2f} chrF"
    else:
        score = f"{100 * metrics['test_accuracy']:.2f} %"
        assert abs(float(epochs[-1]["val_accuracy"]) - metrics["test_accuracy"]) < 1e-6
    table = (RESULTS / "README.md").read_text()
    [line] = re.findall(rf"^\| \[{folder}\]\(.*$", table, flags=re.MULTILINE)
    assert f"| {score} |" in line


def test_what_ci_runs_exists():
    named = re.findall(r"tests/[^\s\"\\]+", (ROOT / ".ci" / "run").read_text())
    echo = ["bash", "-c", "echo " + " ".join(named)]
    expanded = subprocess.check_output(echo, text=True).split()
    missing = [name for name in expanded if not (ROOT / name.split("::")[0]).exists()]
    assert len(expanded) > 10 and not missing, missing
