"""PyTorch's files of tensors, read without PyTorch and without executing what a pickle may hold.

A pickle is a program that may call any function. Here it may only rebuild tensors: all other names
are refused. Files since PyTorch 1.6 are zip archives; before, several pickles follow one another.
"""

import pickle
import zipfile
from collections import OrderedDict
from typing import NamedTuple

import ml_dtypes
import numpy as np

from zoo.checkpoints.errors import CheckpointError
from zoo.checkpoints.tensors import Tensors

_MAGIC = 0x1950A86A20F9469CFC6C  # of files before 1.6
_DTYPES = {
    "FloatStorage": np.float32,
    "HalfStorage": np.float16,
    "BFloat16Storage": ml_dtypes.bfloat16,
    "DoubleStorage": np.float64,
    "LongStorage": np.int64,
    "IntStorage": np.int32,
    "ShortStorage": np.int16,
    "CharStorage": np.int8,
    "ByteStorage": np.uint8,
    "BoolStorage": np.bool_,
}


class _Tensor(NamedTuple):
    """A tensor of a pickle: its storage is (key, dtype)."""

    storage: tuple
    offset: int
    shape: tuple
    strides: tuple

    def read(self, data):
        """The array, given the bytes of its storage."""
        _, dtype = self.storage
        size = np.dtype(dtype).itemsize
        last = sum((n - 1) * stride for n, stride in zip(self.shape, self.strides))
        if 0 in self.shape:
            return np.zeros(self.shape, dtype)
        if self.offset < 0 or min(self.strides, default=0) < 0:
            raise ValueError("a tensor before the beginning of its storage")
        flat = np.frombuffer(data, dtype, last + 1, self.offset * size)
        strides = [stride * size for stride in self.strides]
        return np.lib.stride_tricks.as_strided(flat, self.shape, strides, writeable=False)


def read(path):
    """The tensors of a PyTorch file: `zoo.checkpoints.tensors.Tensors`.

    Raises:
        CheckpointError: if it is damaged, not such a file, or names anything but tensors.
    """
    try:
        return _from_zip(path) if zipfile.is_zipfile(path) else _from_pickles(path)
    except CheckpointError as error:
        raise CheckpointError(f"{path} {error}") from None
    except Exception as error:  # a damaged pickle raises anything
        reason = str(error) or type(error).__name__
        raise CheckpointError(f"{path} is damaged or not a file of PyTorch: {reason}.") from None


def _from_zip(path):
    archive = zipfile.ZipFile(path)
    [main] = [name for name in archive.namelist() if name.endswith("data.pkl")]
    folder = main.removesuffix("data.pkl")
    with archive.open(main) as file:
        content = _Unpickler(file).load()

    def reader(tensor):
        return lambda: tensor.read(archive.read(f"{folder}data/{tensor.storage[0]}"))

    return _tensors(path, content, reader)


def _from_pickles(path):
    with open(path, "rb") as file:
        if _Unpickler(file).load() != _MAGIC:
            raise ValueError("it does not begin as they do")
        for _ in range(2):  # version, machine
            _Unpickler(file).load()
        unpickler = _Unpickler(file)
        content, keys = unpickler.load(), _Unpickler(file).load()
        sizes = {key: np.dtype(dtype).itemsize for key, dtype in unpickler.dtypes.items()}
        places, position = {}, file.tell()
        for key in keys:
            file.seek(position)
            count = int.from_bytes(file.read(8), "little")
            places[key] = (position + 8, count * sizes[key])
            position += 8 + count * sizes[key]
        if position > file.seek(0, 2):
            raise ValueError("it ends before its last tensor")

    def reader(tensor):
        def read():
            start, size = places[tensor.storage[0]]
            with open(path, "rb") as file:
                file.seek(start)
                return tensor.read(file.read(size))

        return read

    return _tensors(path, content, reader)


def _tensors(path, content, reader):
    tensors = _flat(content)
    if not tensors:
        raise ValueError("it holds no tensors by name")
    return Tensors(path, {name: (tensor.shape, reader(tensor)) for name, tensor in tensors.items()})


def _flat(content):
    """The tensors by name of a dict, or of the first of these dicts in it."""
    for key in ("state_dict", "model", "teacher"):
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    items = content.items() if isinstance(content, dict) else ()
    return {name: tensor for name, tensor in items if isinstance(tensor, _Tensor)}


class _Unpickler(pickle.Unpickler):
    def __init__(self, file):
        super().__init__(file, encoding="latin1")
        self.dtypes = {}  # of each storage

    def find_class(self, module, name):
        known = {
            ("collections", "OrderedDict"): OrderedDict,
            # A new function each time: a pickle may set attributes of what it gets here.
            ("torch._utils", "_rebuild_tensor"): lambda *args: _Tensor(*args),
            ("torch._utils", "_rebuild_tensor_v2"): lambda *args: _Tensor(*args[:4]),
            ("torch._utils", "_rebuild_parameter"): lambda tensor, *_: tensor,
            ("torch.serialization", "_get_layout"): str,
        }
        if (module, name) in known:
            return known[module, name]
        if module in ("torch", "torch.storage") and name in _DTYPES:
            return name
        raise CheckpointError(
            f"holds a pickle that would call {module}.{name}, and not only tensors. It is not read."
        )

    def persistent_load(self, saved):
        object_type, name, key = saved[:3]
        if object_type != "storage":
            raise ValueError(f"it refers to a {object_type}")
        dtype = self.dtypes[key] = _DTYPES[name]
        return key, dtype
