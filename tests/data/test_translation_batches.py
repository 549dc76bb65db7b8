"""Batches of sentence pairs: what is in them, in which order, and what their weights add up to."""

import collections
import itertools
import json
import tracemalloc

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.data.test_encoded_pairs import Letters
from zoo.data.batch_plan import padded_lengths
from zoo.data.encoded_pairs import EncodedPairs, by_length, encode_pairs
from zoo.data.translation_batches import evaluation_batches, steps_per_epoch, training_batches
from zoo.errors import UserError
from zoo.text import BOS_ID, EOS_ID, PAD_ID
from zoo.training.distribution.feeding import _split
from zoo.training.trainer import Trainer

COUNT = 1003


def text(number, length):
    """`length` letters, of which the first three tell the number."""
    digits = (number, number // 20, number // 400)
    return "".join(chr(97 + digit % 20) for digit in digits) + "z" * (length - 3)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """1,003 pairs, all different, of 4 to 40 tokens, the short ones more often."""
    random = np.random.default_rng(0)
    lengths = np.minimum(3 + random.geometric(0.15, (COUNT, 2)), 39)
    stream = [(text(n, s), text(n, t)) for n, (s, t) in enumerate(lengths)]
    return encode_pairs(stream, Letters(), Letters(), tmp_path_factory.mktemp("ids"), 64, "train")


def rows(batches):
    """The real rows of batches: (source ids, decoder input, labels), without padding."""
    for inputs, labels, _ in batches:
        for source, target, label in zip(inputs["source"], inputs["target"], labels):
            if source.any():
                yield tuple(tuple(ids[ids != PAD_ID].tolist()) for ids in (source, target, label))
            else:
                assert not target.any() and not label.any()


def arrays(dataset):
    return list(dataset.as_numpy_iterator())


def trained_on(pairs, tokens, epochs=1, accumulation=1, **settings):
    """The batches of the first epochs, in their order, and the number of updates in an epoch."""
    steps = steps_per_epoch(pairs, tokens, accumulation)
    dataset = training_batches(pairs, tokens, accumulation=accumulation, **settings).whole()
    updates = arrays(dataset.take(epochs * steps))
    return (updates if accumulation == 1 else [b for u in updates for b in u]), steps


def assert_same(first, second):
    assert len(first) == len(second)
    for one, other in zip(first, second):
        keras.tree.map_structure(np.testing.assert_array_equal, one, other)


@pytest.mark.parametrize("tokens, accumulation", [(64, 1), (256, 1), (256, 4), (8192, 1), (999, 3)])
def test_every_pair_occurs_once_in_every_epoch(pairs, tokens, accumulation):
    batches, steps = trained_on(pairs, tokens, 3, accumulation)
    steps *= accumulation
    assert len(batches) == 3 * steps
    expected, _, _ = pairs.batch(np.arange(COUNT), (COUNT, 64), 1.0)
    expected = {tuple(ids[ids != PAD_ID].tolist()) for ids in expected["source"]}
    assert len(expected) == COUNT
    for epoch in range(3):
        found = [source for source, _, _ in rows(batches[epoch * steps : (epoch + 1) * steps])]
        assert len(found) == COUNT and set(found) == expected


def test_source_target_and_labels_belong_together(pairs):
    for source, target, labels in rows(trained_on(pairs, 512)[0]):
        assert source[-1] == labels[-1] == EOS_ID and target[0] == BOS_ID
        assert target[1:] == labels[:-1]
        assert source[:3] == labels[:3], "the number of the pair"
        assert not {PAD_ID, BOS_ID, EOS_ID} & {*source[:-1], *labels[:-1]}


@pytest.mark.parametrize("tokens, num_shapes", [(64, 12), (512, 3), (2048, 5), (512, 1)])
def test_shapes_are_few_and_within_the_tokens(pairs, tokens, num_shapes):
    steps = steps_per_epoch(pairs, tokens, num_shapes=num_shapes)
    dataset = training_batches(pairs, tokens, num_shapes=num_shapes).whole()
    shapes = collections.Counter()
    for inputs, labels, weights in arrays(dataset.take(2 * steps)):
        shapes[inputs["source"].shape] += 1
        assert inputs["source"].shape == inputs["target"].shape == labels.shape == weights.shape
        assert labels.size <= tokens
    assert len(shapes) <= num_shapes
    assert len({length for _, length in shapes}) == len(shapes), "one number of rows a length"


def test_the_order_follows_from_seed_and_epoch(pairs):
    batches, half = trained_on(pairs, 256, 2, seed=5)
    assert_same(batches, trained_on(pairs, 256, 2, seed=5)[0])
    first, second = list(rows(batches[:half])), list(rows(batches[half:]))
    other = list(rows(trained_on(pairs, 256, seed=6)[0]))
    assert first != second and first != other and second != other
    together = [
        {frozenset(rows([batch])) for batch in part} for part in (batches[:half], batches[half:])
    ]
    assert not together[0] & together[1], "pairs meet others in each epoch"
    lengths = [inputs["source"].shape[1] for inputs, _, _ in batches[:half]]
    assert lengths != sorted(lengths) and lengths != sorted(lengths, reverse=True)


@pytest.mark.parametrize("accumulation", [1, 4])
@pytest.mark.parametrize("part", [0.0, 0.5])
def test_a_resumed_run_sees_what_it_would_have_seen(pairs, accumulation, part):
    """At the beginning of an epoch and in the middle of one."""
    options = {"tokens_per_batch": 256, "seed": 1, "accumulation": accumulation}
    steps = steps_per_epoch(pairs, 256, accumulation)
    first = int((2 + part) * steps)
    whole = arrays(training_batches(pairs, **options).whole().take(4 * steps))
    resumed = training_batches(pairs, **options, first_step=first).whole()
    assert_same(arrays(resumed.take(4 * steps - first)), whole[first:])


@pytest.mark.parametrize("accumulation", [1, 2, 5, 16])
def test_weights_make_a_mean_over_the_labels_of_each_update(pairs, accumulation):
    batches, _ = trained_on(pairs, 512, accumulation=accumulation)
    for start in range(0, len(batches), accumulation):
        group = batches[start : start + accumulation]
        total = sum((labels != PAD_ID).sum() for _, labels, _ in group)
        for _, labels, weights in group:
            np.testing.assert_allclose(weights, np.where(labels == PAD_ID, 0, 1 / total), rtol=1e-6)


@pytest.mark.parametrize("replicas, workers", [(2, 1), (2, 2), (3, 3), (3, 1), (4, 2), (6, 3)])
@pytest.mark.parametrize("accumulation", [1, 3])
def test_workers_make_what_one_device_makes(pairs, replicas, workers, accumulation):
    """To the bit, and split as any data set is split."""
    batches = training_batches(pairs, 500, seed=2, first_step=40, accumulation=accumulation)
    check_parts(batches, replicas, workers, steps=40)


@pytest.mark.parametrize("replicas, workers", [(2, 2), (3, 3), (6, 3)])
@pytest.mark.parametrize("tokens", [64, 500, 10**6])
def test_workers_evaluate_what_one_device_evaluates(pairs, replicas, workers, tokens):
    """Also with fewer rows than replicas."""
    batches = evaluation_batches(pairs, tokens)
    check_parts(batches, replicas, workers, steps=min(batches.num_batches, 60))


def check_parts(batches, replicas, workers, steps):
    own = replicas // workers
    found = [
        arrays(
            batches.parts(tf.distribute.InputContext(workers, worker, replicas)).take(own * steps)
        )
        for worker in range(workers)
    ]
    whole = batches.whole().take(steps).map(lambda *batch: _split(batch, replicas))
    for step, expected in enumerate(arrays(whole)):
        for replica in range(replicas):
            worker, place = divmod(replica, own)
            part = keras.tree.map_structure(lambda array: array[replica], expected)  # noqa: B023
            keras.tree.map_structure(
                np.testing.assert_array_equal, found[worker][step * own + place], part
            )


def test_a_million_pairs_are_planned_in_little_memory(tmp_path):
    """Their order alone, an array of int64, would take 8 MB."""
    count, lengths = 10**6, np.random.default_rng(0).integers(1, 5, 10**6)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    order, counts = by_length(lengths + 1)
    ids = np.full(offsets[-1], 9, np.int32)
    for name, array in {
        **dict.fromkeys(("source", "target"), ids),
        **dict.fromkeys(("source_offsets", "target_offsets"), offsets),
        **{"longest_first": order, "length_counts": counts},
    }.items():
        np.save(tmp_path / f"{name}.npy", array)
    tokens = int(offsets[-1]) + count
    (tmp_path / "counts.json").write_text(json.dumps({"skipped": 0, "num_tokens": tokens}))
    del ids, offsets, order, lengths
    next(iter(training_batches(EncodedPairs(tmp_path), 4096).whole()))  # what is imported late
    tracemalloc.start()
    try:
        pairs = EncodedPairs(tmp_path)
        steps = steps_per_epoch(pairs, 4096)
        batches = training_batches(pairs, 4096, first_step=steps - 3).whole().take(6)
        assert len(arrays(batches)) == 6, "of two epochs"
        assert len(arrays(evaluation_batches(pairs, 4096).whole().take(3))) == 3
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert steps > 600 and peak < 4e6


def test_what_does_not_fill_a_batch_goes_with_longer_pairs(tmp_path):
    """11 pairs of length 4, 2 of 8: batches of 8 rows and of 4 rows."""
    stream = [(text(n, 3), text(n, 3)) for n in range(11)]
    stream += [(text(n, 7), text(n, 7)) for n in range(11, 13)]
    pairs = encode_pairs(stream, Letters(), Letters(), tmp_path, 64, "train")
    steps = steps_per_epoch(pairs, 32, num_shapes=2)
    batches = arrays(training_batches(pairs, 32, num_shapes=2).whole().take(steps))
    shapes = sorted(labels.shape for _, labels, _ in batches)
    # eight short ones; three short ones carried and a long one; a long one and three empty rows
    assert shapes == [(4, 8), (4, 8), (8, 4)]
    found = sorted(
        tuple(sorted(len(labels) for _, _, labels in rows([batch]))) for batch in batches
    )
    assert found == [(4,) * 8, (4, 4, 4, 8), (8,)]


def test_more_batches_to_an_update_than_pairs(tmp_path):
    """Some batches are then empty, and nothing is lost or divided by zero."""
    stream = [(text(n, 5), text(n, 5)) for n in range(3)]
    pairs = encode_pairs(stream, Letters(), Letters(), tmp_path, 64, "train")
    batches, steps = trained_on(pairs, 64, accumulation=7)
    assert steps == 1 and len(batches) == 7 and len(list(rows(batches))) == 3
    assert sum(weights.sum() for _, _, weights in batches) == pytest.approx(1, rel=1e-6)


def test_a_pair_that_fits_in_no_batch(pairs):
    longest = len(pairs.length_counts) - 1
    for make in (
        lambda tokens: steps_per_epoch(pairs, tokens),
        lambda tokens: training_batches(pairs, tokens),
        lambda tokens: evaluation_batches(pairs, tokens),
    ):
        with pytest.raises(UserError, match=f"{longest} tokens on a side, more than the 39"):
            make(39)
        make(longest)


@pytest.mark.parametrize("tokens", [64, 512, 10**6])
def test_evaluation_batches(pairs, tokens):
    batches = arrays(evaluation_batches(pairs, tokens).whole())
    assert len(batches) == evaluation_batches(pairs, tokens).num_batches
    assert_same(batches, arrays(evaluation_batches(pairs, tokens).whole()))
    assert len({len(labels) for _, labels, _ in batches}) == 1
    assert all(labels.size <= tokens for _, labels, _ in batches)
    found = list(rows(batches))
    assert len(found) == len(set(found)) == COUNT
    lengths = [max(len(source), len(labels)) for source, _, labels in found]
    assert lengths == sorted(lengths, reverse=True)
    expected = len(batches) / pairs.num_tokens
    for _, labels, weights in batches:
        np.testing.assert_allclose(weights, np.where(labels == PAD_ID, 0, expected), rtol=1e-6)


def test_the_loss_is_the_mean_over_all_labels(pairs):
    """Evaluated over batches; and one update of as many accumulated batches as an epoch has."""
    size, random = 32, np.random.default_rng(0)
    table = random.normal(size=(size, size)).astype("float32")
    inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in ("source", "target")}
    embedding = keras.layers.Embedding(size, size)
    model = keras.Model(inputs, embedding(inputs["target"]))
    embedding.set_weights([table])
    count = steps_per_epoch(pairs, 1024)
    assert count > 5
    trainer = Trainer(model)
    trainer.compile(
        keras.optimizers.SGD(1.0),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum"),
    )

    inputs, labels, _ = pairs.batch(np.arange(COUNT), (COUNT, 64), 1.0)
    target, labels = inputs["target"][labels != PAD_ID], labels[labels != PAD_ID]
    probabilities = np.exp(table[target].astype("float64"))
    probabilities /= probabilities.sum(axis=-1, keepdims=True)
    each = np.arange(len(labels))
    loss = -np.log(probabilities[each, labels]).mean()
    # float32 sums of some ten thousand terms
    assert trainer.evaluate(evaluation_batches(pairs, 1024), verbose=0) == pytest.approx(loss, 1e-5)

    probabilities[each, labels] -= 1  # now the gradient of each label's loss by its logits
    gradient = np.zeros_like(table, dtype="float64")
    np.add.at(gradient, target, probabilities / len(labels))
    batches = training_batches(pairs, 1024, accumulation=count)
    trainer.fit(batches, steps_per_epoch=1, epochs=1, verbose=0)
    # float32 sums of thousands of terms for the commonest letter
    np.testing.assert_allclose(embedding.get_weights()[0], table - gradient, atol=5e-6)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 20])
@pytest.mark.parametrize("seed", range(5))
def test_no_other_lengths_pad_less(count, seed):
    random = np.random.default_rng(seed)
    lengths = random.choice(random.integers(2, 60, 9), 200)
    found = padded_lengths(np.bincount(lengths), count)
    assert len(found) <= count and (np.diff(found) > 0).all() and found[-1] == lengths.max()

    def tokens(padded):
        padded = np.array(sorted(padded))
        return padded[np.searchsorted(padded, lengths)].sum()

    shorter = sorted({*lengths.tolist()} - {int(lengths.max())})
    choices = itertools.combinations(shorter, min(count - 1, len(shorter)))
    assert tokens(found) == min(tokens((*choice, lengths.max())) for choice in choices)


def test_lengths_of_thousands_are_padded_to_few():
    lengths = np.random.default_rng(0).integers(1, 5000, 20_000)
    found = padded_lengths(np.bincount(lengths), 8)
    assert len(found) <= 8 and found[-1] == lengths.max()
    assert lengths.sum() / found[np.searchsorted(found, lengths)].sum() > 0.85
