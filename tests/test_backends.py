"""Layers and models on the other backends of Keras: what most easily goes wrong there.

All of their tests can run there, which takes minutes; `.ci/run` runs those on PyTorch, most on JAX:
`KERAS_BACKEND=torch python -m pytest tests/layers tests/models tests/test_decoding.py`.
"""

import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

PARTS = ("tests/layers/test_contracts.py", "tests/models/test_contracts.py")
CHOSEN = "dropout_acts_in_fit or carried_masks or symbolic_shape or paths"


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_layers_and_models(backend):
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    process = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *PARTS, "-k", CHOSEN],
        capture_output=True,
        text=True,
        cwd=pathlib.Path(__file__).parents[1],
        env={**os.environ, "KERAS_BACKEND": backend},
    )
    assert process.returncode == 0, process.stdout[-3000:]
    assert " passed" in process.stdout
