"""Bricks, models and searches on the other backends of Keras: their tests pass there as well."""

import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

PARTS = (
    "tests/layers",
    "tests/models",
    "tests/test_decoding.py::test_a_beam_of_one_is_greedy",
    "tests/test_decoding.py::test_a_draw_depends_on_its_random_numbers_alone",
    "tests/test_decoding.py::test_the_widest_beam_finds_what_trying_everything_finds",
)
# Of the time on JAX most goes into compiling what is called once.
QUICKLY = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_layers_and_models(backend):
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    process = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *PARTS],
        capture_output=True,
        text=True,
        cwd=pathlib.Path(__file__).parents[1],
        env={**os.environ, "KERAS_BACKEND": backend, "XLA_FLAGS": QUICKLY},
    )
    assert process.returncode == 0, process.stdout[-3000:]
    assert " passed" in process.stdout
