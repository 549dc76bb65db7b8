"""Finite sets that are counted, indexed and drawn from without being listed.

A grammar of a thousand billion sentences is a product of short lists. A set here knows its size
and makes its i-th item when asked: the enumeration by sizes of Duregård, Jansson and Wang 2012,
"Feat: functional enumeration of algebraic types". It also draws items by weights at every level,
so that what is short and plain stays common among many long ones.
"""

import bisect
import itertools
import math


class Space:
    """What sets have in common; `size` may exceed what `len` can say."""

    def __iter__(self):
        return (self[index] for index in range(self.size))

    def draw(self, count, random):
        """`count` different items, as `one` draws them."""
        if 2 * count > self.size:
            return [self[index] for index in random.sample(range(self.size), count)]
        found, tries = {}, 0
        while len(found) < count:
            tries += 1
            # What has great weight may be used up: then any item will do.
            by_weight = tries <= 4 * count
            found[self.one(random) if by_weight else self[random.randrange(self.size)]] = None
        return list(found)


class Product(Space):
    """All of ``build(a, b, ...)`` for a in the first part, b in the second and so on.

    Args:
        build: gives different items for different arguments.
        parts: sets or lists.
    """

    def __init__(self, build, *parts):
        self.build = build
        self.parts = parts
        self.size = math.prod(map(size, parts))

    def __getitem__(self, index):
        if not 0 <= index < self.size:
            raise IndexError(index)
        chosen = []
        for part in reversed(self.parts):
            index, digit = divmod(index, size(part))
            chosen.append(part[digit])
        return self.build(*reversed(chosen))

    def one(self, random):
        """An item of one drawn item of each part."""
        return self.build(*[one(part, random) for part in self.parts])


class Union(Space):
    """All items of some disjoint sets, drawn in shares that do not depend on their sizes.

    Args:
        parts: sets or lists; empty ones are left out.
        weights: the share of each, relative to the others; equal by default.
    """

    def __init__(self, parts, weights=None):
        parts = list(parts)
        pairs = [pair for pair in zip(parts, weights or [1] * len(parts)) if size(pair[0])]
        self.parts = [part for part, _ in pairs]
        self.weights = [weight for _, weight in pairs]
        self._ends = list(itertools.accumulate(map(size, self.parts)))
        self._marks = list(itertools.accumulate(self.weights))
        self.size = self._ends[-1] if pairs else 0

    def __getitem__(self, index):
        if not 0 <= index < self.size:
            raise IndexError(index)
        part = bisect.bisect_right(self._ends, index)
        return self.parts[part][index - (self._ends[part - 1] if part else 0)]

    def one(self, random):
        """An item of a part that is drawn by its weight."""
        mark = random.random() * self._marks[-1]
        return one(self.parts[bisect.bisect_right(self._marks, mark)], random)

    def draw(self, count, random):
        """`count` different items: each part gives its share, or all that it has."""
        counts = shares([size(part) for part in self.parts], self.weights, count, random)
        return [
            item
            for part, share in zip(self.parts, counts)
            for item in (part if isinstance(part, Space) else Product(_same, part)).draw(
                share, random
            )
        ]


def size(part):
    """The number of items of a set or a list."""
    return part.size if isinstance(part, Space) else len(part)


def one(part, random):
    """A drawn item of a set or a list."""
    return part.one(random) if isinstance(part, Space) else part[int(random.random() * len(part))]


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
            taken[i] = int(left * weights[i] / total)
        rest = left - sum(taken[i] for i in open_)
        room = [i for i in open_ if taken[i] < sizes[i]]
        for i in random.sample(room, rest):
            taken[i] += 1
    return taken


def _same(item):
    return item
