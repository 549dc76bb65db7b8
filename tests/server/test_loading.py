"""Which folders are served, under which names, and which are refused."""

import pytest
import tensorflow as tf

from tests.server import toys
from zoo.server.errors import ServerError
from zoo.server.loading import find, load, load_all
from zoo.server.models import Signature


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("serving")
    for version in ("2", "10", "draft"):
        toys.save(toys.HalfPlusThree(), home / "half" / version)
    toys.save(toys.Translator(), home / "en_es" / "1")
    return home


def test_names_and_versions(home, monkeypatch):
    half = home / "half"
    assert find(half) == ("half", 10, half / "10"), "the highest, as a number"
    assert find(f"{half}/") == ("half", 10, half / "10")
    assert find(half / "2") == ("half", 2, half / "2")
    assert find(half / "draft") == ("draft", 1, half / "draft")
    assert find(f"other={half}") == ("other", 10, half / "10")
    assert find(f"other={half / '2'}") == ("other", 2, half / "2")
    monkeypatch.chdir(half / "2")
    assert find(".")[:2] == ("half", 2)


def test_a_folder_may_have_an_equals_sign(home):
    odd = toys.save(toys.HalfPlusThree(), home / "a=b" / "3")
    assert find(odd) == ("a=b", 3, odd)
    assert find(f"c={odd}") == ("c", 3, odd)


def test_kinds_and_signatures(home):
    half, translator = load_all([home / "half", home / "en_es"])
    assert (half.kind, translator.kind) == ("model", "translator")
    assert half.signatures["serving_default"].is_batched
    assert translator.signatures["serving_default"].is_batched
    assert not translator.signatures["attention"].is_batched, "its width depends on the longest"


def test_what_is_batched():
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


@pytest.mark.parametrize("broken", ["saved_model.pb", "variables/variables.data-00000-of-00001"])
def test_a_damaged_model_is_named(tmp_path, broken):
    folder = toys.save(toys.HalfPlusThree(), tmp_path / "half" / "1")
    data = (folder / broken).read_bytes()
    (folder / broken).write_bytes(data[: len(data) // 2])
    with pytest.raises(ServerError, match=f"{folder} cannot be loaded"):
        load(*find(folder))


def test_a_model_without_signatures(tmp_path):
    tf.saved_model.save(tf.Module(), str(tmp_path / "empty" / "1"))
    with pytest.raises(ServerError, match="no signatures"):
        load(*find(tmp_path / "empty"))


def test_folders_that_are_refused(home, tmp_path):
    with pytest.raises(ServerError, match="Name at least one folder"):
        load_all([])
    with pytest.raises(ServerError, match="There is no folder .*nowhere"):
        load_all([tmp_path / "nowhere"])
    with pytest.raises(ServerError, match="contains no SavedModel"):
        load_all([tmp_path])
    with pytest.raises(ServerError, match="Two models are named half: .*10 and .*2"):
        load_all([home / "half", home / "half" / "2"])
    with pytest.raises(ServerError, match="in a URL"):
        load_all([f"a:b={home / 'half'}"])
    (tmp_path / "export.json").write_text('{"format": "onnx"}')
    with pytest.raises(ServerError, match="format onnx"):
        load_all([tmp_path])


def test_a_folder_that_may_not_be_read(monkeypatch):
    def refused(given):
        raise PermissionError(13, "Permission denied", given)

    monkeypatch.setattr("zoo.server.loading.find", refused)
    with pytest.raises(ServerError, match="cannot be read: .*Permission denied: 'models/a'"):
        load_all(["models/a"])
