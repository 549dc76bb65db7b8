"""Tensors by name, read one by one."""

import functools
from collections.abc import Mapping

from zoo.checkpoints.errors import CheckpointError


class Tensors(Mapping):
    """The tensors of a file, read when they are asked for.

    Args:
        path: of the file, for messages.
        entries: {name: (shape, function () -> array)}.
    """

    def __init__(self, path, entries):
        self.path, self.entries = path, entries
        self.shapes = {name: tuple(shape) for name, (shape, _) in entries.items()}

    def __getitem__(self, name):
        _, read = self.entries[name]
        try:
            return read()
        except Exception as error:  # each library has its own
            raise CheckpointError(f"{self.path} is damaged at {name}: {error}") from None

    def __iter__(self):
        return iter(self.entries)

    def __len__(self):
        return len(self.entries)

    def __contains__(self, name):  # that of `Mapping` reads the tensor
        return name in self.entries

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
        entries, before = {}, {}
        for name, entry in self.entries.items():
            new = rename(name)
            if new in before:
                both = " and ".join(sorted([before[new], name]))
                raise CheckpointError(f"{self.path}: {both} are the same tensor of the model.")
            entries[new], before[new] = entry, name
        return Tensors(self.path, entries)

    def without_prefix(self, *prefixes):
        """The same tensors, each without the first of these prefixes that it has."""
        return self.renamed(
            lambda name: name.removeprefix(next(filter(name.startswith, prefixes), ""))
        )

    def unstacked(self, stack, block):
        """The same tensors, those whose names begin with `stack` [L, ..] as L of names `block`."""
        entries = {}
        for name, (shape, read) in self.entries.items():
            if not (name.startswith(stack) and shape):
                entries[name] = shape, read
                continue
            read = functools.cache(read)
            for index in range(shape[0]):
                one = name.replace(stack, block.replace("{i}", str(index)), 1)
                entries[one] = shape[1:], lambda read=read, index=index: read()[index]
        return Tensors(self.path, entries)
