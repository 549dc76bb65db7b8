"""Small trained runs that several tests look at, and what they export. Each is made once."""

import ctypes
import fcntl
import gc
import os
import pathlib
import pickle
import signal
import subprocess
import sys

import absl.logging
import pytest

from tests.interrupted import RUNS

ROOT = pathlib.Path(__file__).parents[1]
# What XLA compiles here is called once or twice: compiling quickly matters, running fast does not.
os.environ.setdefault(
    "XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
)

# What tests compute is small: to share it out among threads takes longer than to compute it.
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
# The processes of pytest-xdist, which start after this, keep less memory of what was freed.
os.environ.setdefault("MALLOC_ARENA_MAX", "2")

# Uvicorn closes all handlers of logging, and this one its stream: not that of pytest.
absl.logging.get_absl_handler().python_handler.stream = sys.__stderr__

KEPT = pytest.StashKey()  # memory that giving back has left
SEARCH = {"beam_size": 3, "length_penalty": 1.5}  # other options than those of the run


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    """With ``-n`` of pytest-xdist, the tests of a file run in one process, files in order."""
    if getattr(config.option, "numprocesses", None) and config.option.dist == "no":
        config.option.dist = "loadfile"
        config.option.loadscopereorder = False


def pytest_collection_modifyitems(items):
    """The longest files come first, so that no process waits for another at the end."""
    longest = (
        *("test_distribution", "test_readme", "_recipe", "test_resume", "test_every_kind"),
        *("training/test_run.py", "test_contracts", "test_decoding", "test_training_state.py"),
        *("test_translator.py", "test_transformer.py"),
    )
    items.sort(key=lambda item: not any(name in item.nodeid for name in longest))


def pytest_collection_finish(session):
    """What has been imported stays; the garbage collector need not look at it again and again.

    Graphs are many small objects, which make it run all the time; `give_back_memory` calls it.
    """
    if "tensorflow" in sys.modules:  # on GPUs, what XLA compiles is as exact as all else
        tf_config = sys.modules["tensorflow"].config
        tf_config.experimental.enable_tensor_float_32_execution(False)
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def pytest_configure(config):
    # A shell has what it starts in the background ignore SIGINT, and so would all it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def give_back_memory():
    """Graphs are in cycles, JAX keeps what it compiled, and the C library keeps what is freed."""
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL("libc.so.6").malloc_trim(0)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item):
    """Gives memory back after tests that have left much; to collect after each would take long."""
    stash = item.config.stash
    if _resident() > stash.get(KEPT, 0) + 100e6:
        give_back_memory()
        stash[KEPT] = _resident()


@pytest.fixture(autouse=True)
def _without_xla(request, monkeypatch):
    """A search that XLA compiles costs a second and 26 MB: those of tests marked `xla` only."""
    task = sys.modules.get("zoo.tasks.task")
    if task is not None and not request.node.get_closest_marker("xla"):
        monkeypatch.setattr(task, "JIT_COMPILE", False)


@pytest.fixture
def same_policy():
    """A recipe sets the precision of the process; other tests want it back."""
    import keras

    policy = keras.config.dtype_policy()
    yield
    keras.config.set_dtype_policy(policy)


def _resident():
    """Bytes of memory of this process; 0 where the system does not say."""
    path = pathlib.Path("/proc/self/statm")
    return int(path.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if path.exists() else 0


WITHOUT_XLA = """
import runpy, sys, zoo.startup
zoo.startup.import_tensorflow_quietly()
from zoo.data import token_batches
from zoo.tasks import task
task.JIT_COMPILE, token_batches.MAX_SHAPES = False, 2  # few graphs, and none to compile
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run_recipe(run, folder, *flags, xla=False):
    """Runs a recipe of `tests.interrupted.RUNS`, with `xla` as a user starts it."""
    recipe, settings = RUNS[run]
    python = [sys.executable] if xla else [sys.executable, "-c", WITHOUT_XLA]
    return subprocess.run(
        [*python, f"recipes/{recipe}.py", *settings.split(), *flags, "--out", str(folder)],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )


@pytest.fixture(scope="session")
def made_once(tmp_path_factory, pytestconfig):
    """Function (name, make) -> (what `make(folder)` returned, folder), once for all workers.

    The environment variable `MADE_ONCE` names a folder that several calls of pytest share.
    """
    base = tmp_path_factory.getbasetemp()
    is_worker = hasattr(pytestconfig, "workerinput")  # of pytest-xdist
    shared = (base.parent if is_worker else base) / "made_once"
    shared = pathlib.Path(os.environ.get("MADE_ONCE", shared))
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
    return made_once("vit_digits", lambda folder: run_recipe("digits", folder, xla=True))


@pytest.fixture(scope="session")
def phrasebook_part(made_once):
    """A file of some pairs of the phrasebook."""
    return _phrasebook_file(made_once, "phrasebook.tsv", lambda book: book.phrasebook_pairs(3000))


@pytest.fixture(scope="session")
def phrasebook_run(made_once, phrasebook_part):
    """The translation recipe, shrunk: (completed process, run folder)."""
    flags = ("--tsv", str(phrasebook_part), "--precision", "float32")
    return made_once("translate_phrasebook", lambda folder: run_recipe("pairs", folder, *flags))


@pytest.fixture(scope="session")
def sentences_part(made_once):
    """A file of some sentences of the phrasebook with their kinds."""
    return _phrasebook_file(
        made_once, "sentences.tsv", lambda book: (row[::-1] for row in book.sentence_kinds(3000))
    )


@pytest.fixture(scope="session")
def texts_run(made_once, sentences_part):
    """The text recipe, shrunk: (completed process, run folder)."""
    flags = ("--tsv", str(sentences_part), "--precision", "float32")
    return made_once("text_sentences", lambda folder: run_recipe("texts", folder, *flags))


@pytest.fixture(scope="session")
def digits_export(made_once, digits_run):
    """The SavedModel of the digits run: a folder ``.../digits/1``."""
    return made_once(
        "digits", lambda folder: export_by_command_line(digits_run[1], folder / "1", "--top-k 3")
    )[0]


@pytest.fixture(scope="session")
def phrasebook_export(made_once, phrasebook_run):
    """The SavedModel of the phrasebook run: a folder ``.../en_es/1``; it searches by `SEARCH`."""
    flags = "--n-best 2 --beam-size {beam_size} --length-penalty {length_penalty}"
    flags, run = flags.format(**SEARCH), phrasebook_run[1]
    return made_once("en_es", lambda folder: export_by_command_line(run, folder / "1", flags))[0]


@pytest.fixture(scope="session")
def phrasebook_translator(phrasebook_run):
    """The translator of the phrasebook run, which searches as the export of it does."""
    import zoo

    translator = zoo.load(phrasebook_run[1])
    for name, value in SEARCH.items():
        assert getattr(translator, name) != value
        setattr(translator, name, value)
    return translator


def _phrasebook_file(made_once, name, pairs):
    def make(path):
        from zoo.data import phrasebook

        path.write_text("".join(f"{row[0]}\t{row[1]}\n" for row in pairs(phrasebook)))

    return made_once(name, make)[1]


def export_by_command_line(run_folder, folder, flags):
    """Returns the folder. XLA does not compile: what it compiles, 450 MB, stays."""
    from zoo.__main__ import main
    from zoo.tasks import task

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task, "JIT_COMPILE", False)
        assert main(["export", str(run_folder), str(folder), *flags.split()]) == 0
    return folder
