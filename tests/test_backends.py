"""Bricks, models and searches on the other backends of Keras: their tests pass there as well."""

import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

# The rest passes as well, and takes minutes more: `KERAS_BACKEND=jax python -m pytest tests/layers
# tests/models tests/test_decoding.py`.
PARTS = (
    "tests/layers/test_contracts.py",
    "tests/layers/test_attention.py",
    "tests/models/test_contracts.py",
    "tests/test_decoding.py::test_a_larger_buffer_changes_nothing",
)
# Most of the time on JAX is compilation of operations that run once.
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
