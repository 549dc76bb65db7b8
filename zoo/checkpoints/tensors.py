"""Tensors by name, read one by one."""

import collections
import functools
import itertools
import re
from collections.abc import Mapping

from zoo.checkpoints.other_programs import advice
from zoo.errors import CheckpointError

# Parts before the names of a model's tensors: of averaged weights, and of any whole model.
_AVERAGE = r"(?:[^./]*_)?(?:ema|swa|averaged|teacher|(?:target|momentum)_encoder)(?:_[^./]*)?"
AVERAGED = re.compile(rf"(?:^|[./]){_AVERAGE}(?:[./]|$)")
_WHOLE = "module|(?:online_)?model|net|network|student|(?:model_)?state(?:_dict)?"
_WHOLE = re.compile(rf"(?:.*[./])?(?:(?:{_AVERAGE}|{_WHOLE})[./]|[^./]*/)|")
# Parts of names within a model, of torch.compile, FSDP and checkpoints of activations.
_WRAPPERS = re.compile(r"(?<![^./])_(orig_mod|fsdp_wrapped_module|checkpoint_wrapped_module)[./]")
_HEAD = re.compile(r"head|head_dist|classifier|fc|lm_head")  # is often beside, and not in, a part
_PREFERRED = ("state_dict_ema/", "model_ema/", "state_dict/", "model/")  # as by timm


class Tensors(Mapping):
    """The tensors of a file, for messages at a path: {name: (shape, function () -> array)}."""

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
        """The same tensors by other names: `rename` is a function of a name."""
        entries, before = {}, {}
        for name, entry in self.entries.items():
            new = rename(name)
            if new in before:
                both = " and ".join(sorted([before[new], name]))
                raise CheckpointError(f"{self.path}: {both} are the same tensor of the model.")
            entries[new], before[new] = entry, name
        return Tensors(self.path, entries)

    def unwrapped(self, anchor, averaged=True):
        """The tensors of one model, without the parts that programs put before their names.

        Such as those of dicts, "state_dict/" and "model_ema/", of PyTorch, "_orig_mod.module.", and
        of a larger model, "backbone." or "vit.". Tensors of other models are left out, and a
        printed line says so.

        Args:
            anchor: name of a tensor that every model of the format has.
            averaged: whether the averaged weights are taken, where there are some, or the others.
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
            also = ", ".join(f"{part} ({count})" for part, count in unused.items())
            if AVERAGED.search(prefix) and not all(map(AVERAGED.search, prefixes)):
                also += ". Pass ema=False for weights that are not averaged"
            print(f"{self.path}: loads {prefix[:-1] or anchor}. Not used (tensors): {also}.")
        kept = Tensors(self.path, {name: self.entries[name] for name in renamed})
        return kept.renamed(renamed.get)

    def _chosen(self, prefixes, averaged):
        """That of `prefixes` whose model is loaded, see `unwrapped`."""
        found = [p for p in prefixes if bool(AVERAGED.search(p)) == averaged] or averaged * prefixes
        for first in (*_PREFERRED, ""):
            best = [prefix for prefix in found if prefix.startswith(first)]
            if len(best) == 1:
                self._check_average(*best, [p for p in prefixes if p not in found])
                return best[0]
        names = ", ".join(prefix[:-1] or "names without a prefix" for prefix in prefixes)
        if not found:
            raise CheckpointError(f"{self.path} has averaged weights only ({names}): no ema=False.")
        raise CheckpointError(f"{self.path} has several models: {names}. Keep one of them in it.")

    def _check_average(self, prefix, others):
        """Raises CheckpointError if averaged weights lack what others have, but for mask tokens."""
        for other in filter(None, others if AVERAGED.search(prefix) else ()):
            for name in self:
                averaged = self.shapes.get(prefix + name.removeprefix(other))
                if name.startswith(other) and averaged != self.shapes[name] and "mask" not in name:
                    raise CheckpointError(
                        f"{self.path}: {prefix[:-1]} lacks {name} or has it in another shape. Pass "
                        f"ema=False for {other[:-1]}."
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


def _starts(prefix):
    """The beginnings of "a.b.": "", "a." and "a.b."."""
    return ["", *itertools.accumulate(re.findall(r"[^./]*[./]", prefix))]
