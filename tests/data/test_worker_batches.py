"""How a batch is split between workers and their replicas."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from zoo.data.worker_batches import in_parts, split_batches


def as_replicas_get_them(batches, workers, replicas, count):
    """The first batches: a list of the shares of the replicas of all workers, in order."""
    own = replicas // workers
    contexts = [tf.distribute.InputContext(workers, n, replicas) for n in range(workers)]
    found = [list(batches.shares(one).take(count * own).as_numpy_iterator()) for one in contexts]
    return [
        [share for shares in found for share in shares[own * step : own * (step + 1)]]
        for step in range(count)
    ]


@pytest.mark.parametrize("rows, workers, replicas", [(1, 2, 2), (3, 1, 3), (10, 3, 6), (6, 2, 2)])
def test_rows_are_split_in_order_and_the_last_is_repeated_without_weight(rows, workers, replicas):
    random, share = np.random.default_rng(rows), -(-rows // replicas)
    batch = {"a": random.normal(size=(rows, 4)), "b": np.arange(rows)}, np.arange(rows) + 100
    plain = random.uniform(1, 2, (rows, 6)).astype("float32")
    dataset = tf.data.Dataset.from_tensors((*batch, plain)).repeat(2)
    first, second = as_replicas_get_them(split_batches(dataset), workers, replicas, 2)
    assert len(first) == len(second) == replicas
    assert {len(labels) for _, labels, _ in second} == {share}
    *joined, weights = keras.tree.map_structure(lambda *part: np.concatenate(part), *second)
    keras.tree.map_structure(
        lambda found, given: np.testing.assert_array_equal(found[:rows], given),
        (*joined, weights.weights),
        (*batch, plain),
    )
    np.testing.assert_array_equal(joined[0]["b"][rows:], rows - 1)
    np.testing.assert_array_equal(weights.is_real, np.arange(len(weights.is_real)) < rows)
    assert (weights.num_rows == rows).all()
    np.testing.assert_allclose(weights.total_weight, plain.sum(), rtol=1e-6)


@pytest.mark.parametrize("rows, replicas, parts", [(7, 1, 2), (7, 2, 3), (8, 1, 4), (2, 1, 5)])
@pytest.mark.parametrize("weighted", [True, False])
def test_parts_of_shares_are_shares_of_the_same_batch(rows, replicas, parts, weighted):
    inputs = np.arange(3 * rows).reshape(rows, 3)
    weights = np.linspace(1, 2, rows, dtype="float32") if weighted else None
    batch = (inputs, np.arange(rows), weights)
    batches = split_batches(tf.data.Dataset.from_tensors(batch))
    [whole] = as_replicas_get_them(batches, 1, replicas, 1)
    for share in whole:
        divided = in_parts(share, parts)
        assert len(divided) == parts
        assert len({len(labels) for _, labels, _ in divided}) == 1, "one shape"
        for *_, part_weights in divided:
            assert (part_weights.num_rows.numpy() == rows).all()
        is_real = np.concatenate([part_weights.is_real for *_, part_weights in divided]) > 0
        is_row = share[2].is_real > 0
        arrays = zip(*(keras.tree.flatten(part) for part in divided))
        for of_parts, given in zip(arrays, keras.tree.flatten(share), strict=True):
            if given is not None:
                np.testing.assert_array_equal(np.concatenate(of_parts)[is_real], given[is_row])
