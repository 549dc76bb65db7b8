"""Tensors by name, read one by one."""

import functools
from collections.abc import Mapping

from zoo.checkpoints.errors import CheckpointError


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
        self.readers = readers

    def __getitem__(self, name):
        try:
            return self.readers[name]()
        except Exception as error:  # each library has its own
            if name not in self.readers:
                raise
            raise CheckpointError(f"{self.path} is damaged at {name}: {error}") from None

    def __iter__(self):
        return iter(self.readers)

    def __len__(self):
        return len(self.readers)

    def __contains__(self, name):  # that of `Mapping` reads the tensor
        return name in self.readers

    def shape(self, name, length):
        """The shape of a tensor that the model must have, with this number of axes."""
        shape = self.shapes.get(name)
        if shape is None or len(shape) != length:
            expected = f"{self.path} has no tensor {name} of {length} axes, which every model has"
            raise CheckpointError(f"{expected}. Its shape is {shape}." if shape else f"{expected}.")
        return shape

    def renamed(self, rename):
        """The same tensors by other names: `rename` is a function of a name.

        Raises:
            CheckpointError: if two get the same name.
        """
        readers, shapes, before = {}, {}, {}
        for name, read in self.readers.items():
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
                readers[name], shapes[name] = self.readers[name], shape
                continue
            read = functools.cache(self.readers[name])
            for index in range(shape[0]):
                one = name.replace(stack, block.replace("{i}", str(index)), 1)
                readers[one] = lambda read=read, index=index: read()[index]
                shapes[one] = shape[1:]
        return Tensors(self.path, readers, shapes)
