"""Shuffling without an array of what is shuffled: random permutations that compute any entry.

A Feistel network on numbers of two digits, whose bases multiply to little more than what is
permuted; a result outside it is permuted again, until it is inside. Source: Black and Rogaway 2002,
"Ciphers with Arbitrary Finite Domains", sections 3 and 4.
"""

import numpy as np

ROUNDS = 6


def permuted(numbers, sizes, keys):
    """Permutes each number among the numbers below its size.

    Args:
        numbers: int64 [n], each at least 0 and less than its size.
        sizes: int64 [n].
        keys: uint64 [ROUNDS, n]; a permutation for each size and column of keys.

    Returns:
        int64 [n].
    """
    high_base = np.ceil(np.sqrt(sizes)).astype(np.uint64)
    low_base = -(-sizes // high_base.astype(np.int64)).astype(np.uint64)
    found = _once(numbers.astype(np.uint64), high_base, low_base, keys)
    while len(outside := np.flatnonzero(found >= sizes.astype(np.uint64))):
        found[outside] = _once(
            found[outside], high_base[outside], low_base[outside], keys[:, outside]
        )
    return found.astype(np.int64)


def _once(numbers, high_base, low_base, keys):
    high, low = np.divmod(numbers, low_base)
    for key in keys:
        high, low, high_base, low_base = (
            low,
            (high + _mixed(low + key)) % high_base,
            low_base,
            high_base,
        )
    return high * low_base + low


def _mixed(numbers):
    """A hash of each number: the last steps of SplitMix64 (Steele et al. 2014, figure 15)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
