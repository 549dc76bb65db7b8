"""The commands and code blocks in README work as written."""

import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys

from zoo.training.recipe import parse

import numpy as np
import pytest
from PIL import Image

from tests.test_recipes import recipe
from zoo.__main__ import main

pytestmark = pytest.mark.ci

ROOT = pathlib.Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def home(digits_run, phrasebook_run, tmp_path_factory):
    """A folder with the files that README mentions: trained runs, an image and a text."""
    home = tmp_path_factory.mktemp("home")
    shutil.copytree(digits_run[1], home / "runs" / "vit_digits")
    shutil.copytree(phrasebook_run[1], home / "runs" / "translate_phrasebook")
    (home / "letter.txt").write_text("The dog is in the park.\nHow are you?\n")
    Image.fromarray(np.zeros((20, 20, 3), np.uint8)).save(home / "seven.png")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        yield home


@pytest.fixture(scope="module")
def exported(home):
    """The same after running the Python blocks in order."""
    code = [block for block in blocks("python") if "hf://" not in block]  # those need a network
    assert len(code) >= 4
    code = "\n".join(code)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    return home


def zoo_commands():
    return [
        shlex.split(line.partition("#")[0])
        for block in blocks("bash")
        for line in block.splitlines()
        if line.startswith("python -m zoo ")
    ]


def test_zoo_commands_run(home, capsys):
    others = {"serve", "launch", "generate"}  # tested elsewhere
    commands = [command for command in zoo_commands() if not others & set(command)]
    assert len(commands) >= 2
    for command in commands:
        assert main(command[3:]) == 0, capsys.readouterr().err


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
    commands = re.findall(rf"python recipes/{name}\.py(.*)", README)
    assert len(commands) >= least
    for command in commands:
        flags = re.split("[#`]", command)[0].split()
        if flags != ["--help"]:
            assert parse(flags, module.Config, {}, "")


def test_continuous_integration_runs_the_test_command():
    [command] = re.findall(r"^python -m pip install .*pytest.*$", README, flags=re.MULTILINE)
    assert command in (ROOT / ".ci" / "run").read_text().splitlines()
