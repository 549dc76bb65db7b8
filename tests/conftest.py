"""Small trained runs that several tests look at, and what they export. Each is made once."""

import fcntl
import pathlib
import pickle
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
def made_once(tmp_path_factory, worker_id):
    """Function (name, make) -> (what `make(folder)` returned, folder), once for all workers."""
    base = tmp_path_factory.getbasetemp()
    shared = (base if worker_id == "master" else base.parent) / "made_once"
    shared.mkdir(exist_ok=True)

    def made(name, make):
        folder, result = shared / name, shared / f"{name}.pickle"
        with open(shared / f"{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not result.exists():
                result.write_bytes(pickle.dumps(make(folder)))
        return pickle.loads(result.read_bytes()), folder

    return made


@pytest.fixture(scope="session")
def digits_run(made_once):
    """The digits recipe, shrunk, as a user starts it: (completed process, run folder)."""
    flags = "--dataset digits --epochs 2 --embed-dim 16 --num-heads 2 --num-layers 2 --ff-dim 16"
    return made_once("vit_digits", lambda folder: run_recipe("vit_cifar10", flags, folder))


@pytest.fixture(scope="session")
def phrasebook_run(made_once):
    """The phrasebook recipe, shrunk, as a user starts it: (completed process, run folder)."""
    flags = (
        "--dataset phrasebook --epochs 2 --embed-dim 32 --num-heads 2 --num-layers 1 --ff-dim 32 "
        "--tokens-per-batch 16384 --warmup-steps 20 --beam-size 2"
    )
    return made_once("translate_phrasebook", lambda folder: run_recipe("translate", flags, folder))


@pytest.fixture(scope="session")
def digits_export(made_once, digits_run):
    """The SavedModel of the digits run: a folder ``.../digits/1``."""
    return _exported(made_once, digits_run[1], "digits", top_k=3)


@pytest.fixture(scope="session")
def phrasebook_export(made_once, phrasebook_run):
    """The SavedModel of the phrasebook run: a folder ``.../en_es/1``."""
    return _exported(made_once, phrasebook_run[1], "en_es", n_best=2)


def _exported(made_once, run_folder, name, **options):
    import zoo

    def make(folder):
        return zoo.export(zoo.load(run_folder), folder / "1", **options)

    return made_once(name, make)[0]
