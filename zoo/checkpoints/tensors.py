"""Tensors by name, each of which is read when it is used."""

import collections
import functools
import itertools
import re
from collections.abc import Mapping

from zoo.checkpoints.other_programs import advice
from zoo.errors import CheckpointError

# Prefixes of the names of averaged weights.
AVERAGED = re.compile(
    r"(?:^|[./])(?:[^./]*_)?(?:ema|swa|averaged|teacher|(?:target|momentum)_encoder)(?:_[^./]*)?"
    r"(?:[./]|$)"
)
# Parts of names that torch.compile, FSDP and activation checkpointing insert.
_WRAPPERS = re.compile(r"(?<![^./])_(orig_mod|fsdp_wrapped_module|checkpoint_wrapped_module)[./]")
# Heads, which are often beside the part of a model that has the prefix.
_HEAD = re.compile(r"(\w+_)?(head|classifier)|head_dist|fc|final_logits_bias")
_PREFERRED = ("state_dict_ema/", "model_ema/", "state_dict/", "model/", "")  # as in timm


class Tensors(Mapping):
    """The arrays of a file by name, and their `shapes`.

    Args:
        path: path of the file or folder, for messages.
        entries: {name: (shape, function without arguments that returns the array)}.
    """

    def __init__(self, path, entries):
        self.path = path
        self.entries = entries
        self.shapes = {name: tuple(shape) for name, (shape, _) in entries.items()}

    def __getitem__(self, name):
        _, read = self.entries[name]
        try:
            return read()
        except Exception as error:  # each library raises its own
            raise CheckpointError(f"{self.path} is damaged at {name}: {error}") from None

    def __iter__(self):
        return iter(self.entries)

    def __len__(self):
        return len(self.entries)

    def __contains__(self, name):  # `Mapping.__contains__` would read the tensor
        return name in self.entries

    def shape(self, name, length):
        """Returns the shape of a tensor that the model must have, with `length` axes."""
        shape = self.shapes.get(name)
        if shape is None or len(shape) != length:
            message = f"{self.path} has no tensor {name} of {length} axes, which every model has."
            if shape:
                message += f" Its shape is {shape}."
            raise CheckpointError(message)
        return shape

    def renamed(self, rename):
        """Returns the tensors with the names `rename(name)`, of which no two may be equal."""
        entries = {}
        old_names = {}
        for name, entry in self.entries.items():
            new = rename(name)
            if new in old_names:
                both = " and ".join(sorted([old_names[new], name]))
                raise CheckpointError(f"{self.path}: {both} are the same tensor of the model.")
            entries[new] = entry
            old_names[new] = name
        return Tensors(self.path, entries)

    def unwrapped(self, anchor, averaged=True):
        """Returns the tensors of one model, without the prefix of their names.

        Prefixes come from dicts ("state_dict/", "model_ema/"), from PyTorch ("_orig_mod.module.")
        and from larger models ("backbone.", "vit."). Tensors without the prefix are left out, and
        named in a printed line; heads beside the model are kept.

        Args:
            anchor: name of a tensor that every model of the format has.
            averaged: whether to take the averaged weights, if there are any, or the others.
        """
        tensors = self.renamed(lambda name: _WRAPPERS.sub("", name))
        ends = (f".{anchor}", f"/{anchor}")
        anchors = [name for name in tensors if name == anchor or name.endswith(ends)]
        prefixes = [name.removesuffix(anchor) for name in anchors]
        if not prefixes:
            first = next(iter(self), None)
            raise CheckpointError(
                f"{self.path} is not a model that zoo reads. It has no tensor {anchor}, but "
                f"others, such as {first}.{advice([self.path.name]) or advice(self)}"
            )
        prefix = tensors._chosen_prefix(prefixes, averaged)
        around = _beginnings(prefix)  # heads may be beside the model
        beginnings = {each for prefix in prefixes for each in _beginnings(prefix)}
        others = tuple(beginnings - {*around})  # prefixes of other models
        names = {}  # {name in the file: name without the prefix}
        unused = collections.Counter()
        for name in tensors:
            beginning = max((each for each in around if name.startswith(each)), key=len)
            rest = name.removeprefix(beginning)
            part = re.split("[./]", rest)[0]
            is_head = _HEAD.fullmatch(part) and prefix + rest not in tensors
            if not name.startswith(others) and (beginning == prefix or is_head):
                names[name] = rest
            else:
                unused[beginning + part] += 1
        if unused:
            listed = ", ".join(f"{part} ({count})" for part, count in unused.items())
            if AVERAGED.search(prefix) and not all(map(AVERAGED.search, prefixes)):
                listed += ". Pass ema=False for weights that are not averaged"
            print(f"{self.path}: loads {prefix[:-1] or anchor}. Not used (tensors): {listed}.")
        used = Tensors(self.path, {name: tensors.entries[name] for name in names})
        return used.renamed(names.get)

    def _chosen_prefix(self, prefixes, averaged):
        """The prefix of the model to load, see `unwrapped`."""
        averages = [prefix for prefix in prefixes if AVERAGED.search(prefix)]
        others = [prefix for prefix in prefixes if prefix not in averages]
        candidates = averages if averaged and averages else others
        listed = ", ".join(prefix[:-1] or "names without a prefix" for prefix in prefixes)
        if not candidates:
            raise CheckpointError(
                f"{self.path} has averaged weights only ({listed}): load it without ema=False."
            )
        for first in _PREFERRED:
            matches = [prefix for prefix in candidates if prefix.startswith(first)]
            if len(matches) == 1:
                if matches[0] in averages:
                    self._check_average(matches[0], others)
                return matches[0]
        raise CheckpointError(f"{self.path} has several models: {listed}. Save one of them alone.")

    def _check_average(self, prefix, others):
        """Raises `CheckpointError` if averaged weights lack another tensor than a mask."""
        for other in others:
            if not other:
                continue
            for name, shape in self.shapes.items():
                if not name.startswith(other) or "mask" in name:
                    continue
                if self.shapes.get(prefix + name.removeprefix(other)) != shape:
                    raise CheckpointError(
                        f"{self.path}: {prefix[:-1]} lacks {name} or has it in another shape. Pass "
                        f"ema=False for {other[:-1]}."
                    )

    def unstacked(self, stack, block):
        """Splits each tensor [L, ...] named `stack`... into L tensors named `block`..."""
        entries = {}
        for name, (shape, read) in self.entries.items():
            if not name.startswith(stack) or not shape:
                entries[name] = (shape, read)
                continue
            read = functools.cache(read)
            for index in range(shape[0]):
                one = name.replace(stack, block.replace("{i}", str(index)), 1)
                entries[one] = (shape[1:], lambda read=read, index=index: read()[index])
        return Tensors(self.path, entries)


def _beginnings(prefix):
    """The beginnings of a prefix: of "a.b.", they are "", "a." and "a.b."."""
    return ["", *itertools.accumulate(re.findall(r"[^./]*[./]", prefix))]
