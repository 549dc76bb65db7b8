"""Permutations that compute any entry: each number once, and no order more likely than another."""

import collections

import numpy as np
import pytest

from zoo.data.keyed_permutation import ROUNDS, permuted


def permutation(size, seed):
    keys = np.random.default_rng(seed).integers(2**64, size=(ROUNDS, 1), dtype=np.uint64)
    return permuted(np.arange(size), np.full(size, size), np.repeat(keys, size, axis=1))


@pytest.mark.parametrize("size", [*range(1, 40), 255, 256, 257, 1000, 10_007, 300_000])
def test_every_number_occurs_once(size):
    found = permutation(size, [size])
    assert found.dtype == np.int64
    np.testing.assert_array_equal(np.sort(found), np.arange(size))


def test_several_sizes_in_one_call():
    sizes, keys = np.array([5, 1000, 7]), np.arange(ROUNDS * 3, dtype=np.uint64).reshape(-1, 3)
    together = permuted(np.array([4, 999, 0]), sizes, keys)
    alone = [permuted(np.array([n]), sizes[i : i + 1], keys[:, i : i + 1])[0] for i, n in
             enumerate([4, 999, 0])]  # fmt: skip
    np.testing.assert_array_equal(together, alone)


def test_every_order_is_about_as_likely():
    """24 orders of 4 numbers: 200 draws each; within 40 % of it, six standard deviations."""
    found = collections.Counter(tuple(permutation(4, seed)) for seed in range(4800))
    assert len(found) == 24 and max(abs(count - 200) for count in found.values()) < 80


def test_neighbors_do_not_stay_together():
    """The distance between the places of neighbors is on average a third of the size."""
    distances = [np.abs(np.diff(permutation(1000, seed))).mean() for seed in range(50)]
    # 50 means of 999 distances with a standard deviation of 236 each
    np.testing.assert_allclose(np.mean(distances), 1001 / 3, atol=5)
