"""The soak test of the server, for a few seconds."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from tests.server import toys


@pytest.mark.slow
def test_a_short_soak(tmp_path):
    folders = [
        toys.save(toys.Classifier(), tmp_path / "colors" / "1"),
        toys.save(toys.Translator(), tmp_path / "shout" / "1"),
    ]
    root = pathlib.Path(__file__).parents[2]
    options = "--clients 20 --minutes 0.1 --quiet-seconds 2".split()
    files = ["--json", tmp_path / "soak.json", "--image", tmp_path / "soak.png"]
    run = subprocess.run(
        [sys.executable, root / "benchmarks" / "serving_soak.py", *folders, *options, *files],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    assert "| criterion |" in run.stdout, run.stderr
    found = json.loads((tmp_path / "soak.json").read_text())
    assert found["criteria"]["No answer is wrong."]
    assert all(phase["requests"] > 0 for phase in found["phases"].values())
    assert any(found["hostile"].values())
    assert (tmp_path / "soak.png").stat().st_size > 0
