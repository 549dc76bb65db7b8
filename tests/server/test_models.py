"""Which folders are served, under which names, which are refused, and how they are warmed up."""

import shutil
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests.server import toys
from zoo.errors import ServerError, UserError
from zoo.server.models import Signature, find, load, load_all


def test_names_and_versions(tmp_path, monkeypatch):
    half = tmp_path / "half"
    for version in ("2", "10", "draft"):
        (half / version).mkdir(parents=True)
        (half / version / "saved_model.pb").touch()
    assert find(half) == ("half", 10, half / "10"), "the highest, as a number"
    assert find(f"{half}/") == ("half", 10, half / "10")
    assert find(half / "2") == ("half", 2, half / "2")
    assert find(half / "draft") == ("draft", 1, half / "draft")
    assert find(f"other={half}") == ("other", 10, half / "10")
    assert find(f"other={half / '2'}") == ("other", 2, half / "2")
    odd = shutil.copytree(half / "2", tmp_path / "a=b" / "3")
    assert find(odd) == ("a=b", 3, odd)
    assert find(f"c={odd}") == ("c", 3, odd)
    monkeypatch.chdir(half / "2")
    assert find(".")[:2] == ("half", 2)
    with pytest.raises(ServerError, match="names of models must differ: .*half.*half"):
        load_all([half, half / "2"])


def test_what_is_batched(home):
    def batched(inputs, outputs):
        specs = [
            {str(n): tf.TensorSpec(s) for n, s in enumerate(side)} for side in (inputs, outputs)
        ]
        return Signature(*specs, None).is_batched

    assert batched([(None, None)], [(None, 3)])
    assert batched([(None,), (None, 2)], [(None,), (None, 2, 2)])
    assert not batched([(None,)], [(None, None)])
    assert not batched([(None,)], [()])
    assert not batched([(None,), ()], [(None,)])
    assert not batched([(2,)], [(None,)])
    assert not batched([None], [(None,)])
    assert not batched([(None,)], [None])
    assert not batched([], [(None,)])
    [translator] = load_all([home / "en_es"])
    assert translator.signatures["serving_default"].is_batched
    assert not translator.signatures["attention"].is_batched, "its width depends on the longest"


@pytest.mark.parametrize("broken", ["saved_model.pb", "variables/variables.data-00000-of-00001"])
def test_a_damaged_model_is_named(home, tmp_path, broken):
    folder = shutil.copytree(home / "half_plus_three" / "123", tmp_path / "half" / "1")
    data = (folder / broken).read_bytes()
    (folder / broken).write_bytes(data[: len(data) // 2])
    with pytest.raises(ServerError, match=f"{folder} cannot be loaded"):
        load(*find(folder))


def test_folders_that_are_refused(home, tmp_path):
    with pytest.raises(ServerError, match="There is no folder .*nowhere"):
        load_all([tmp_path / "nowhere"])
    with pytest.raises(ServerError, match="contains no SavedModel.* zoo export"):
        load_all([tmp_path])
    with pytest.raises(ServerError, match="in a URL"):
        load_all([f"a:b={home / 'toy'}"])
    tf.saved_model.save(tf.Module(), str(tmp_path / "empty" / "1"))
    with pytest.raises(ServerError, match="no signatures"):
        load_all([tmp_path / "empty"])


# --- operations of TensorFlow Text ---------------------------------------------------------------


def test_a_model_that_reads_texts(home, tmp_path, monkeypatch):
    """The package is imported for it; if it is missing, the error says so."""
    folder = shutil.copytree(home / "en_es" / "1", tmp_path / "texts" / "1")
    graph = (folder / "saved_model.pb").read_bytes()
    (folder / "saved_model.pb").write_bytes(graph.replace(b"StringUpper", b"StringOther"))
    monkeypatch.setitem(sys.modules, "tensorflow_text", None)  # as if it were not installed
    with pytest.raises(UserError, match=r"tensorflow-text is not installed. Run `pip install"):
        load(*find(folder))


# --- warm-up -------------------------------------------------------------------------------------


def test_a_model_is_called_with_the_requests_of_its_export(home, tmp_path, monkeypatch):
    folder = shutil.copytree(home / "half_plus_three" / "123", tmp_path / "half" / "1")
    requests = [{"x": np.array(rows, "float32")} for rows in ([1], [2, 3])]
    toys.write_warm_up_requests(folder, *requests)
    calls = []

    def call(model, name, inputs):
        calls.append((name, inputs["x"].tolist()))

    monkeypatch.setattr("zoo.server.models.Model.call", call)
    load(*find(folder))
    assert calls == [("serving_default", [1]), ("serving_default", [2, 3])]
    monkeypatch.undo()
    toys.write_warm_up_requests(folder, {"x": np.array(["a"])})
    with pytest.raises(ServerError, match="cannot be answered.* The model raised an error"):
        load(*find(folder))
    [path] = folder.glob("assets.extra/*")
    path.write_bytes(b"damaged" * 9)
    with pytest.raises(ServerError, match="cannot be answered. Export the model again"):
        load(*find(folder))
