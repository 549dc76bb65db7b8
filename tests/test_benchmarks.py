"""The benchmarks run, and their contenders compute the same. Missing libraries are skipped."""

import importlib
import json
import pathlib

import numpy as np
import pytest

FOLDER = pathlib.Path(__file__).parents[1] / "benchmarks"
VIT = {
    "image_size": 16,
    "patch_size": 8,
    "embed_dim": 24,
    "num_heads": 3,
    "num_layers": 2,
    "ff_dim": 48,
}
TRANSFORMER = {"vocab_size": 50, "embed_dim": 16, "num_heads": 2, "num_layers": 2, "ff_dim": 32}
TOLERANCE = 1e-4  # float32 operations in another order, and three updates of Adam


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))


def module(name):
    return importlib.import_module(name)


BENCHMARK = """
import pathlib
import turns

def one(folder, name, outputs):
    def run():
        with open(pathlib.Path(folder) / "order", "a") as file:
            file.write(name)
        return outputs
    return run

def prepare(folder, all_settings):
    print("what a library prints")
    (pathlib.Path(folder) / "prepared").touch()

def other(folder, **settings):
    assert (pathlib.Path(folder) / "prepared").exists()
    import a_library_that_nobody_has

def broken(folder, **settings):
    raise ValueError("it is broken")

CONTENDERS = {name: lambda name=name, **x: one(name=name, **x) for name in "abc"}
CONTENDERS |= {"missing": other, "broken": broken}
"""


@pytest.mark.slow
def test_contenders_take_turns(tmp_path, capfd, monkeypatch):
    turns = module("turns")
    file = tmp_path / "small.py"
    monkeypatch.setattr(turns, "PAUSE", 0.0)
    file.write_text(BENCHMARK)
    cases = [
        turns.Case("numbers", {"outputs": [1.0, 2.0]}, ("a", "b", "missing", "broken"), 8, "items"),
        turns.Case("words", {"outputs": ["x", "y"]}, ("a", "c"), 8, "items"),
        turns.Case("excluded", {}, ("a",)),
    ]
    arguments = ["--rounds", "2", "--only", "r", "--json", str(tmp_path / "found" / "small.json")]
    report = turns.run(file, cases, turns.parser("").parse_args(arguments))
    numbers, words = (case["contenders"] for case in report["cases"])
    assert numbers["missing"]["skipped"] == "a_library_that_nobody_has is not installed"
    assert numbers["broken"]["failed"] == "ValueError: it is broken"
    assert numbers["b"]["difference"] == "0e+00" and words["c"]["difference"] == "0.0% differ"
    assert len(numbers["a"]["seconds"]) == 2 and min(numbers["a"]["seconds"]) > 0
    table, errors = capfd.readouterr()
    assert "| numbers | missing | skipped: a_library" in table and "it is broken" in errors
    assert "what a library prints" not in table
    written = json.loads((tmp_path / "found" / "small.json").read_text())
    assert [case["name"] for case in written["cases"]] == ["numbers", "words"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("benchmarks")


def outputs_of(benchmark, case, name, folder):
    """What a contender computes, in a process of its own."""
    contender = module("turns").Contender(benchmark.__file__, name, str(folder), **case.settings)
    contender.close()
    if "skipped" in contender.first:
        pytest.skip(contender.first["skipped"])
    return np.asarray(contender.first["outputs"])


VIT_CASES = [("vit", "case", (kind, VIT, 2, "float32")) for kind in ("training", "inference")]
DECODING = [("translation", "decoding", (TRANSFORMER, 2, k, "float32", 5, 8)) for k in (1, 4)]
TRAINING = ("translation", "training", ("tiny", TRANSFORMER, 2, 0.0, "float32", 8))
SAME = [
    *((case, name) for case in VIT_CASES for name in ("keras-hub", "timm")),
    *((VIT_CASES[1], name) for name in ("ONNX Runtime", "OpenVINO")),
    *((case, name) for case in DECODING for name in ("CTranslate2", "transformers")),
    (TRAINING, "transformers"),
]


@pytest.mark.slow
@pytest.mark.parametrize("case, name", SAME)
def test_other_libraries_compute_the_same(case, name, folder):
    file, create, arguments = case
    benchmark = module(file)
    case = getattr(benchmark, create)(*arguments)
    benchmark.prepare(folder, [case.settings])
    expected = np.asarray(benchmark.CONTENDERS[case.contenders[0]](folder, **case.settings)())
    found = outputs_of(benchmark, case, name, folder)
    atol = TOLERANCE * np.abs(expected).max() if expected.dtype.kind == "f" else 0
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol)


@pytest.mark.slow
def test_all_pipelines_run(tmp_path, monkeypatch):
    benchmark = module("vit_pipeline")
    monkeypatch.setattr(benchmark, "STEPS", 1)
    monkeypatch.setattr(benchmark, "JPEGS", 160)
    cases = benchmark.cases(dataset="digits")
    benchmark.prepare(tmp_path, [case.settings for case in cases])
    for case in cases:
        for name in case.contenders:
            assert np.isfinite(benchmark.CONTENDERS[name](tmp_path, **case.settings)()).all()
    answer = {"seconds": [2.0], "cores": 0.5}
    result = {"name": "alone", "items": 425, "unit": "images", "contenders": {"JPEG": answer}}
    assert "425 images/s on one core" in benchmark.cores_needed(result)
    assert "needs 10.0 cores" in benchmark.cores_needed(result)


@pytest.mark.ci
def test_every_benchmark_can_be_imported():
    for path in FOLDER.glob("*.py"):
        module(path.stem)


@pytest.mark.ci
def test_floor():
    turns = module("turns")
    case = turns.Case("", {}, ("a",), operations=6e9, bytes=2e9)
    rates = {"matrix product, float32": 3e9, "copy": 4e9}
    assert turns.floor_seconds(case, rates) == 2.0
    assert turns.floor_seconds(case._replace(operations=0), rates) == 0.5
    answer = {"seconds": [3.0, 5.0, 4.0], "cores": 2, "memory": 9, "memory before": 7}
    answer["first run"] = 1.5
    result = {"contenders": {"a": answer}, "floor": 2.0, "matrix rate": 3e9}
    found = turns.rows(case, result)
    table = ["a | 0.25 runs/s | 4,000 | 1.00 (1.00 to 1.00) | 2 | 50% |  | 9 (+2) | 2.0 | 1.5 |"]
    table.append("floor: 6e+09 operations, 2e+09 bytes | 0.5 runs/s | 2,000 | | | | | | | |")
    assert list(found) == [f"|  | {line}" for line in table]
    for compute in turns.CONTENDERS.values():
        compute(folder=None)()
