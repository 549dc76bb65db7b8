"""Tensors by name, read one by one: safetensors, PyTorch files and NumPy archives."""

import functools
import pathlib
from collections.abc import Mapping

import numpy as np

from zoo.checkpoints.errors import CheckpointError
from zoo.checkpoints.hugging_face import read_json
from zoo.errors import UserError, needed

SUFFIXES = (".safetensors", ".npz", ".bin", ".pth", ".pt")
# In the order of preference.
WEIGHTS = (
    "model.safetensors.index.json",
    "model.safetensors",
    "pytorch_model.bin.index.json",
    "pytorch_model.bin",
)


class Tensors(Mapping):
    """The tensors of a file, read when they are asked for.

    Args:
        path: of the file, for messages.
        readers: {name: function () -> array}.
        shapes: {name: shape}.
    """

    def __init__(self, path, readers, shapes):
        self.path = path
        self.shapes = shapes
        self._readers = readers

    def __getitem__(self, name):
        try:
            return self._readers[name]()
        except Exception as error:  # each library has its own
            if name not in self._readers:
                raise
            raise CheckpointError(f"{self.path} is damaged at {name}: {error}") from None

    def __iter__(self):
        return iter(self._readers)

    def __len__(self):
        return len(self._readers)

    def __contains__(self, name):  # that of `Mapping` reads the tensor
        return name in self._readers

    def shape(self, name, length):
        """The shape of a tensor that the model must have, with this number of axes."""
        found = self.shapes.get(name)
        if found is None or len(found) != length:
            expected = f"{self.path} has no tensor {name} of {length} axes, which every model has"
            raise CheckpointError(f"{expected}. Its shape is {found}." if found else f"{expected}.")
        return found

    def renamed(self, rename):
        """The same tensors by other names: `rename` is a function of a name.

        Raises:
            CheckpointError: if two get the same name.
        """
        readers, shapes, before = {}, {}, {}
        for name, read in self._readers.items():
            new = rename(name)
            if new in before:
                both = " and ".join(sorted([before[new], name]))
                raise CheckpointError(f"{self.path}: {both} are the same tensor of the model.")
            readers[new], shapes[new], before[new] = read, self.shapes[name], name
        return Tensors(self.path, readers, shapes)

    def without_prefix(self, *prefixes):
        """The same tensors, each without the first of these prefixes that it has."""
        return self.renamed(
            lambda name: name.removeprefix(next(filter(name.startswith, prefixes), ""))
        )

    def unstacked(self, stack, block):
        """The same tensors, those whose names begin with `stack` [L, ..] as L of names `block`."""
        readers, shapes = {}, {}
        for name, shape in self.shapes.items():
            if not (name.startswith(stack) and shape):
                readers[name], shapes[name] = self._readers[name], shape
                continue
            read = functools.cache(self._readers[name])
            for index in range(shape[0]):
                one = name.replace(stack, block.replace("{i}", str(index)), 1)
                readers[one] = lambda read=read, index=index: read()[index]
                shapes[one] = shape[1:]
        return Tensors(self.path, readers, shapes)


def read_folder(folder):
    """The tensors of a folder in Hugging Face's layout, also in several files."""
    for name in WEIGHTS:
        path = pathlib.Path(folder) / name
        if path.is_file():
            return _sharded(path) if path.suffix == ".json" else read_file(path)
    raise CheckpointError(f"{folder} contains no weights: none of {', '.join(WEIGHTS)}.")


def read_file(path):
    """The tensors of one file, by its suffix: .safetensors, .npz or PyTorch's."""
    path = pathlib.Path(path)
    if path.suffix not in SUFFIXES:
        suffixes = ", ".join(SUFFIXES)
        raise CheckpointError(f"{path} is no file of weights: these end in {suffixes}.")
    try:
        if path.suffix == ".safetensors":
            return _safetensors(path)
        if path.suffix == ".npz":
            return _npz(path)
    except UserError:
        raise
    except Exception as error:  # each library has its own
        raise CheckpointError(f"{path} is damaged or no {path.suffix} file: {error}") from None
    from zoo.checkpoints.torch_file import read

    return read(path)


def _sharded(index):
    try:
        files = set(read_json(index)["weight_map"].values())
    except (KeyError, AttributeError, TypeError) as error:
        raise CheckpointError(f"{index} is no index of tensors: {error!r}.") from None
    readers, shapes = {}, {}
    for name in sorted(files):
        path = index.parent / name
        if pathlib.Path(name).name != name or not path.is_file():
            raise CheckpointError(f"{index} names the file {name!r}, which is not in its folder.")
        part = read_file(path)
        readers.update(part._readers)
        shapes.update(part.shapes)
    return Tensors(index, readers, shapes)


def _safetensors(path):
    safetensors = needed("safetensors")

    def read(name):
        # The file is mapped into memory, and what was read stays there until it is closed.
        with safetensors.safe_open(path, "np") as file:
            return file.get_tensor(name)

    with safetensors.safe_open(path, "np") as file:
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    return Tensors(path, {name: functools.partial(read, name) for name in shapes}, shapes)


def _npz(path):
    import ml_dtypes

    archive = np.load(path, allow_pickle=False)

    def read(name):
        array = archive[name]
        # NumPy has no bfloat16, and stores two bytes without a meaning.
        return array.view(ml_dtypes.bfloat16) if array.dtype == "V2" else array

    shapes = {name: _npy_shape(archive, name) for name in archive.files}
    return Tensors(path, {name: functools.partial(read, name) for name in archive.files}, shapes)


def _npy_shape(archive, name):
    """The shape of an array, from its header alone."""
    with archive.zip.open(name + ".npy") as file:
        version = np.lib.format.read_magic(file)
        header = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        return header(file)[0]
