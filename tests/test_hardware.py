"""What a run and `python -m zoo info` say about the machine."""

import json
import os
import re
import subprocess
import sys

import keras
import pytest
import tensorflow as tf

import zoo
from zoo import hardware
from zoo.__main__ import main

GPU = "GPU 0: A card (UUID: GPU-1)\n"


@pytest.fixture
def nvidia_smi(tmp_path, monkeypatch):
    """A function that puts a command of NVIDIA's driver on the path, which prints a text."""

    def install(text, status=0):
        command = tmp_path / "nvidia-smi"
        command.write_text(f"#!/bin/sh\nprintf '%s' '{text}'\nexit {status}\n")
        command.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    return install


def test_a_gpu_that_tensorflow_cannot_use_is_a_warning(nvidia_smi, monkeypatch):
    nvidia_smi(GPU)
    command = f"python -m pip install 'tensorflow[and-cuda]=={tf.__version__}'"
    assert command in hardware.unused_gpu()
    for hidden in ("", "-1"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
        assert hardware.unused_gpu() is None  # as the user asked
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [kind])
    assert hardware.unused_gpu() is None


@pytest.mark.parametrize("text, status", [("No devices were found", 0), ("failed", 9)])
def test_a_driver_without_a_gpu_is_not(text, status, nvidia_smi):
    nvidia_smi(text, status)
    assert hardware.unused_gpu() is None


def test_a_run_prints_the_warning(nvidia_smi, tmp_path):
    nvidia_smi(GPU)
    code = "import sys; from zoo.training.run import Run; Run(out=sys.argv[1])"
    command = [sys.executable, "-c", code, str(tmp_path / "run")]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert re.search(r"^warning: This machine has an NVIDIA GPU", run.stderr, re.MULTILINE)
    line = r"^Devices: CPU with \d+ core\(s\)\. Precision: float32\.$"
    assert re.search(line, run.stdout, re.MULTILINE)


def test_info_without_a_model_describes_the_machine(capsys):
    assert main(["info"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["zoo"] == zoo.__version__
    assert report["packages"]["tensorflow"] == tf.__version__
    assert report["packages"]["keras"] == keras.__version__
    assert report["precision auto"] in ("float32", "mixed_bfloat16")
    assert report["jit_compile auto"] == "off, as there is no GPU"
    assert report["devices"] == hardware.device_names()
