"""Batches of tokens: what is in them, in which order, and what their weights add up to."""

import itertools
import tracemalloc

import keras
import numpy as np
import pytest

from tests.data.test_tokenized_corpus import Letters
from zoo.data import token_batches
from zoo.data.labeled_text import EncodedTexts, LabeledTexts
from zoo.data.token_batches import (
    evaluation_batches,
    padded_lengths,
    shuffled,
    steps_per_epoch,
    training_batches,
)
from zoo.data.token_store import Sequences
from zoo.data.tokenized_corpus import EncodedPairs, encode_pairs
from zoo.errors import UserError
from zoo.text import BOS_ID, EOS_ID, PAD_ID
from zoo.text.sentencepiece import train_tokenizer

COUNT = 1003


def text(number, length):
    """`length` letters, of which the first three tell the number."""
    digits = (number, number // 20, number // 400)
    return "".join(chr(97 + digit % 20) for digit in digits) + "z" * (length - 3)


def encoded(lengths):
    stream = [(text(n, source), text(n, target)) for n, (source, target) in enumerate(lengths)]
    return encode_pairs(stream, Letters(), Letters(), 64, "train")


@pytest.fixture(scope="module")
def pairs():
    """1,003 pairs, all different, of 4 to 40 tokens, the short ones more often."""
    random = np.random.default_rng(0)
    lengths = np.minimum(3 + random.geometric(0.15, (COUNT, 2)), 39)
    return encoded(lengths)


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


def trained_on(pairs, tokens, epochs=1, **settings):
    """The batches of the first epochs, in their order, and the number of batches in an epoch."""
    steps = steps_per_epoch(pairs, tokens)
    dataset = training_batches(pairs, tokens, **settings).whole()
    return arrays(dataset.take(epochs * steps)), steps


def assert_same(first, second):
    keras.tree.map_structure(np.testing.assert_array_equal, first, second)


@pytest.mark.parametrize("tokens", [64, 256, 999, 8192])
def test_an_epoch_has_every_pair_once_and_weights_of_one(pairs, tokens):
    batches, steps = trained_on(pairs, tokens, 2)
    assert len(batches) == 2 * steps
    expected = set(rows([pairs.batch(np.arange(COUNT), (COUNT, 64))]))
    assert len(expected) == COUNT
    for epoch in (batches[:steps], batches[steps:]):
        found = list(rows(epoch))
        assert len(found) == COUNT and set(found) == expected
    for inputs, labels, weights in batches:
        np.testing.assert_array_equal(weights, labels != PAD_ID)
        assert inputs["source"].size <= tokens


def test_source_target_and_labels_belong_together(pairs):
    for source, target, labels in rows(trained_on(pairs, 512)[0]):
        assert source[-1] == labels[-1] == EOS_ID and target[0] == BOS_ID
        assert target[1:] == labels[:-1]
        assert source[:3] == labels[:3], "the number of the pair"
        assert not {PAD_ID, BOS_ID, EOS_ID} & {*source[:-1], *labels[:-1]}


@pytest.mark.parametrize("tokens, num_shapes", [(64, 12), (512, 3), (512, 1)])
def test_shapes_are_few_and_within_the_tokens(pairs, tokens, num_shapes, monkeypatch):
    monkeypatch.setattr(token_batches, "MAX_SHAPES", num_shapes)
    shapes = set()
    for inputs, labels, weights in trained_on(pairs, tokens, 2)[0]:
        shapes.add(labels.shape)
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


def test_a_resumed_run_sees_what_it_would_have_seen(pairs):
    """From the beginning of an epoch and from the middle of one."""
    options = {"tokens_per_batch": 256, "seed": 1}
    steps = steps_per_epoch(pairs, 256)
    whole = arrays(training_batches(pairs, **options).whole().take(3 * steps))
    for first in (2 * steps, int(1.5 * steps)):
        resumed = training_batches(pairs, **options, first_step=first).whole()
        assert_same(arrays(resumed.take(3 * steps - first)), whole[first:])


@pytest.mark.parametrize("size", [1, 3, 8, 10_007])
def test_shuffling_has_every_number_once(size):
    """Also of several sizes at once; and every order occurs."""
    found = shuffled(np.arange(size), size, size, np.int64(0)).numpy()
    np.testing.assert_array_equal(np.sort(found), np.arange(size))
    together = shuffled(np.array([size - 1, 0]), np.array([size, 7]), size, np.int64(0))
    np.testing.assert_array_equal(together, [found[-1], shuffled([0], 7, size, np.int64(0))[0]])
    if size > 100:  # neighbors are on average a third of the size apart
        assert abs(np.abs(np.diff(found)).mean() / (size / 3) - 1) < 0.2
    if size == 3:
        orders = {tuple(shuffled(np.arange(3), 3, 1, epoch).numpy()) for epoch in np.arange(100)}
        assert len(orders) == 6


def test_a_million_pairs_are_planned_in_little_memory():
    """Their order alone, an array of int64, would take 8 MB."""
    lengths = np.random.default_rng(0).integers(1, 5, 10**6)
    sides = Sequences.concatenated([9] * length for length in np.repeat(lengths, 2))
    pairs = EncodedPairs(sides)
    next(iter(training_batches(pairs, 4096).whole()))  # late imports
    tracemalloc.start()
    try:
        steps = steps_per_epoch(pairs, 4096)
        batches = training_batches(pairs, 4096, first_step=steps - 3).whole().take(6)
        assert len(arrays(batches)) == 6, "of two epochs"
        assert len(arrays(evaluation_batches(pairs, 4096).whole().take(3))) == 3
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(pairs) == 10**6 and steps > 600 and peak < 4e6


def test_pairs_that_do_not_fill_a_batch_go_with_longer_ones():
    """11 pairs of length 4, 2 of 8: batches of 8 rows and of 4 rows."""
    pairs = encoded(11 * [(3, 3)] + 2 * [(7, 7)])
    batches, _ = trained_on(pairs, 32)
    shapes = sorted(labels.shape for _, labels, _ in batches)
    # eight short ones; three short ones carried and a long one; a long one and three empty rows
    assert shapes == [(4, 8), (4, 8), (8, 4)]
    found = sorted(sorted(len(labels) for _, _, labels in rows([batch])) for batch in batches)
    assert found == [[4] * 8, [4, 4, 4, 8], [8]]


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_the_largest_step_has_the_longest_pairs(pairs, seed):
    batches, _ = trained_on(pairs, 256, seed=seed)
    lengths = [labels.shape[1] for _, labels, _ in batches]
    step = training_batches(pairs, 256, seed).largest_step
    assert lengths[step] == max(lengths) > min(lengths)


def test_a_pair_that_fits_in_no_batch(pairs):
    longest = len(pairs.length_counts) - 1
    for make in (steps_per_epoch, training_batches, evaluation_batches):
        with pytest.raises(UserError, match=f"{longest} tokens on a side, more than the 39"):
            make(pairs, 39)
        make(pairs, longest)


@pytest.mark.parametrize("tokens", [64, 512, 10**6])
def test_evaluation_batches(pairs, tokens):
    batches = arrays(evaluation_batches(pairs, tokens).whole())
    assert len(batches) == evaluation_batches(pairs, tokens).num_batches
    assert len({labels.shape for _, labels, _ in batches}) <= token_batches.MAX_SHAPES
    assert all(labels.size <= tokens for _, labels, _ in batches)
    found = list(rows(batches))
    assert len(found) == len(set(found)) == COUNT
    lengths = [max(len(source), len(labels)) for source, _, labels in found]
    assert lengths == sorted(lengths)
    for _, labels, weights in batches:
        np.testing.assert_array_equal(weights, labels != PAD_ID)
    assert sum(weights.sum() for *_, weights in batches) == pairs.num_tokens


@pytest.mark.parametrize("count", [1, 2, 4, 20])
def test_no_other_lengths_pad_less(count):
    random = np.random.default_rng(count)
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


TOKENIZER = train_tokenizer(["a"], "character", 300)


@pytest.fixture(scope="module")
def texts():
    """501 different texts of 4 to 40 bytes; the label is the number modulo 7."""
    lengths = np.minimum(np.random.default_rng(0).geometric(0.1, 501), 36)
    strings = [f"{n:03}" + "x" * length for n, length in enumerate(lengths)]
    return LabeledTexts(strings, np.arange(501, dtype=np.int32) % 7)


def items(batches):
    """The (text, label, weight) of all real rows."""
    for tokens, labels, weights in batches:
        for row, label, weight in zip(tokens, labels, weights, strict=True):
            if row.any():
                row = row[row != PAD_ID]
                assert row[0] == BOS_ID and row[-1] == EOS_ID
                yield TOKENIZER.decode([row])[0], int(label), float(weight)
            else:
                assert weight == 0


def test_texts_occur_once_in_an_epoch_with_their_labels(texts):
    encoded = EncodedTexts(texts, TOKENIZER, 64)
    batches, _ = trained_on(encoded, 256)
    expected = sorted(zip(texts.texts, texts.labels.tolist()))
    assert sorted((text, label) for text, label, _ in items(batches)) == expected
    for tokens, _, weights in batches:
        assert tokens.size <= 256 and {*weights} <= {0, 1}
    batches = arrays(evaluation_batches(encoded, 256).whole())
    assert sorted((text, label) for text, label, _ in items(batches)) == expected


def test_long_texts_are_truncated_and_counted(texts):
    encoded = EncodedTexts(texts, TOKENIZER, 10)
    assert len(encoded) == 501 and len(encoded.length_counts) == 11
    # two control ids and the space before the first word
    assert encoded.truncated == sum(len(text) > 7 for text in texts.texts) > 0
    found = {text: label for text, label, _ in items([encoded.batch(np.arange(501), (512, 10))])}
    assert found == {text[:7]: label for text, label in zip(texts.texts, texts.labels)}
