"""Small trained runs that several tests look at."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]


def run_recipe(name, flags, folder):
    """Runs a recipe as a user starts it."""
    return subprocess.run(
        [sys.executable, f"recipes/{name}.py", *flags.split(), "--out", str(folder)],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )


@pytest.fixture(scope="session")
def digits_run(tmp_path_factory):
    """The digits recipe, shrunk, as a user starts it: (completed process, run folder)."""
    folder = tmp_path_factory.mktemp("runs") / "vit_digits"
    flags = "--dataset digits --epochs 2 --embed-dim 16 --num-heads 2 --num-layers 2 --ff-dim 16"
    return run_recipe("vit_cifar10", flags, folder), folder


@pytest.fixture(scope="session")
def phrasebook_run(tmp_path_factory):
    """The phrasebook recipe, shrunk, as a user starts it: (completed process, run folder)."""
    folder = tmp_path_factory.mktemp("runs") / "translate_phrasebook"
    flags = (
        "--dataset phrasebook --epochs 2 --embed-dim 32 --num-heads 2 --num-layers 1 --ff-dim 32 "
        "--tokens-per-batch 16384 --warmup-steps 20 --beam-size 2"
    )
    return run_recipe("translate", flags, folder), folder
