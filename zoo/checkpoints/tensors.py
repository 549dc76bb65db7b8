"""Tensors by name, which are read when they are used."""

import collections
import functools
import itertools
import re
from collections.abc import Mapping

from zoo.checkpoints.other_programs import advice
from zoo.errors import CheckpointError

# Prefixes of the names of a model's tensors: of averaged weights, and of a whole model.
_AVERAGE = r"(?:[^./]*_)?(?:ema|swa|averaged|teacher|(?:target|momentum)_encoder)(?:_[^./]*)?"
AVERAGED = re.compile(rf"(?:^|[./]){_AVERAGE}(?:[./]|$)")
_WHOLE = "module|(?:online_)?model|net|network|student|(?:model_)?state(?:_dict)?"
_WHOLE = re.compile(rf"(?:.*[./])?(?:(?:{_AVERAGE}|{_WHOLE})[./]|[^./]*/)|")
# Parts of names that torch.compile, FSDP and activation checkpointing insert.
_WRAPPERS = re.compile(r"(?<![^./])_(orig_mod|fsdp_wrapped_module|checkpoint_wrapped_module)[./]")
# Names of heads, which are often beside the part of a model that has the prefix.
_HEAD = re.compile(r"head|head_dist|classifier|fc|lm_head")
_PREFERRED = ("state_dict_ema/", "model_ema/", "state_dict/", "model/")  # as in timm


class Tensors(Mapping):
    """The arrays of a file by name, and their `shapes`.

    Args:
        path: path of the file or folder, for messages.
        entries: {name: (shape, function without arguments that returns the array)}.
    """

    def __init__(self, path, entries):
        self.path, self.entries = path, entries
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
            expected = f"{self.path} has no tensor {name} of {length} axes, which every model has"
            raise CheckpointError(f"{expected}. Its shape is {shape}." if shape else f"{expected}.")
        return shape

    def renamed(self, rename):
        """Returns the same tensors with the names `rename(name)`, which must be different."""
        entries, before = {}, {}
        for name, entry in self.entries.items():
            new = rename(name)
            if new in before:
                both = " and ".join(sorted([before[new], name]))
                raise CheckpointError(f"{self.path}: {both} are the same tensor of the model.")
            entries[new], before[new] = entry, name
        return Tensors(self.path, entries)

    def unwrapped(self, anchor, averaged=True):
        """Returns the tensors of one model, without the prefixes of their names.

        Prefixes come from dicts ("state_dict/", "model_ema/"), from PyTorch ("_orig_mod.module.")
        and from larger models ("backbone.", "vit."). Tensors of other models are left out and
        printed.

        Args:
            anchor: name of a tensor that every model of the format has.
            averaged: whether to take the averaged weights, if there are any, or the others.

        Raises:
            CheckpointError: if there is no model, or it is not clear which one to take.
        """
        if any(map(_WRAPPERS.search, self)):
            return self.renamed(lambda x: _WRAPPERS.sub("", x)).unwrapped(anchor, averaged)
        found = re.compile(rf"((?:.*[./])?){re.escape(anchor)}")
        prefixes = [match[1] for match in map(found.fullmatch, self) if match]
        if not prefixes:
            raise CheckpointError(
                f"{self.path} has no tensor {anchor}, which every model has, but others, such as "
                f"{next(iter(self), None)}.{advice([self.path.name]) or advice(self)}"
            )
        prefix = self._chosen(prefixes, averaged)
        starts, whole = _starts(prefix), _WHOLE.match(prefix)[0]
        # where the prefixes of other models begin to differ from this one
        others = [next((s for s in _starts(p) if s not in starts), prefix) for p in prefixes]
        others = tuple({*others} - {prefix})
        renamed, unused = {}, collections.Counter()
        for name in self:
            start = max(filter(name.startswith, starts), key=len)
            rest = name.removeprefix(start)
            part = re.split("[./]", rest)[0]
            is_head = _HEAD.fullmatch(part) and prefix + rest not in self
            if is_head or name.startswith(whole) and not name.startswith(others):
                renamed[name] = rest
            else:
                unused[start + part] += 1
        if unused:
            names = ", ".join(f"{part} ({count})" for part, count in unused.items())
            if AVERAGED.search(prefix) and not all(map(AVERAGED.search, prefixes)):
                names += ". Pass ema=False for weights that are not averaged"
            print(f"{self.path}: loads {prefix[:-1] or anchor}. Not used (tensors): {names}.")
        kept = Tensors(self.path, {name: self.entries[name] for name in renamed})
        return kept.renamed(renamed.get)

    def _chosen(self, prefixes, averaged):
        """Selects the prefix of the model to load, see `unwrapped`."""
        found = [p for p in prefixes if bool(AVERAGED.search(p)) == averaged] or averaged * prefixes
        for first in (*_PREFERRED, ""):
            best = [prefix for prefix in found if prefix.startswith(first)]
            if len(best) == 1:
                self._check_average(*best, [p for p in prefixes if p not in found])
                return best[0]
        names = ", ".join(prefix[:-1] or "names without a prefix" for prefix in prefixes)
        if not found:
            raise CheckpointError(
                f"{self.path} has averaged weights only ({names}): load it without ema=False."
            )
        raise CheckpointError(f"{self.path} has several models: {names}. Save one of them alone.")

    def _check_average(self, prefix, others):
        """Raises `CheckpointError` if averaged weights lack tensors of the others, except masks."""
        for other in filter(None, others if AVERAGED.search(prefix) else ()):
            for name in self:
                averaged = self.shapes.get(prefix + name.removeprefix(other))
                if name.startswith(other) and averaged != self.shapes[name] and "mask" not in name:
                    raise CheckpointError(
                        f"{self.path}: {prefix[:-1]} lacks {name} or has it in another shape. Pass "
                        f"ema=False for {other[:-1]}."
                    )

    def unstacked(self, stack, block):
        """Splits tensors [L, ...] whose names begin with `stack` into L that begin with `block`."""
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


def _starts(prefix):
    """The beginnings of a prefix: of "a.b.", they are "", "a." and "a.b."."""
    return ["", *itertools.accumulate(re.findall(r"[^./]*[./]", prefix))]
