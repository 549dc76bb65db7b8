"""Recipes in processes that can be killed, forked from one that has imported TensorFlow."""

import contextlib
import multiprocessing
import os
import pathlib
import runpy
import sys
import time

import numpy as np

ROOT = pathlib.Path(__file__).parents[1]
_SMALL = "--epochs 2 --embed-dim {0} --num-heads 2 --num-layers 1 --ff-dim {0} --dropout 0.1 "
_DIGITS = _SMALL.format(16) + "--dataset digits --batch-size 128 --patch-dropout 0.5 0.25"
_TRANSLATE = _SMALL.format(32) + "--warmup-steps 20 --average-last 2 --accumulation 2 --beam-size 2"
# name: recipe and flags
_FINETUNE = (
    "--dataset digits --steps 8 --eval-steps 4 --batch-size 64 --warmup-steps 2 --dropout 0.1"
)
_PAIRS = "--tokenizer word --vocabulary separate --learning-rate-scale 1 --tokens-per-batch 512"
_TEXT = _SMALL.format(16) + "--batch-size 4 --max-length 32 --vocab-size 300 --warmup-steps 5"
RUNS = {
    "digits": ("vit_cifar10", f"{_DIGITS} --optimizer muon --initialization mimetic"),
    "finetune": ("vit_finetune", _FINETUNE),  # with --weights
    "mirrored": ("vit_cifar10", f"{_DIGITS} --strategy mirrored --devices 2"),
    "phrasebook": ("translate", f"{_TRANSLATE} --dataset phrasebook --tokens-per-batch 16384"),
    "pairs": ("translate", f"{_TRANSLATE} {_PAIRS} --optimizer muon"),  # with --tsv
    "text": ("causal_lm", _TEXT),  # with --text
    # with --tsv and sentences of the phrasebook
    "texts": ("text_classifier", _SMALL.format(16) + "--vocab-size 400 --tokens-per-batch 2048"),
}


def start(run, folder, *flags):
    """Starts a shrunk recipe, which often saves; what it prints is added to ``<folder>.log``."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tensorflow", "keras", "matplotlib.figure", "sklearn"])
    recipe, settings = RUNS[run]
    arguments = [*settings.split(), "--checkpoint-steps", "1", "--out", str(folder), *flags]
    process = context.Process(target=_run, args=(recipe, arguments, f"{folder}.log"))
    process.start()
    return process


def _run(recipe, arguments, log):
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    path = str(ROOT / "recipes" / f"{recipe}.py")
    sys.argv = [path, *arguments]
    runpy.run_path(path, run_name="__main__")


def finish(process, seconds=300):
    """Waits for a process; returns its exit status."""
    process.join(seconds)
    assert process.exitcode is not None, "it hangs"
    return process.exitcode


def wait_until(condition, process, seconds=120):
    """Waits until the condition holds or the process has ended."""
    end = time.monotonic() + seconds
    while not condition() and process.is_alive():
        assert time.monotonic() < end, "it hangs"
        time.sleep(0.004)


def killed(run, folder, moment, *flags):
    """Starts a run and kills it; returns whether a checkpoint was being written.

    The moment is "writing", for one in which a checkpoint is written after the first step of this
    process, or a number of seconds after that step; negative ones count from the start.
    """
    before = newest_step(folder)
    with ended(start(run, folder, *flags)) as process:
        if moment == "writing":
            wait_until(lambda: newest_step(folder) > before and is_writing(folder), process)
        elif moment >= 0:
            wait_until(lambda: newest_step(folder) > before, process)
            process.join(moment)
        else:
            process.join(-moment)
        process.kill()
        process.join()
    return is_writing(folder)


def completed(run, folder, *flags):
    """Runs a recipe to its end; returns its outcome."""
    assert finish(start(run, folder, *flags)) == 0, log_of(folder)
    return outcome(folder)


def resumed(run, folder, *flags):
    """Resumes a run to its end; returns its outcome."""
    found = completed(run, folder, "--resume", *flags)
    assert "Resuming after" in log_of(folder)
    return found


def newest_step(folder):
    """The step of the newest checkpoint; 0 without one."""
    paths = pathlib.Path(folder).glob("checkpoints/epoch_*[0-9]")
    return max((int(path.name.rpartition("_")[2]) for path in paths), default=0)


def is_writing(folder):
    """Whether a checkpoint is being written."""
    return any(pathlib.Path(folder).glob("checkpoints/partial.*"))


def log_of(folder):
    path = pathlib.Path(f"{folder}.log")
    return path.read_text() if path.exists() else ""


def outcome(folder):
    """The outcome of a run except for timings: weights, history and file names."""
    import zoo
    from zoo.training.callbacks import history_rows

    weights = {v.path: np.asarray(v) for v in zoo.load(folder).model.weights}
    rows = [
        {k: v for k, v in row.items() if "_per_second" not in k} for row in history_rows(folder)
    ]
    return weights, rows, {path.name for path in folder.iterdir()}


def assert_same(found, expected):
    """To the last bit."""
    for (path, mine), (other_path, theirs) in zip(
        found[0].items(), expected[0].items(), strict=True
    ):
        assert path == other_path
        np.testing.assert_array_equal(mine, theirs, err_msg=path)
    assert found[1:] == expected[1:]


@contextlib.contextmanager
def ended(process):
    """Kills the process if a test fails."""
    try:
        yield process
    finally:
        process.kill()
        process.join()
