"""PyTorch's files of tensors, read without PyTorch and without executing what a pickle may hold.

A pickle is a program that may call any function. Here it may only rebuild tensors: all other names
give objects that do nothing. Files since PyTorch 1.6 are zip archives; before, several pickles
follow one another.
"""

import pickle
import re
import zipfile
from typing import NamedTuple

import ml_dtypes
import numpy as np

from zoo.checkpoints.errors import CheckpointError
from zoo.checkpoints.tensors import AVERAGED, Tensors

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
    "ComplexFloatStorage": np.complex64,
}
# Between the names of parts of a model that was written as a whole.
_ATTRIBUTES = re.compile(r"(^|/)__dict__/_(?:modules|parameters|buffers)/")


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

    Those of a dict in a dict, or of an attribute of an object, are named "model/head.weight".

    Raises:
        CheckpointError: if it is damaged, not such a file, or has tensors of another kind.
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
    if archive.getinfo(main).compress_type != zipfile.ZIP_STORED:
        raise ValueError("its pickle is compressed, and might expand to any size")
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
    tensors = _flat(content) if isinstance(content, dict) else {}
    if not tensors:
        raise ValueError("it holds no tensors by name")
    with_tensors = {name.split("/")[0] for name in tensors}
    for key, value in content.items():
        is_empty = isinstance(value, (dict, list)) and key not in with_tensors
        if is_empty and AVERAGED.search(key):
            print(f"{path}: {key} holds no tensors by name, and is not used.")
    return Tensors(path, {name: (tensor.shape, reader(tensor)) for name, tensor in tensors.items()})


def _flat(content):
    """The tensors in nested dicts, by names as "model/head.weight"; of a dict twice, its first."""
    found, seen, left = {}, set(), [("", content)]
    while left:
        name, value = left.pop()
        if isinstance(value, _Tensor):
            found[_ATTRIBUTES.sub(lambda match: "." * len(match[1]), name)] = value
        elif isinstance(value, dict) and id(value) not in seen and len(name) < 1000:
            seen.add(id(value))
            left += [(f"{name}/{key}" if name else key, value[key]) for key in reversed(value)]
    return found


class _StandIn(dict):
    """Stands for any class, function or object that a pickle names: called, it gives another one.

    Nothing is imported or computed. Only entries and attributes are kept, for the tensors in them.
    """

    __slots__ = ()

    def __new__(cls, *_, **__):  # of an object in place of a class too
        return super().__new__(_StandIn)

    def __init__(self, *_, **__):
        pass

    append = extend = add = __init__

    def __call__(self, *_, **__):
        return _StandIn()

    def __setstate__(self, state):
        self["__dict__"] = state

    def __setitem__(self, key, value):
        if isinstance(key, str):  # the hash of others, such as tuples in tuples, may take forever
            super().__setitem__(key, value)


class _Unpickler(pickle._Unpickler):  # that in C reserves as much memory as a pickle asks for
    def __init__(self, file):
        super().__init__(file, encoding="latin1")
        self.dtypes = {}  # of each storage

    def load_filled(self):
        self.pop_mark()
        self.append(_StandIn())

    empty, filled = pickle.EMPTY_DICT + pickle.EMPTY_SET, pickle.DICT + pickle.FROZENSET
    dispatch = pickle._Unpickler.dispatch | dict.fromkeys(filled, load_filled)
    dispatch |= dict.fromkeys(empty, lambda self: self.append(_StandIn()))

    def find_class(self, module, name):
        known = {
            # A new function each time: a pickle may set attributes of what it gets here.
            ("torch._utils", "_rebuild_tensor"): lambda *args: _Tensor(*args),
            ("torch._utils", "_rebuild_tensor_v2"): lambda *args: _Tensor(*args[:4]),
            ("torch._utils", "_rebuild_parameter"): lambda tensor, *_: tensor,
            ("torch._utils", "_rebuild_parameter_with_state"): lambda tensor, *_: tensor,
            ("torch._tensor", "_rebuild_from_type_v2"): lambda make, _, args, *__: make(*args),
        }
        if (module, name) in known:
            return known[module, name]
        if module in ("torch", "torch.storage") and name in _DTYPES:
            return name
        if module == "torch._utils" and name.startswith("_rebuild"):
            raise CheckpointError(f"holds tensors of a kind that is not read: {module}.{name}.")
        return _StandIn()

    def persistent_load(self, saved):
        object_type, name, key = saved[:3]
        if object_type == "module":  # of a whole model, before 1.6
            return name
        if name not in _DTYPES:
            raise CheckpointError("holds numbers of a kind that is not read.")
        dtype = self.dtypes[key] = _DTYPES[name]
        return key, dtype
