"""Files of the program Marian: ``.npz`` archives and the binary container ``.bin``.

Both hold the weights by name, and the settings of training as YAML in ``special:model.yml``.
Source: marian-nmt/marian-dev and browsermt/marian-dev, src/common/binary.cpp (the container), and
src/tensors/cpu/expression_graph_packable.h (matrices in 8 bits).
"""

import functools
import math
import pathlib
import struct

import numpy as np

from zoo.checkpoints.errors import CheckpointError
from zoo.checkpoints.tensors import Tensors
from zoo.errors import needed

SETTINGS = "special:model.yml"
_VERSION = struct.pack("<Q", 1)
_MOST_ITEMS = 100_000
_PLAIN = {
    0x101: "int8",
    0x102: "int16",
    0x104: "int32",
    0x108: "int64",
    0x201: "uint8",
    0x202: "uint16",
    0x204: "uint32",
    0x208: "uint64",
    0x402: "float16",
    0x404: "float32",
    0x408: "float64",
}
_QUANTIZED = {0x4101: "int8", 0x4102: "int16", 0x10001: "int8", 0x10002: "int16"}  # intgemm
# What quantizes the inputs of products with 8 bits. It is about speed, and not used here.
_INPUT_SCALE = "_QuantMultA"


def is_marian(path):
    """Whether a file's content, whatever its name, is one of Marian's."""
    with open(path, "rb") as file:
        if file.read(8) == _VERSION:
            return True
    if not pathlib.Path(path).name.endswith(".npz"):
        return False
    try:
        with np.load(path, allow_pickle=False) as archive:
            return SETTINGS in archive
    except (OSError, ValueError):  # `numpy` refuses to read it, which another reader reports
        return False


def read(path):
    """The tensors of a file, matrices as [in, out], and its settings, a dict.

    Raises:
        CheckpointError: if the file is damaged, or in a format that depends on the processor.
    """
    path = pathlib.Path(path)
    try:
        entries = _npz(path) if path.suffix == ".npz" else _container(path)
        _, settings = entries.pop(SETTINGS)
        settings = bytes(settings().astype(np.uint8)).rstrip(b"\0").decode()
    except CheckpointError:
        raise
    except KeyError:
        raise CheckpointError(f"{path} has no {SETTINGS}: it is no model of Marian.") from None
    except Exception as error:  # whatever NumPy and its archives raise
        raise CheckpointError(f"{path} is damaged: {error}") from None
    return Tensors(path, entries), read_yaml(path, settings)


def read_yaml(path, text):
    """A YAML mapping as a dict of str and lists, with all values as they are written."""
    yaml = needed("yaml", package="pyyaml")
    try:
        content = yaml.load(text, Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader))
    except (yaml.YAMLError, RecursionError) as error:
        raise CheckpointError(f"{path} is not YAML: {error}") from None
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} does not hold a YAML mapping.")
    return content


def _npz(path):
    with np.load(path, allow_pickle=False) as archive:
        arrays = dict(archive)
    return {name: (x.shape, functools.partial(arrays.get, name)) for name, x in arrays.items()}


def _container(path):
    """The entries of a container; its arrays are read when they are asked for."""
    data = np.memmap(path, np.uint8, "r")
    size, position = len(data), 8

    def take(count):
        nonlocal position
        if not 0 <= count <= size - position:
            raise ValueError("it ends too early")
        position += count
        return data[position - count : position].tobytes()

    def integers(count, letter="Q"):
        return struct.unpack(f"<{count}{letter}", take(count * struct.calcsize(letter)))

    [count] = integers(1)
    if count > _MOST_ITEMS:
        raise ValueError(f"it says that it has {count} tensors")
    headers = [integers(4) for _ in range(count)]
    names = [take(length).rstrip(b"\0").decode() for length, *_ in headers]
    shapes = [integers(rank, "i") for _, _, rank, _ in headers]
    [padding] = integers(1)
    take(padding)
    entries = {}
    for name, (_, kind, _, length), shape in zip(names, headers, shapes, strict=True):
        start = position
        take(length)
        if name in entries:
            raise ValueError(f"it has two tensors {name}")
        if not name.endswith(_INPUT_SCALE):
            entries[name] = shape, _reader(path, data, name, kind, shape, start, length)
    if position != size:
        raise ValueError(f"it has {size - position} bytes too many")
    return entries


def _reader(path, data, name, kind, shape, start, length):
    """A function that returns a tensor of the container as an array."""
    if kind not in (*_PLAIN, *_QUANTIZED):
        raise CheckpointError(
            f"{path}: {name} is of the type {kind:#x}, such as matrices packed for one processor. "
            "Use the file before the conversion, or one with intgemm8."
        )
    if min(shape, default=1) < 1:
        raise ValueError(f"{name} has the shape {shape}")
    dtype = np.dtype(_PLAIN.get(kind) or _QUANTIZED[kind]).newbyteorder("<")
    end = start + math.prod(shape) * dtype.itemsize
    if end + 4 * (kind in _QUANTIZED) > start + length:
        raise ValueError(f"{name} needs more than its {length} bytes")

    def read():
        values = data[start:end].view(dtype)
        if kind in _PLAIN:
            return values.reshape(shape)
        scale = data[end : end + 4].copy().view("<f4")[0]
        if not 0 < scale < math.inf:
            raise ValueError(f"its scale is {scale}")
        # All but embeddings are stored [out, in], with the shape of before the transposition.
        matrix = values.reshape(shape if "Wemb" in name else shape[::-1])
        matrix = matrix.astype(np.float32) / scale
        return matrix if "Wemb" in name else matrix.T

    return read
