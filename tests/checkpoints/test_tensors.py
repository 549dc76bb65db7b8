"""Tensors are read from every kind of file; damaged and hostile files are refused."""

import collections
import io
import json
import os
import pathlib
import pickle
import sys
import types
import zipfile

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.checkpoints import drawn
from zoo.checkpoints import CheckpointError, torch_file
from zoo.checkpoints.tensor_files import read_file, read_folder

GOLDENS = pathlib.Path(__file__).parent / "goldens"
RANDOM = np.random.default_rng(0)
ARRAYS = {
    "a": RANDOM.normal(size=(3, 4)).astype("float32"),
    "b": RANDOM.normal(size=(5,)).astype("float16"),
    "c": RANDOM.normal(size=(2, 2)).astype(ml_dtypes.bfloat16),
    "d": np.array(7, "int64"),
    "e": np.zeros((0, 3), "float32"),
}
STORAGES = {
    "float32": "FloatStorage",
    "float16": "HalfStorage",
    "bfloat16": "BFloat16Storage",
    "int64": "LongStorage",
}


class _Tensor:
    """Is pickled as PyTorch pickles a tensor."""

    def __init__(self, key, array):
        self.key, self.array = key, array

    def __reduce__(self):
        strides = [stride // self.array.itemsize for stride in self.array.strides]
        storage = _Storage(self.key, self.array)
        arguments = (storage, 0, self.array.shape, tuple(strides), False, {})
        return sys.modules["torch._utils"]._rebuild_tensor_v2, arguments


class _Storage(types.SimpleNamespace):
    def __init__(self, key, array):
        super().__init__(key=key, array=array)


class _Pickler(pickle.Pickler):
    def persistent_id(self, found):
        if isinstance(found, _Storage):
            kind = getattr(sys.modules["torch"], STORAGES[found.array.dtype.name])
            return ("storage", kind, found.key, "cpu", found.array.size)
        return None


@pytest.fixture
def torch_names(monkeypatch):
    """Modules with the names that PyTorch's pickles refer to."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    for name in STORAGES.values():
        setattr(torch, name, type(name, (), {"__module__": "torch"}))

    def _rebuild_tensor_v2():
        raise AssertionError("only its name is used")

    _rebuild_tensor_v2.__module__ = "torch._utils"
    _rebuild_tensor_v2.__qualname__ = "_rebuild_tensor_v2"
    utils._rebuild_tensor_v2 = _rebuild_tensor_v2
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch._utils", utils)


def pickled(found):
    file = io.BytesIO()
    _Pickler(file, 2).dump(found)
    return file.getvalue()


def write_zip(path, found, arrays):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickled(found))
        archive.writestr("archive/byteorder", "little")
        for key, array in arrays.items():
            archive.writestr(f"archive/data/{key}", array.tobytes())


def write_pickles(path, found, arrays):
    """The format before PyTorch 1.6."""
    parts = [0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}]
    data = b"".join(pickle.dumps(part, 2) for part in parts) + pickled(found)
    data += pickle.dumps([*arrays], 2)
    for array in arrays.values():
        data += array.size.to_bytes(8, "little") + array.tobytes()
    path.write_bytes(data)


def state_dict():
    return collections.OrderedDict((key, _Tensor(key, array)) for key, array in ARRAYS.items())


def assert_equal(found):
    assert set(found) == set(ARRAYS)
    for name, array in ARRAYS.items():
        assert found.shapes[name] == array.shape
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize("write", [write_zip, write_pickles])
@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: {"model": x, "epoch": 3}])
def test_files_of_pytorch(tmp_path, torch_names, write, wrap):
    write(tmp_path / "model.bin", wrap(state_dict()), ARRAYS)
    assert_equal(read_file(tmp_path / "model.bin"))


@pytest.mark.parametrize("name", ["torch_new.pth", "torch_old.pth"])
def test_files_that_pytorch_wrote(name):
    """Recorded by tests/parity/record_torch.py."""
    found, expected = read_file(GOLDENS / name), drawn.tensors(drawn.TORCH_SHAPES)
    expected["half"] = expected["half"].astype("float16")
    expected["bfloat16"] = expected["bfloat16"].astype(ml_dtypes.bfloat16)
    expected["whole"] = (100 * expected["whole"]).astype("int64")
    expected["view"] = expected["transposed"].T
    assert set(found) == set(expected)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


def test_safetensors_and_archives(tmp_path):
    save_file(ARRAYS, tmp_path / "model.safetensors")
    assert_equal(read_file(tmp_path / "model.safetensors"))
    np.savez(tmp_path / "model.npz", **ARRAYS)
    assert_equal(read_file(tmp_path / "model.npz"))


@pytest.mark.parametrize("suffix", ["safetensors", "bin"])
def test_several_files(tmp_path, torch_names, suffix):
    parts = {"1": ["a", "b"], "2": ["c", "d", "e"]}
    for part, names in parts.items():
        arrays, path = {name: ARRAYS[name] for name in names}, tmp_path / f"{part}.{suffix}"
        if suffix == "safetensors":
            save_file(arrays, path)
        else:
            write_zip(path, {n: _Tensor(n, array) for n, array in arrays.items()}, arrays)
    main = "model.safetensors" if suffix == "safetensors" else "pytorch_model.bin"
    places = {name: f"{part}.{suffix}" for part, names in parts.items() for name in names}
    index = tmp_path / f"{main}.index.json"
    index.write_text(json.dumps({"weight_map": places}))
    assert_equal(read_folder(tmp_path))
    (tmp_path / f"2.{suffix}").unlink()
    with pytest.raises(CheckpointError, match=f"names the file '2.{suffix}', which is not in"):
        read_folder(tmp_path)
    index.write_text(json.dumps({"weight_map": {"a": "../x.bin"}}))
    with pytest.raises(CheckpointError, match="not in its folder"):
        read_folder(tmp_path)


class _Hostile:
    def __reduce__(self):
        return os.system, ("touch hostile",)


@pytest.mark.parametrize("write", [write_zip, write_pickles])
def test_a_pickle_is_not_executed(tmp_path, torch_names, monkeypatch, write):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "model.bin", {**state_dict(), "x": _Hostile()}, ARRAYS)
    with pytest.raises(CheckpointError, match=r"holds a pickle that would call \w+\.system"):
        read_file(tmp_path / "model.bin")
    assert not (tmp_path / "hostile").exists()


def test_a_pickle_changes_nothing_for_other_files(tmp_path, torch_names):
    """It may set attributes of what it is given by name: protocol 2's BUILD."""
    change = b"\x80\x02ctorch._utils\n_rebuild_tensor\nN}X\x06\x00\x00\x00offsetK\x00s\x86b."
    with zipfile.ZipFile(tmp_path / "hostile.bin", "w") as archive:
        archive.writestr("archive/data.pkl", change)
    with pytest.raises(CheckpointError, match="holds no tensors by name"):
        read_file(tmp_path / "hostile.bin")
    write_zip(tmp_path / "model.bin", state_dict(), ARRAYS)
    assert_equal(read_file(tmp_path / "model.bin"))
    assert torch_file._Tensor(("a", np.float32), 5, (1,), (1,)).offset == 5


@pytest.mark.parametrize("write", [write_zip, write_pickles])
def test_other_tensors_beside_the_named_ones(tmp_path, torch_names, write):
    """As in a checkpoint of training, which also has the state of the optimizer."""
    moment = np.arange(5, dtype="float16")
    found = {"optimizer": {"state": {0: _Tensor("moment", moment)}}, "state_dict": state_dict()}
    write(tmp_path / "model.bin", found, {**ARRAYS, "moment": moment})
    assert_equal(read_file(tmp_path / "model.bin"))


def test_two_tensors_of_one_name(tmp_path):
    save_file({"vit.a": np.ones(1), "a": np.zeros(1)}, tmp_path / "a.safetensors")
    with pytest.raises(CheckpointError, match="a and vit.a are the same tensor"):
        read_file(tmp_path / "a.safetensors").without_prefix("vit.")


@pytest.mark.parametrize("name", ["a.safetensors", "a.npz", "a.bin", "old.bin"])
def test_damaged_files_are_named(tmp_path, torch_names, name):
    path = tmp_path / name
    if name == "a.safetensors":
        save_file(ARRAYS, path)
    elif name == "a.npz":
        np.savez(path, **ARRAYS)
    else:
        (write_zip if name == "a.bin" else write_pickles)(path, state_dict(), ARRAYS)
    data = path.read_bytes()
    for part in (b"", b"not a file of tensors", data[: len(data) // 2], data[:-3]):
        path.write_bytes(part)
        with pytest.raises(CheckpointError, match=name):
            tensors = read_file(path)
            for tensor in tensors:
                tensors[tensor]


def test_a_file_of_another_kind(tmp_path):
    (tmp_path / "model.h5").write_bytes(b"")
    with pytest.raises(CheckpointError, match="model.h5 is not a file of weights: these end"):
        read_file(tmp_path / "model.h5")


def test_a_folder_without_weights(tmp_path):
    with pytest.raises(CheckpointError, match="contains no weights: none of model.safetensors.ind"):
        read_folder(tmp_path)
