"""Tensors are read from every kind of file; damaged and hostile files are refused."""

import json
import os
import pathlib
import pickle
import shutil
import zipfile

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.checkpoints import drawn
from zoo.checkpoints import CheckpointError
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


def arrays_of_pytorch():
    """Those of the files that tests/parity/record_torch.py recorded."""
    arrays = drawn.tensors(drawn.TORCH_SHAPES)
    arrays["half"] = arrays["half"].astype("float16")
    arrays["bfloat16"] = arrays["bfloat16"].astype(ml_dtypes.bfloat16)
    arrays["whole"] = (100 * arrays["whole"]).astype("int64")
    return {**arrays, "view": arrays["transposed"].T}


def assert_equal(found, expected=ARRAYS):
    assert set(found) == set(expected)
    for name, array in expected.items():
        assert found.shapes[name] == array.shape
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize("name", ["torch_new.pth", "torch_old.pth"])
def test_files_that_pytorch_wrote(name):
    """The new one has other tensors beside the named ones, as a checkpoint of training."""
    assert_equal(read_file(GOLDENS / name).unwrapped("half"), arrays_of_pytorch())


def test_safetensors_and_archives(tmp_path):
    save_file(ARRAYS, tmp_path / "model.safetensors")
    assert_equal(read_file(tmp_path / "model.safetensors"))
    np.savez(tmp_path / "model.npz", **ARRAYS)
    assert_equal(read_file(tmp_path / "model.npz"))


def test_floats_of_8_bits_are_refused(tmp_path):
    """They have scales of their own, which config.json describes."""
    save_file({"a": np.ones(2, ml_dtypes.float8_e4m3fn)}, tmp_path / "a.safetensors")
    with pytest.raises(CheckpointError, match="a.safetensors: floats of 8 bits are not supported"):
        read_file(tmp_path / "a.safetensors")


@pytest.mark.parametrize("main", ["model.safetensors", "pytorch_model.bin"])
def test_several_files(tmp_path, main, capsys):
    shutil.copy(GOLDENS / "torch_old.pth", tmp_path / "1.bin")
    save_file(ARRAYS, tmp_path / "2.safetensors")
    places = dict.fromkeys(arrays_of_pytorch(), "1.bin") | dict.fromkeys(ARRAYS, "2.safetensors")
    index = tmp_path / f"{main}.index.json"
    index.write_text(json.dumps({"weight_map": places}))
    assert_equal(read_folder(tmp_path), {**arrays_of_pytorch(), **ARRAYS})
    shutil.copy(GOLDENS / "torch_old.pth", tmp_path / "pytorch_model.bin")
    read_folder(tmp_path)
    assert "Not used: pytorch_model.bin" in capsys.readouterr().out
    (tmp_path / "pytorch_model.bin").unlink()
    (tmp_path / "1.bin").unlink()
    with pytest.raises(CheckpointError, match="names the file '1.bin', which is not in"):
        read_folder(tmp_path)
    index.write_text(json.dumps({"weight_map": {"a": "../x.bin"}}))
    with pytest.raises(CheckpointError, match="not in its folder"):
        read_folder(tmp_path)


def write_zip(path, pickled):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickled)


def write_pickles(path, pickled):
    """The format before PyTorch 1.6."""
    parts = [0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}]
    path.write_bytes(b"".join(pickle.dumps(part, 2) for part in parts) + pickled)


class Calls:
    """Pickled as a call of any function, and then a state, items and entries."""

    def __init__(self, function, *args, state=None):
        self.calls = function, args, state, iter([1, 2]), iter([("a", 1)])

    def __reduce__(self):
        return self.calls


