"""Reads PyTorch files without PyTorch, and without executing code from them.

A pickle is a program that can call any function. Here it can only rebuild tensors; all other
classes and functions are replaced by objects that do nothing. Since PyTorch 1.6, files are zip
archives; before, they were a sequence of pickles.
"""

import functools
import pickle
import re
import zipfile
from typing import NamedTuple

import ml_dtypes
import numpy as np

from zoo.checkpoints.tensors import AVERAGED, Tensors
from zoo.files import check_archive

_MAGIC = 0x1950A86A20F9469CFC6C  # of files from before 1.6
_DTYPES = {
    "FloatStorage": np.float32, "HalfStorage": np.float16, "DoubleStorage": np.float64,
    "BFloat16Storage": ml_dtypes.bfloat16, "ComplexFloatStorage": np.complex64,
    "LongStorage": np.int64, "IntStorage": np.int32, "ShortStorage": np.int16,
    "CharStorage": np.int8, "ByteStorage": np.uint8, "BoolStorage": np.bool_,
}  # fmt: skip
# Stands between the names of modules and parameters if a whole model was pickled or scripted.
_ATTRIBUTES = re.compile(r"(^|/)__dict__/(?:_(?:modules|parameters|buffers)/)?")


class _Tensor(NamedTuple):
    """A tensor in a pickle; its storage is (key, dtype)."""

    storage: tuple
    offset: int
    shape: tuple
    strides: tuple

    def read(self, data):
        """Returns the array; `data` is a function from the key of a storage to its bytes."""
        key, dtype = self.storage
        if 0 in self.shape:
            return np.zeros(self.shape, dtype)
        if self.offset < 0 or min(self.strides, default=0) < 0:
            raise ValueError("a tensor begins before its storage")
        size = np.dtype(dtype).itemsize
        last = sum((n - 1) * stride for n, stride in zip(self.shape, self.strides))
        flat = np.frombuffer(data(key), dtype, last + 1, self.offset * size)
        strides = [stride * size for stride in self.strides]
        return np.lib.stride_tricks.as_strided(flat, self.shape, strides, writeable=False)


def read(path):
    """Reads the `Tensors` of a PyTorch file.

    A tensor in a nested dict, or in an attribute of an object, has a name such as
    "model/head.weight". A damaged file raises errors of many types.
    """
    if zipfile.is_zipfile(path):
        content, data = _from_zip(path)
    else:
        content, data = _from_pickles(path)
    tensors = _flat(content) if isinstance(content, dict) else {}
    if not tensors:
        raise ValueError("it contains no tensors by name")
    with_tensors = {re.split("[./]", name)[0] for name in tensors}
    for key, value in content.items():
        is_empty = isinstance(value, (dict, list)) and key not in with_tensors
        if is_empty and AVERAGED.search(key):
            print(f"{path}: {key} contains no tensors by name, and is not used.")
    entries = {name: (x.shape, functools.partial(x.read, data)) for name, x in tensors.items()}
    return Tensors(path, entries)


def _from_zip(path):
    """Returns the pickled object, and a function from the key of a storage to its bytes."""
    archive = zipfile.ZipFile(path)
    check_archive(path, archive)
    [main] = [name for name in archive.namelist() if name.endswith("data.pkl")]
    folder = main.removesuffix("data.pkl")
    if archive.getinfo(main).compress_type != zipfile.ZIP_STORED:
        raise ValueError("its pickle is compressed, which might expand to any size")
    with archive.open(main) as file:
        content = _Unpickler(file).load()
    return content, lambda key: archive.read(f"{folder}data/{key}")


def _from_pickles(path):
    """Like `_from_zip`, for files of earlier versions than 1.6."""
    with open(path, "rb") as file:
        if _Unpickler(file).load() != _MAGIC:
            raise ValueError("it does not begin like a PyTorch file")
        for _ in range(2):  # version, machine
            _Unpickler(file).load()
        unpickler = _Unpickler(file)
        content = unpickler.load()
        keys = _Unpickler(file).load()
        position = file.tell()
    data = np.memmap(path, np.uint8, "r")
    storages = {}
    for key in keys:  # of each storage the number of values, and the values
        count = int.from_bytes(data[position : position + 8], "little")
        position += 8
        size = count * np.dtype(unpickler.dtypes[key]).itemsize
        storages[key] = data[position : position + size]
        position += size
    if position > len(data):
        raise ValueError("it is truncated")
    return content, storages.__getitem__


def _flat(content):
    """Flattens nested dicts to {"model/head.weight": tensor}."""
    found = {}
    seen = set()
    left = [("", content)]
    while left:
        name, value = left.pop()
        if isinstance(value, _Tensor):
            found[_ATTRIBUTES.sub(lambda match: "." * len(match[1]), name)] = value
        elif isinstance(value, dict) and id(value) not in seen and len(name) < 1000:
            seen.add(id(value))
            for key in reversed(value):
                left.append((f"{name}/{key}" if name else key, value[key]))
    return found


class _StandIn(dict):
    """Stands for any class, function or object that a pickle names; a call returns another one.

    Nothing is imported or executed. Only entries and attributes are kept, for the tensors in them.
    """

    __slots__ = ()

    def __new__(cls, *_, **__):  # also called with an object in place of a class
        return super().__new__(_StandIn)

    def __init__(self, *_, **__):
        pass

    append = extend = add = __init__

    def __call__(self, *_, **__):
        return _StandIn()

    def __setstate__(self, state):
        self["__dict__"] = state

    def __setitem__(self, key, value):
        if isinstance(key, str):  # hashing others, such as deeply nested tuples, may take forever
            super().__setitem__(key, value)


class _Unpickler(pickle._Unpickler):  # the one in C allocates as much memory as a pickle requests
    def __init__(self, file):
        super().__init__(file, encoding="latin1")
        self.dtypes = {}  # of each storage

    def load_empty(self):
        self.append(_StandIn())

    def load_filled(self):
        self.pop_mark()
        self.append(_StandIn())

    dispatch = {
        **pickle._Unpickler.dispatch,
        pickle.EMPTY_DICT[0]: load_empty,
        pickle.EMPTY_SET[0]: load_empty,
        pickle.DICT[0]: load_filled,
        pickle.FROZENSET[0]: load_filled,
    }

    def find_class(self, module, name):
        known = {
            # Functions are created anew, as a pickle can set attributes of them.
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
            raise ValueError(f"it has tensors of an unsupported type, {module}.{name}")
        return _StandIn()

    def persistent_load(self, saved):
        object_type, name, key = saved[:3]
        if object_type == "module":  # a class, in a whole model from before 1.6
            return name
        if name not in _DTYPES:
            raise ValueError(f"it has tensors of an unsupported type, {name}")
        self.dtypes[key] = _DTYPES[name]
        return key, _DTYPES[name]
