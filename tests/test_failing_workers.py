"""One of two workers fails by itself: both name its error and end at once."""

import os
import pathlib
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow
ROOT = pathlib.Path(__file__).parents[1]
SMALL = "--embed-dim 16 --num-heads 2 --num-layers 1 --ff-dim 16"

# Runs a recipe in the working directory of its worker: {folder}/0 or {folder}/1.
START = """
import json, os, runpy, sys
index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
folder, sys.argv = sys.argv[1], sys.argv[2:]
os.chdir(os.path.join(folder, str(index)))
"""
RUN = "runpy.run_path(sys.argv[0], run_name='__main__')"
BUG = """
import tensorflow as tf
from zoo.training.callbacks import LearningRateAndSpeed
add_to_logs = LearningRateAndSpeed.on_epoch_end
def fail(self, epoch, logs=None):
    if index == 1 and epoch == 1:
        raise tf.errors.UnavailableError(None, None, "my bucket")
    add_to_logs(self, epoch, logs)
LearningRateAndSpeed.on_epoch_end = fail
"""


def run(code, folder, recipe, flags):
    """Runs two workers; returns their status and the lines of each."""
    line = [sys.executable, "-m", "zoo", "launch", "--workers", "2", "--", sys.executable, "-c"]
    line += [code, str(folder), str(ROOT / "recipes" / recipe), *flags.split()]
    for index in "01":
        (folder / index).mkdir(exist_ok=True)
    # as launch sets it, whatever this process has set before
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(line, capture_output=True, text=True, env=environment, timeout=240)
    print(done.stdout, f"status {done.returncode}")
    lines = done.stdout.splitlines()
    return done.returncode, *([s[4:] for s in lines if s.startswith(f"[{i}] ")] for i in (0, 1))


def assert_named(failed, other, index, error):
    """Both workers name the error; only the one that failed may say more."""
    assert not any("is lost" in line for line in failed + other)
    assert any(line.startswith(error) for line in failed)
    found = [line for line in other if "rror: " in line]
    assert found == [f"error: worker {index} failed: {error.removeprefix('error: ')}"]
    assert "Start all workers again" in other[-1]
    assert not any("crashed" in line or "StartAbort" in line for line in failed + other)


@pytest.mark.parametrize("bad", [0, 1])
def test_a_bad_file_of_one_worker_is_named_by_both(bad, tmp_path):
    """Of the chief or of the other."""
    good = "".join(f"odd\tone {n}\neven\ttwo {n}\n" for n in range(100))
    for index in range(2):
        (tmp_path / str(index)).mkdir()
        (tmp_path / str(index) / "texts.tsv").write_text(good + "no tab\n" * (index == bad))
    flags = f"--tsv texts.tsv {SMALL} --vocab-size 300 --out {tmp_path}/run"
    status, *workers = run(START + RUN, tmp_path, "text_classifier.py", flags)
    [error] = [line for line in workers[bad] if line.startswith("error: ")]
    assert status == 2 and "texts.tsv" in error
    assert_named(workers[bad], workers[1 - bad], bad, error)
    assert not any("Traceback" in line for line in sum(workers, []))


def test_a_bug_keeps_its_traceback_and_is_named_by_the_other(tmp_path):
    """Also if its type is one that TensorFlow raises if a worker is lost."""
    flags = f"--dataset digits {SMALL} --epochs 500 --out {tmp_path}/run"
    status, chief, other = run(START + BUG + RUN, tmp_path, "vit_cifar10.py", flags)
    error = "UnavailableError: my bucket"
    assert status == 1
    assert any("Traceback" in line for line in other) and other[-1].endswith(error)
    assert_named([*other, error], chief, 1, error)
