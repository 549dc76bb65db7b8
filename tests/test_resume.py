"""Small runs of the real recipes, killed or interrupted at any moment, resume exactly."""

import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from tests.interrupted import (
    ROOT,
    RUNS,
    assert_same,
    completed,
    ended,
    finish,
    killed,
    log_of,
    newest_step,
    outcome,
    resumed,
    start,
    wait_until,
)

pytestmark = pytest.mark.ci


@pytest.fixture(scope="module")
def uninterrupted(made_once):
    """Function of a run's name that returns the outcome of an uninterrupted run."""
    return lambda run: made_once(f"whole_{run}", lambda folder: completed(run, folder))[0]


def test_a_run_that_is_stopped_is_resumed_bit_for_bit(tmp_path, digits_run):
    """SIGTERM in the first step, which takes seconds; the same command goes on."""
    folder = tmp_path / "run"
    # the only checkpoint within an epoch is that of the signal
    with ended(start("digits", folder, "--checkpoint-steps", "0")) as process:
        wait_until(lambda: "Epoch 1/" in log_of(folder), process)
        time.sleep(0.2)
        os.kill(process.pid, signal.SIGTERM)
        assert finish(process) == 143, log_of(folder)
    assert "is saved. Run the same command to resume" in log_of(folder)
    assert "Traceback" not in log_of(folder)
    assert newest_step(folder) >= 1
    assert_same(completed("digits", folder), outcome(digits_run[1]))
    assert log_of(folder).count("Resuming after") == 1


@pytest.mark.slow
def test_fine_tuning_resumes_bit_for_bit(tmp_path, digits_run):
    """Killed twice."""
    flags = ["--lora-rank", "2", "--optimizer", "adamw", "--weights", str(digits_run[1])]
    expected = completed("finetune", tmp_path / "whole", *flags)
    for moment in ("writing", 0.1):
        killed("finetune", tmp_path / "parts", moment, "--resume", *flags)
    assert_same(resumed("finetune", tmp_path / "parts", *flags), expected)


@pytest.mark.slow
def test_a_compiled_run_resumes_bit_for_bit(tmp_path):
    """Another process compiles the same blocks and the same optimizer again."""
    flags = ["--jit-compile", "True"]
    expected = completed("digits", tmp_path / "whole", *flags)
    killed("digits", tmp_path / "parts", 0.1, *flags)
    assert_same(resumed("digits", tmp_path / "parts", *flags), expected)


# Dropout differs between workers, and Muon amplifies the rounding of sums.
SAME_ON_SEVERAL = (
    "--dropout 0 --stochastic-depth 0 --patch-dropout 0 --optimizer adamw --initialization glorot"
).split()


def assert_close(found, expected):
    for path, weights in expected[0].items():
        # sums over replicas are in another order; a step of Adam is 1e-3
        np.testing.assert_allclose(found[0][path], weights, atol=1e-5, err_msg=path)
    assert found[2] == expected[2]


def launched(folder, workers, flags, number=None, after=None):
    """Runs the digits recipe with several workers and sends a signal to one of them once `after` is
    in the log; returns status and log."""
    log = pathlib.Path(f"{folder}.{workers}.log")
    command = [sys.executable, str(ROOT / "recipes" / "vit_cifar10.py"), *RUNS["digits"][1].split()]
    command += ["--checkpoint-steps", "1"]
    with open(log, "w") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "zoo", "launch", "--workers", str(workers), "--"]
            + [*command, "--out", str(folder), *flags],
            stdout=file,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
        )
    try:
        if number:
            while after not in log.read_text() and process.poll() is None:
                time.sleep(0.05)
            children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
            os.kill(int(children.read_text().split()[-1]), number)
        return process.wait(200), log.read_text()
    finally:
        process.terminate()


@pytest.mark.slow
def test_workers_resume_bit_for_bit(tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert launched(whole, 2, [])[0] == 0
    for epoch in (1, 2):
        status, log = launched(parts, 2, ["--resume"], signal.SIGKILL, f"Epoch {epoch}/")
        assert status == 128 + signal.SIGKILL and "a worker is lost" in log, log
    status, log = launched(parts, 2, ["--resume"])
    assert status == 0 and "Resuming after" in log, log
    assert_same(outcome(parts), outcome(whole))


@pytest.mark.slow
def test_another_number_of_workers_resumes(tmp_path):
    """SIGTERM to one of two workers stops both; three resume, one is killed; one resumes alone."""
    flags = [*SAME_ON_SEVERAL, "--checkpoint-steps", "7"]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert launched(whole, 1, flags)[0] == 0
    status, log = launched(parts, 2, flags, signal.SIGTERM, "Epoch 1/")
    assert status == 143, log
    assert "Run the same command to resume" in log
    status, log = launched(parts, 3, flags, signal.SIGKILL, "Epoch 2/")
    assert status != 0 and "a worker is lost" in log, log
    status, log = launched(parts, 1, [*flags, "--resume"])
    assert status == 0, log
    assert_close(outcome(parts), outcome(whole))


def drawn_anew():
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    return random.Random(seed)


@pytest.mark.slow
@pytest.mark.parametrize("run, kills", [("digits", 20), ("phrasebook", 20), ("mirrored", 3)])
def test_kills_at_any_moment(run, kills, tmp_path, uninterrupted):
    """Replicas, too, each with dropout of its own."""
    draw = drawn_anew()
    moments = ["writing"] + [
        draw.choice(["writing", draw.uniform(0, 0.3), draw.uniform(0, 2), -draw.uniform(0, 12)])
        for _ in range(kills - 1)
    ]
    written = [killed(run, tmp_path / "run", moment, "--resume") for moment in moments]
    assert any(written), "no kill fell into the writing of a checkpoint"
    assert_same(completed(run, tmp_path / "run", "--resume"), uninterrupted(run))


@pytest.mark.slow
@pytest.mark.parametrize("run", ["digits", "phrasebook"])
def test_sigterm_at_any_moment(run, tmp_path, uninterrupted):
    """Also while data are read, and while the report is written."""
    draw, folder = drawn_anew(), tmp_path / "run"
    folder.mkdir()
    for _ in range(8):
        with ended(start(run, folder)) as process:
            process.join(draw.uniform(0, 12))
            if process.is_alive():
                os.kill(process.pid, signal.SIGTERM)
            status = finish(process)
            # before the recipe is reached, and can say how to end, SIGTERM ends a process itself
            assert status in (143, -signal.SIGTERM, 0), log_of(folder)
        if status == 0:
            break
    assert_same(completed(run, folder, "--resume"), uninterrupted(run))
