"""Files of the program Marian: ``.npz`` archives and the binary container ``.bin``.

Both hold the weights by name, and the settings of training as YAML in ``special:model.yml``.
Source: marian-nmt/marian-dev and browsermt/marian-dev, src/common/binary.cpp (the container), and
src/tensors/cpu/expression_graph_packable.h (matrices in 8 bits).
"""

import contextlib
import math
import pathlib
import struct
import zipfile

import numpy as np

from zoo.checkpoints.tensor_files import npz_entries
from zoo.checkpoints.tensors import Tensors
from zoo.errors import CheckpointError, needed

SETTINGS = "special:model.yml"
_VERSION = struct.pack("<Q", 1)
_MOST_LEVELS = 20  # of YAML; the library in C crashes at tens of thousands
# The classes of types, which are class and bytes: text, floats, and quantized matrices (intgemm).
_CLASSES = {0x1: "i", 0x4: "f", 0x41: "i", 0x100: "i"}
_ALIGNMENT = 256  # bytes, up to which an item is filled up
# What quantizes the inputs of products with 8 bits. It is about speed, and not used here.
_INPUT_SCALE = "_QuantMultA"


def reader(path):
    """The function that reads a file's entries, by its content; None if it is not Marian's."""
    # What cannot be read, or is damaged, is reported by the reader of the name's ending.
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
    """The tensors of a file, matrices as [in, out], and its settings, a dict.

    Raises:
        CheckpointError: if the file is damaged, or in a format that depends on the processor.
    """
    path = pathlib.Path(path)
    path.stat()  # raises an error if there is none
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
    except Exception as error:  # whatever NumPy and its archives raise
        raise CheckpointError(f"{path} is damaged: {error}") from None
    entries = {name: entry for name, entry in entries.items() if not name.endswith(_INPUT_SCALE)}
    return Tensors(path, entries), read_yaml(path, settings)


def read_yaml(path, text=None):
    """The YAML mapping of a file, or that in `text`: a dict of str and lists, values as written."""
    yaml = needed("yaml", package="pyyaml")
    loader, depth = getattr(yaml, "CBaseLoader", yaml.BaseLoader), 0
    try:
        text = path.read_text(encoding="utf-8-sig") if text is None else text
        for event in yaml.parse(text, loader):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > _MOST_LEVELS or isinstance(event, yaml.AliasEvent):
                raise CheckpointError(f"{path}: its YAML has aliases, or too many levels.")
        content = yaml.load(text, loader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} is not YAML: {error}") from None
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} does not hold a YAML mapping.")
    return content


def _compressed(path):
    raise CheckpointError(f"{path} is compressed: unpack it, and what is beside it.")


def _container(path):
    """The entries of a container; its arrays are read when they are asked for."""
    data = np.memmap(path, np.uint8, "r")
    position = len(_VERSION)

    def take(count):
        nonlocal position
        start, position = position, position + count
        if position > len(data):
            raise ValueError("it ends too early")
        return data[start:position]

    def integers(count, letter="Q"):
        return struct.unpack(f"<{count}{letter}", take(count * struct.calcsize(letter)))

    [count] = integers(1)
    headers = [integers(4) for _ in range(count)]
    names = [take(length).tobytes().rstrip(b"\0").decode() for length, *_ in headers]
    shapes = [integers(rank, "i") for _, _, rank, _ in headers]
    take(*integers(1))  # padding
    entries = {}
    for name, (_, kind, _, length), shape in zip(names, headers, shapes, strict=True):
        if name in entries:
            raise ValueError(f"it has two tensors {name}")
        entries[name] = shape, _array_of(path, name, kind, shape, take(length))
    if position != len(data):
        raise ValueError(f"it has {len(data) - position} bytes too many")
    return entries


def _array_of(path, name, kind, shape, content):
    """A function that returns a tensor of the container as an array."""
    number, size = divmod(kind, 0x100)
    is_embedding, is_quantized = "Wemb" in name, number > 0x40
    # The program that writes the last class leaves embeddings as they are.
    is_wrong = is_embedding and number == 0x100 or (number == 0x1) != (name == SETTINGS)
    if number not in _CLASSES or is_wrong:
        raise CheckpointError(
            f"{path}: {name} is of the type {kind:#x}, such as matrices packed for one processor. "
            "Use the file before the conversion, or one with intgemm8."
        )
    if len(shape) > 8 or min(shape, default=1) < 1:
        raise ValueError(f"{name} has {len(shape)} axes of the lengths {shape[:8]}")
    dtype, end = np.dtype(f"<{_CLASSES[number]}{size}"), math.prod(shape) * size
    if not 0 <= len(content) - end - 4 * is_quantized < _ALIGNMENT:
        raise ValueError(f"{name} has {len(content)} bytes, which is not its size")

    def read():
        values = content[:end].view(dtype)
        if not is_quantized:
            return values.reshape(shape)
        [scale] = struct.unpack("<f", content[end : end + 4])
        if not 0 < scale < math.inf:
            raise ValueError(f"its scale is {scale}")
        # All but embeddings are stored [out, in], with the shape of before the transposition.
        matrix = values.reshape(shape if is_embedding else shape[::-1])
        matrix = matrix.astype(np.float32) / np.float32(scale)
        return matrix if is_embedding else matrix.T

    return read