HOSTILE = {
    "a call": pickle.dumps({"x": Calls(os.system, "touch hostile")}, 2),
    "eval": pickle.dumps({"x": Calls(eval, "open('hostile', 'w')")}, 2),
    "a result is called": pickle.dumps({"x": Calls(os.system, "a", state=(eval, ("1",), {}))}, 2),
    "attributes of a function": b"\x80\x02ctorch._utils\n_rebuild_tensor\nN}X\x06\x00\x00\x00offset"
    b"K\x00s\x86b.",
    "a class as an object": b"\x80\x02cposix\nsystem\n(X\x05\x00\x00\x00touchtR)\x81"
    b"}X\x01\x00\x00\x00aK\x00sb.",
    "the beginning of another pickle's memo": b"\x80\x02]r\xff\xff\xff\xff.",
    "lists in lists": b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b".",
    "dicts in dicts": b"\x80\x02" + b"}X\x01\x00\x00\x00a" * 100_000 + b"N" + b"s" * 100_000 + b".",
    "tuples in a key": b"\x80\x02})" + b"\x85" * 300_000 + b"Ns.",
    "a key of 2**60 parts": b"\x80\x02})" + b"q\x00h\x00\x86" * 60 + b"Ns.",
    "a list of 2**60 lists": b"\x80\x02]" + b"q\x00]h\x00ah\x00a" * 60 + b".",
    "2**40 bytes": b"\x80\x04\x8e" + (2**40).to_bytes(8, "little") + b".",
    "an unknown layout": b"\x80\x02}X\x01\x00\x00\x00actorch.serialization\n_get_layout\n]"
    + b"q\x00]h\x00ah\x00a" * 60
    + b"\x85Rs.",
}


@pytest.mark.parametrize("write", [write_zip, write_pickles])
@pytest.mark.parametrize("kind", HOSTILE)
def test_a_pickle_is_not_executed(tmp_path, monkeypatch, kind, write):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "model.bin", HOSTILE[kind])
    with pytest.raises(CheckpointError, match="model.bin cannot be read: it is damaged"):
        read_file(tmp_path / "model.bin")
    assert not (tmp_path / "hostile").exists()
    assert_equal(read_file(GOLDENS / "torch_old.pth"), arrays_of_pytorch())


def test_two_tensors_of_one_name(tmp_path):
    save_file({"vit.a": np.ones(1), "a": np.zeros(1)}, tmp_path / "a.safetensors")
    with pytest.raises(CheckpointError, match="a and vit.a are the same tensor"):
        read_file(tmp_path / "a.safetensors").renamed(lambda name: name.removeprefix("vit."))


@pytest.mark.parametrize("name", ["a.safetensors", "a.npz", "torch_new.pth", "torch_old.pth"])
def test_damaged_files_are_named(tmp_path, name):
    path = tmp_path / name
    if name == "a.safetensors":
        save_file(ARRAYS, path)
    elif name == "a.npz":
        np.savez(path, **ARRAYS)
    else:
        shutil.copy(GOLDENS / name, path)
    data = path.read_bytes()
    for part in (b"", b"not a file of tensors", data[: len(data) // 2], data[:-3]):
        path.write_bytes(part)
        with pytest.raises(CheckpointError, match=name):
            tensors = read_file(path)
            for tensor in tensors:
                tensors[tensor]


@pytest.mark.parametrize(
    "name, message",
    [
        ("model.h5", "is not a file of weights: these end.*is from Keras: pass the folder"),
        ("bert_model.ckpt.index", "is from TensorFlow: convert it"),
        ("adapter_model.safetensors", "is an adapter of PEFT: save model.merge_and_unload"),
        ("a.safetensors", "has no tensor patch_embed.proj.weight.* a/lora_A.x is an adapter"),
        ("model-00001-of-2.safetensors", "is one of several files: pass the folder"),
        ("lfs.safetensors", "is a pointer of Git LFS"),
        ("page.bin", "is a web page"),
    ],
)
def test_files_of_other_programs(tmp_path, name, message):
    """The message says what they are and what to do."""
    save_file({"a/lora_A.x": np.ones(1, "float32")}, tmp_path / name)
    starts = {"lfs": b"version https://git-lfs.github.com/spec/v1\n", "page": b"<!doctype html>"}
    if name.split(".")[0] in starts:
        (tmp_path / name).write_bytes(starts[name.split(".")[0]])
    with pytest.raises(CheckpointError, match=message):
        read_file(tmp_path / name).unwrapped("patch_embed.proj.weight")
    with pytest.raises(CheckpointError, match="contains no weights: none of model.safetensors, "):
        read_folder(tmp_path)
