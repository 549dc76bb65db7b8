"""Reads files of tensors: safetensors, PyTorch files and NumPy archives."""

import functools
import math
import pathlib

import ml_dtypes
import numpy as np

from zoo.checkpoints import torch_file
from zoo.checkpoints.hugging_face_config import read_json
from zoo.checkpoints.other_programs import advice, disguised
from zoo.checkpoints.tensors import Tensors
from zoo.errors import CheckpointError, UserError, needed
from zoo.files import check_archive, check_unpacked

SUFFIXES = (".safetensors", ".npz", ".bin", ".pth", ".pt", ".ckpt", ".tar")  # timm: .pth.tar
# In order of preference, as in transformers.
WEIGHTS = (
    "model.safetensors", "model.safetensors.index.json",
    "pytorch_model.bin", "pytorch_model.bin.index.json",
)  # fmt: skip


def read_folder(folder):
    """Reads the `Tensors` of a folder of Hugging Face, from one or several files."""
    found = [folder / name for name in WEIGHTS if (folder / name).is_file()]
    if found:
        path, *others = found
        for other in others:
            print(f"{folder}: loads {path.name}. Not used: {other.name}.")
        return _sharded(path) if path.suffix == ".json" else read_file(path)
    known = advice(sorted(file.name for file in folder.iterdir()))
    raise CheckpointError(f"{folder} contains no weights: none of {', '.join(WEIGHTS)}.{known}")


def read_file(path):
    """Reads the `Tensors` of a file, whose format is given by its suffix."""
    if path.suffix not in SUFFIXES:
        suffixes = ", ".join(SUFFIXES)
        raise CheckpointError(
            f"{path} is not a file of weights: these end in {suffixes}. For a run, pass the folder."
            f"{advice([path.name])}"
        )
    try:
        if path.suffix == ".npz":
            tensors = Tensors(path, npz_entries(path))
        elif path.suffix == ".safetensors":
            tensors = _safetensors(path)
        else:
            tensors = torch_file.read(path)
        check_unpacked(path, sum(map(math.prod, tensors.shapes.values())))  # views may be larger
        return tensors
    except UserError:
        raise
    except Exception as error:  # each library, and a damaged pickle, raises its own
        reason = disguised(path) or str(error) or type(error).__name__
        raise CheckpointError(
            f"{path} cannot be read: it is damaged, or has the wrong suffix ({reason})."
        ) from None


def _sharded(index):
    entries = {}
    for name in sorted({*read_json(index)["weight_map"].values()}):
        path = index.parent / name
        if pathlib.Path(name).name != name or not path.is_file():
            raise CheckpointError(f"{index} names the file {name!r}, which is not in its folder.")
        entries |= read_file(path).entries
    return Tensors(index, entries)


def _safetensors(path):
    safetensors = needed("safetensors")

    def read(name):  # opens the file again, as an open file keeps in memory what was read
        with safetensors.safe_open(path, "np") as file:
            return file.get_tensor(name)

    with safetensors.safe_open(path, "np") as file:
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
        shapes = {name: part.get_shape() for name, part in slices.items()}
        if any(part.get_dtype().startswith("F8") for part in slices.values()):
            raise CheckpointError(f"{path}: floats of 8 bits are not supported.")
    entries = {name: (shape, functools.partial(read, name)) for name, shape in shapes.items()}
    return Tensors(path, entries)


def npz_entries(path):
    """The entries of a NumPy archive, see `Tensors`."""
    with np.load(path, allow_pickle=False) as archive:
        check_archive(path, archive.zip)
        arrays = dict(archive)
    for name, array in arrays.items():
        if array.dtype == "V2":  # NumPy stores bfloat16 as two bytes without a dtype
            arrays[name] = array.view(ml_dtypes.bfloat16)
    return {name: (x.shape, functools.partial(arrays.get, name)) for name, x in arrays.items()}
