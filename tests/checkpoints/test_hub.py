"""Published models by name, from a local server with the Hub's API, and from the cache."""

import multiprocessing
import pathlib
import re
import sys
from concurrent.futures import ProcessPoolExecutor

import pytest

import zoo
from tests.checkpoints import hub_server
from tests.checkpoints.test_marian import write
from tests.checkpoints.translation_folders import write_marian
from zoo.checkpoints import CheckpointError, hub
from zoo.errors import UserError

pytest.importorskip("huggingface_hub")
CACHED = ["me/opus", "me/opus@main", "me/firefox", "me/old"]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """The result for each name: online, from a filled cache, and with an empty cache."""
    folder, cache = (tmp_path_factory.mktemp(name) for name in ("opus", "cache"))
    write_marian(folder)
    files = {file.name: file.read_bytes() for file in folder.iterdir()}
    write(folder / "native", "intgemm8")
    native = {file.name: file.read_bytes() for file in (folder / "native").iterdir()}
    nested = {f"onnx/{name}": b"not read" for name in ("model.onnx", "a.bin", "a.npz", "a.yml")}
    pickled = {**files, "pytorch_model.bin": b"of no use", "flax_model.msgpack": b"not read"}
    only_pickles = {"config.json": b'{"model_type": "bert"}', "pytorch_model.bin": b"weights"}
    repositories = {
        "me/opus": {**pickled, **nested, "README.md": b"not read"},
        "me/firefox": {**native, **nested, "lex.50.50.s2t.bin": b"optional"},
        "me/old": only_pickles,
        "me/preset": {
            "config.json": b'{"class_name": "ViTBackbone"}',
            "task.json": b"{}",
            "model.weights.h5": b"of the backbone",
            "task.weights.h5": b"of the head",
        },
        "me/notes": {"srcvocab.spm": native["srcvocab.spm"], "notes.yml": b"a: 1"},
        "me/empty": {"config.json": b'{"model_type": "bert"}'},
        "me/other": {"config.json": b'{"model_type": "swin"}', "model.safetensors": b"not read"},
        "me/gated": only_pickles,
    }
    url, asked, stop = hub_server.serve(repositories, gated=("me/gated",))
    names = [*repositories, "me/opus@main", "me/no", "me/opus@v9"]
    empty = tmp_path_factory.mktemp("empty")
    online = {"HF_HOME": str(cache), "HF_ENDPOINT": url}
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tensorflow"])
    with ProcessPoolExecutor(1, context, max_tasks_per_child=1) as processes:

        def run(names, environment):
            return processes.submit(hub_server.downloaded, names, environment).result()

        try:
            found = {"online": run(names, online)}
        finally:
            stop()
        found["offline"] = run(CACHED, {**online, "HF_HUB_OFFLINE": "1"})
        found["stopped"] = run(["me/opus"], online)
        found["empty"] = run(["me/opus"], {**online, "HF_HOME": str(empty)})
    return found, asked


@pytest.mark.ci
def test_only_what_is_read_is_downloaded_and_loaded(outcomes):
    results, asked = outcomes
    kind, folder = results["online"]["me/opus"]
    assert kind == "folder"
    names = {file.name for file in pathlib.Path(folder).iterdir()}
    assert {"config.json", "model.safetensors", "source.spm", "vocab.json"} <= names
    assert not names & {"pytorch_model.bin", "flax_model.msgpack", "onnx", "README.md"}
    unread = re.compile("msgpack|onnx|other.*safetensors")
    assert not any(map(unread.search, asked))
    zoo.load(folder)
    kind, folder = results["online"]["me/firefox"]
    names = {file.name for file in pathlib.Path(folder).iterdir()}
    native = {"config.yml", "model.npz", "srcvocab.spm", "trgvocab.spm"}
    assert names == {*native, "lex.50.50.s2t.bin"}
    zoo.load(folder)
    assert (pathlib.Path(results["online"]["me/preset"][1]) / "task.weights.h5").is_file()
    assert results["online"]["me/opus@main"] == results["online"]["me/opus"]
    assert (pathlib.Path(results["online"]["me/old"][1]) / "pytorch_model.bin").is_file()


@pytest.mark.ci
def test_cached_models_need_no_network(outcomes):
    results, _ = outcomes
    for name in CACHED:
        assert results["offline"][name] == results["online"][name]
    assert results["stopped"]["me/opus"] == results["online"]["me/opus"]


@pytest.mark.ci
@pytest.mark.parametrize(
    "when, name, message",
    [
        ("online", "me/empty", "has no weights that can be read: none of model.safetensors"),
        ("online", "me/notes", "has no weights that can be read.*nor a model of Marian"),
        ("online", "me/other", "the model 'swin' is not supported"),
        ("online", "me/gated", "asks for consent.*HF_TOKEN"),
        ("online", "me/no", "no such model, or it is private"),
        ("online", "me/opus@v9", "no revision 'v9'"),
        ("empty", "me/opus", "not in the cache.*cannot be reached"),
    ],
)
def test_unavailable_models_are_explained(outcomes, when, name, message):
    kind, text = outcomes[0][when][name]
    assert kind == "CheckpointError" and text.startswith(f"hf://{name}: ")
    with pytest.raises(CheckpointError, match=message):
        raise CheckpointError(text)


@pytest.mark.parametrize(
    "name, message",
    [
        ("hf://me/opus/model.bin", "hf://owner/name"),
        ("hf://", "hf://owner/name"),
        ("kaggle://keras/vit", "owner/model/framework/variation"),
    ],
)
def test_malformed_names(name, message):
    with pytest.raises(CheckpointError, match=message):
        zoo.load(name)


def test_other_connection_errors(monkeypatch):
    """Errors of proxies and certificates, or pages of another server."""

    def download(*args, **options):
        raise RuntimeError("the proxy\nrefuses")

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    message = "hf://a/b: it cannot be downloaded .RuntimeError: the proxy refuses"
    with pytest.raises(CheckpointError, match=message):
        zoo.load("hf://a/b")


def test_a_missing_package_is_named(monkeypatch):
    for package, name in (("huggingface_hub", "hf://a/b"), ("kagglehub", "kaggle://a/b/c/d")):
        monkeypatch.setitem(sys.modules, package, None)
        message = f"package {package.replace('_', '-')} is not installed. Run `pip install"
        with pytest.raises(UserError, match=message):
            hub.download(name)


def test_a_revision_without_a_model_of_the_hub(tmp_path):
    with pytest.raises(UserError, match="models of the Hugging Face Hub, hf://owner/name"):
        zoo.load(tmp_path, revision="main")
    with pytest.raises(FileNotFoundError, match="pass hf://a/b;"):
        zoo.load(pathlib.Path("hf://a/b"))
