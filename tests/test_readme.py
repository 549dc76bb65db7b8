"""The commands and code blocks in README work as written."""

import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from tests.test_recipes import recipe
from zoo.training.command import parse

ROOT = pathlib.Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE)


@pytest.fixture
def workspace(digits_run, phrasebook_run, tmp_path, monkeypatch):
    """A folder with the files that README mentions: trained runs, an image and a text."""
    shutil.copytree(digits_run[1], tmp_path / "runs" / "vit_digits")
    shutil.copytree(phrasebook_run[1], tmp_path / "runs" / "translate_phrasebook")
    (tmp_path / "letter.txt").write_text("The dog is in the park.\nHow are you?\n")
    Image.fromarray(np.zeros((20, 20, 3), np.uint8)).save(tmp_path / "seven.png")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_python_blocks_run_in_order(workspace):
    namespace = {}
    assert len(blocks("python")) >= 4
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), namespace)


def zoo_commands():
    return [
        shlex.split(line.partition("#")[0])
        for block in blocks("bash")
        for line in block.splitlines()
        if line.startswith("python -m zoo ")
    ]


def test_zoo_commands_run(workspace):
    others = {"serve", "launch"}  # tested elsewhere
    commands = [command for command in zoo_commands() if not others & set(command)]
    assert len(commands) >= 2
    for command in commands:
        process = subprocess.run([sys.executable, *command[1:]], capture_output=True, text=True)
        assert process.returncode == 0, process.stderr


def test_the_serve_command_serves_until_sigterm(workspace, digits_export, phrasebook_export):
    shutil.copytree(digits_export, "serving/digits/1")
    shutil.copytree(phrasebook_export, "serving/en_es/1")
    [command] = [command for command in zoo_commands() if "serve" in command]
    command = [sys.executable, *command[1:], "--port", "0"]  # its port may be in use
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        lines = iter(process.stdout.readline, "")
        assert any(line.startswith("Serving at http://127.0.0.1:") for line in lines)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0


@pytest.mark.parametrize("name", ["vit_cifar10", "translate"])
def test_recipe_flags_exist(name):
    module = recipe(name)
    commands = re.findall(rf"python recipes/{name}\.py(.*)", README)
    assert len(commands) >= 3
    for command in commands:
        flags = re.split("[#`]", command)[0].split()
        if flags != ["--help"]:
            assert parse(flags, module.Config, {}, "")


def test_continuous_integration_runs_the_test_command():
    [command] = re.findall(r"^python -m pip install .*pytest.*$", README, flags=re.MULTILINE)
    assert command in (ROOT / ".ci" / "run").read_text().splitlines()


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        if not target.startswith("http"):
            assert (ROOT / target).exists(), target
