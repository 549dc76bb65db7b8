"""Reads the model files of the program Marian: ``.npz`` archives and binary ``.bin`` files.

Both contain the weights by name, and the training settings as YAML in ``special:model.yml``.
Sources: marian-nmt/marian-dev and browsermt/marian-dev, src/common/binary.cpp (binary files) and
src/tensors/cpu/expression_graph_packable.h (8-bit matrices).
"""

import contextlib
import math
import pathlib
import struct
import zipfile
from typing import NamedTuple

import numpy as np

from zoo.checkpoints.tensor_files import npz_entries
from zoo.checkpoints.tensors import Tensors
from zoo.errors import CheckpointError, needed
from zoo.files import read_text

SETTINGS = "special:model.yml"
_VERSION = struct.pack("<Q", 1)
_MAX_YAML_DEPTH = 20  # the C library crashes at tens of thousands
# A type is 256 · class + bytes per value. The classes are text, floats, and two of quantized
# matrices (intgemm); the letters are NumPy's.
_CLASSES = {0x1: "i", 0x4: "f", 0x41: "i", 0x100: "i"}
_ALIGNMENT = 256  # bytes to which an item is padded
_INPUT_SCALE = "_QuantMultA"  # end of the names of scales for 8-bit inputs, which are not used here


def reader(path):
    """Returns the function that reads a file, chosen by its first bytes; None if it is no model."""
    with contextlib.suppress(Exception), open(path, "rb") as file:
        start = file.read(len(_VERSION))
        if start == _VERSION:
            return _container
        if start.startswith(b"\x1f\x8b"):
            return _compressed
        if start.startswith(b"PK") and f"{SETTINGS}.npy" in zipfile.ZipFile(file).namelist():
            return npz_entries
    return None


def read(path):
    """Reads a file: returns its `Tensors`, with matrices [in, out], and its settings, a dict."""
    path = pathlib.Path(path)
    path.stat()  # raises FileNotFoundError
    read_entries = reader(path)
    if read_entries is None:
        raise CheckpointError(f"{path} is damaged, or not a model of Marian.")
    try:
        entries = read_entries(path)
        _, settings = entries.pop(SETTINGS)
        settings = bytes(settings().astype(np.uint8)).rstrip(b"\0").decode()
    except CheckpointError:
        raise
    except KeyError:
        raise CheckpointError(f"{path} has no {SETTINGS}: it is not a model of Marian.") from None
    except Exception as error:  # NumPy and zipfile raise errors of many types
        raise CheckpointError(f"{path} is damaged: {error}") from None
    entries = {name: entry for name, entry in entries.items() if not name.endswith(_INPUT_SCALE)}
    return Tensors(path, entries), read_yaml(path, settings)


def read_yaml(path, text=None):
    """Parses the YAML mapping in a file, or in its `text`: a dict whose scalars are all str."""
    yaml = needed("yaml")
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        if text is None:
            text = read_text(path)
        depth = 0
        for event in yaml.parse(text, loader):
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            if depth > _MAX_YAML_DEPTH or isinstance(event, yaml.AliasEvent):
                raise CheckpointError(f"{path}: YAML with aliases or deep nesting cannot be read.")
        content = yaml.load(text, loader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} is not YAML: {error}") from None
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} does not contain a YAML mapping.")
    return content


def _compressed(path):
    raise CheckpointError(f"{path} is compressed: unpack it and the files beside it.")


def _container(path):
    """The entries of a binary file, see `Tensors`; it is memory-mapped."""
    data = np.memmap(path, np.uint8, "r")
    position = len(_VERSION)

    def take(count, dtype=np.uint8):
        nonlocal position
        start = position
        position += count * np.dtype(dtype).itemsize
        if position > len(data):
            raise ValueError("it is truncated")
        return data[start:position].view(dtype)

    [count] = take(1, "<u8").tolist()
    headers = [_Header(*take(4, "<u8").tolist()) for _ in range(count)]
    names = [take(header.name_length).tobytes().rstrip(b"\0").decode() for header in headers]
    shapes = [take(header.rank, "<i4").tolist() for header in headers]
    [padding] = take(1, "<u8").tolist()
    take(padding)
    entries = {}
    for name, header, shape in zip(names, headers, shapes, strict=True):
        if name in entries:
            raise ValueError(f"it has two tensors {name}")
        content = take(header.length)
        entries[name] = (shape, _array_reader(path, name, header.kind, shape, content))
    if position != len(data):
        raise ValueError(f"it has {len(data) - position} surplus bytes")
    return entries


class _Header(NamedTuple):
    name_length: int
    kind: int
    rank: int
    length: int  # of its values and padding, in bytes


def _array_reader(path, name, kind, shape, content):
    """Returns a function that reads a tensor.

    Its `content`, uint8, is the values, the scale if it is quantized, and padding.
    """
    number, size = divmod(kind, 0x100)
    is_embedding = "Wemb" in name
    is_quantized = number > 0x40
    is_supported = number in _CLASSES
    if number == 0x100 and is_embedding:  # this class is of transposed matrices only
        is_supported = False
    if (number == 0x1) != (name == SETTINGS):  # text
        is_supported = False
    if not is_supported:
        raise CheckpointError(
            f"{path}: {name} is of the type {kind:#x}, which is not supported. If the matrices are "
            "packed for one processor, use the file from before, or convert it to intgemm8."
        )
    if len(shape) > 8 or min(shape, default=1) < 1:
        raise ValueError(f"{name} has {len(shape)} axes of the lengths {shape[:8]}")
    dtype = np.dtype(f"<{_CLASSES[number]}{size}")
    end = math.prod(shape) * size
    scale_size = 4 if is_quantized else 0
    if not 0 <= len(content) - end - scale_size < _ALIGNMENT:
        raise ValueError(f"{name} has {len(content)} bytes, which do not match its shape")

    def read():
        values = content[:end].view(dtype)
        if not is_quantized:
            return values.reshape(shape)
        [scale] = struct.unpack("<f", content[end : end + 4])
        if not 0 < scale < math.inf:
            raise ValueError(f"its scale is {scale}")
        values = values.astype(np.float32) / np.float32(scale)
        if is_embedding:
            return values.reshape(shape)
        # Other matrices are stored transposed, [out, in], but their shape is not.
        return values.reshape(shape[::-1]).T

    return read
