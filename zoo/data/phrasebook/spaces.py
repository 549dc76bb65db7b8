"""Finite sets that are counted, indexed and drawn from without being listed.

A grammar of half a million sentences is a product of short lists. A set here knows its size and
makes its i-th item when asked: the enumeration by sizes of Duregård, Jansson and Wang 2012, "Feat:
functional enumeration of algebraic types".
"""

import bisect
import itertools
import math
from collections.abc import Sequence


class Product(Sequence):
    """All of ``build(a, b, ...)`` for a in the first part, b in the second and so on."""

    def __init__(self, build, *parts):
        self.build = build
        self.parts = parts
        self._size = math.prod(len(part) for part in parts)

    def __len__(self):
        return self._size

    def __getitem__(self, index):
        if not 0 <= index < self._size:
            raise IndexError(index)
        chosen = []
        for part in reversed(self.parts):
            index, digit = divmod(index, len(part))
            chosen.append(part[digit])
        return self.build(*reversed(chosen))

    def draw(self, count, random):
        """`count` different items, each as likely as the others."""
        return [self[index] for index in random.sample(range(self._size), count)]


class Union(Sequence):
    """All items of some disjoint sets, drawn in shares that do not depend on their sizes.

    Args:
        parts: sets; lists are allowed.
        weights: the share of each, relative to the others; equal by default.
    """

    def __init__(self, parts, weights=None):
        self.parts = [part if hasattr(part, "draw") else Product(_same, part) for part in parts]
        self.weights = weights or [1] * len(self.parts)
        self._ends = list(itertools.accumulate(len(part) for part in self.parts))

    def __len__(self):
        return self._ends[-1]

    def __getitem__(self, index):
        if not 0 <= index < len(self):
            raise IndexError(index)
        part = bisect.bisect_right(self._ends, index)
        return self.parts[part][index - (self._ends[part - 1] if part else 0)]

    def draw(self, count, random):
        """`count` different items: each part gives its share, or all that it has."""
        counts = shares([len(part) for part in self.parts], self.weights, count, random)
        return [
            item for part, share in zip(self.parts, counts) for item in part.draw(share, random)
        ]


def shares(sizes, weights, count, random):
    """How many to take from each of the sets: by weight, never more than there are.

    What a small set cannot give is shared among the others.

    Args:
        sizes: size of each set; they sum to `count` or more.
        weights: relative share of each.
        count: how many to take in all.
        random: `random.Random`; it places what the division leaves over.
    """
    taken = [0] * len(sizes)
    open_, left = [i for i, size in enumerate(sizes) if size], count
    while left and open_:
        total = sum(weights[i] for i in open_)
        full = [i for i in open_ if sizes[i] * total <= left * weights[i]]
        if not full:
            break
        for i in full:
            taken[i] = sizes[i]
        left -= sum(sizes[i] for i in full)
        open_ = [i for i in open_ if i not in set(full)]
    if left:
        total = sum(weights[i] for i in open_)
        for i in open_:
            taken[i] = left * weights[i] // total
        rest = left - sum(taken[i] for i in open_)
        room = [i for i in open_ if taken[i] < sizes[i]]
        for i in random.sample(room, rest):
            taken[i] += 1
    return taken


def _same(item):
    return item
