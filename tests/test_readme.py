"""The commands and the code of README work as written, and print what it says."""

import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys

from zoo.training.recipe import parse

import pytest

from tests.conftest import export_by_command_line
from tests.test_docs import BLOCK, assert_same_output
from tests.test_recipes import recipe
from zoo.__main__ import main

pytestmark = pytest.mark.ci

ROOT = pathlib.Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language, page=README):
    return re.findall(rf"^```{language}\n(.*?)^```", page, flags=re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def home(digits_run, phrasebook_run, tmp_path_factory):
    """A folder with what README mentions: trained runs, and the models of docs/results."""
    home = tmp_path_factory.mktemp("home")
    shutil.copytree(digits_run[1], home / "runs" / "vit_digits")
    shutil.copytree(phrasebook_run[1], home / "runs" / "translate_phrasebook")
    (home / "docs").symlink_to(ROOT / "docs")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        yield home


@pytest.fixture(scope="module")
def exported(home):
    """The same with the exports."""
    exports = [command for command in zoo_commands() if "export" in command]
    assert len(exports) >= 3
    for run_folder, folder, *flags in (command[4:] for command in exports):
        export_by_command_line(run_folder, home / folder, " ".join(flags))
    return home


def zoo_commands():
    return [
        shlex.split(line.partition("#")[0])
        for block in blocks("bash")
        for line in block.splitlines()
        if line.startswith("python -m zoo ")
    ]


def run(code):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_first_code_prints_what_the_page_says(home):
    code, expected = BLOCK.findall(README)[0]
    assert len(code.splitlines()) == 12
    assert_same_output(run(code), expected)


def test_code_runs(home):
    """That of README, but for what is downloaded, and of the page about models."""
    page = (ROOT / "docs" / "build_models.md").read_text()
    code = [block for block in blocks("python") if "hf://" not in block][1:]
    code += blocks("python", page)
    assert len(code) >= 6
    run("\n".join(["import zoo", *code]))


def test_zoo_commands_run(home, capsys):
    """And print the lines on the page, if they use a model of docs/results."""
    others = {"serve", "launch", "generate", "export"}  # tested below and elsewhere
    commands = [command for command in zoo_commands() if not others & set(command)]
    assert len(commands) >= 5
    on_the_page = {" ".join(line.split()) for text in blocks("text") for line in text.splitlines()}
    for command in commands:
        assert main(command[3:]) == 0, capsys.readouterr().err
        lines = {" ".join(line.split()) for line in capsys.readouterr().out.splitlines()}
        if command[4].startswith("docs/results"):
            assert lines and lines <= on_the_page, command
        if "models" in command:
            assert lines & on_the_page


@pytest.mark.slow
def test_the_serve_command_serves_until_sigterm(exported):
    [command] = [command for command in zoo_commands() if "serve" in command]
    command = [sys.executable, *command[1:], "--port", "0"]  # its port may be in use
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        lines = iter(process.stdout.readline, "")
        assert any(line.startswith("Serving at http://127.0.0.1:") for line in lines)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0


LEAST = {"vit_cifar10": 3, "vit_finetune": 1, "translate": 3, "text_classifier": 3, "causal_lm": 1}


@pytest.mark.parametrize("name, least", LEAST.items())
def test_recipe_flags_exist(name, least):
    module = recipe(name)
    presets = {"--weights": module.FINE_TUNING} if hasattr(module, "FINE_TUNING") else {}
    commands = re.findall(rf"python recipes/{name}\.py(.*)", README)
    assert len(commands) >= least
    for command in commands:
        flags = re.split("[#`]", command)[0].split()
        if flags != ["--help"]:
            assert parse(flags, module.Config, presets, "")


def test_continuous_integration_runs_the_test_command():
    [command] = re.findall(r"^python -m pip install .*pytest.*$", README, flags=re.MULTILINE)
    assert command in (ROOT / ".ci" / "run").read_text().splitlines()


def test_the_page_is_short():
    assert len(README.splitlines()) <= 200
