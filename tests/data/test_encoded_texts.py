"""Labeled texts as batches of tokens: each once in an epoch, with its label and weight."""

import numpy as np
import pytest

from zoo.data.encoded_texts import EncodedTexts
from zoo.data.labeled_text import LabeledTexts
from zoo.data.translation_batches import evaluation_batches, steps_per_epoch, training_batches
from zoo.text import BOS_ID, EOS_ID, PAD_ID
from zoo.text.tokenizer import train_tokenizer

COUNT = 501
TOKENIZER = train_tokenizer(["a"], "character", 300)


@pytest.fixture(scope="module")
def texts():
    """501 different texts of 4 to 40 bytes; the label is the number modulo 7."""
    random = np.random.default_rng(0)
    lengths = np.minimum(random.geometric(0.1, COUNT), 36)
    strings = [f"{n:03}" + "x" * length for n, length in enumerate(lengths)]
    return LabeledTexts(strings, np.arange(COUNT, dtype=np.int32) % 7)


@pytest.fixture(scope="module")
def encoded(texts):
    return EncodedTexts(texts, TOKENIZER, 64)


def items(batches):
    """The (text, label, weight) of all real rows."""
    for tokens, labels, weights in batches:
        assert tokens.shape[0] == len(labels) == len(weights)
        for row, label, weight in zip(tokens, labels, weights):
            if row.any():
                row = row[row != PAD_ID]
                assert row[0] == BOS_ID and row[-1] == EOS_ID
                yield TOKENIZER.decode([row])[0], int(label), float(weight)
            else:
                assert weight == 0


def test_every_text_occurs_once_in_every_epoch_with_its_label(texts, encoded):
    steps = steps_per_epoch(encoded, 256)
    batches = list(
        training_batches(encoded, 256, seed=1).whole().take(2 * steps).as_numpy_iterator()
    )
    expected = sorted(zip(texts.texts, texts.labels.tolist()))
    epochs = [list(items(part)) for part in (batches[:steps], batches[steps:])]
    for epoch in epochs:
        assert sorted((text, label) for text, label, _ in epoch) == expected
    assert epochs[0] != epochs[1]
    for batch in batches:
        assert batch[0].size <= 256
        np.testing.assert_allclose(batch[2].sum(), 1, rtol=1e-6)
        assert len(set(batch[2]) - {0}) == 1


def test_a_resumed_run_sees_what_it_would_have_seen(encoded):
    steps = steps_per_epoch(encoded, 256)
    whole = list(training_batches(encoded, 256, seed=1).whole().take(2 * steps).as_numpy_iterator())
    first = steps + 3
    resumed = training_batches(encoded, 256, seed=1, first_step=first).whole()
    resumed = resumed.take(2 * steps - first).as_numpy_iterator()
    for one, other in zip(resumed, whole[first:], strict=True):
        for found, expected in zip(one, other):
            np.testing.assert_array_equal(found, expected)


def test_the_mean_over_evaluation_batches_is_that_over_the_texts(texts, encoded):
    dataset = evaluation_batches(encoded, 256)
    batches = list(dataset.whole().as_numpy_iterator())
    assert dataset.num_batches == len(batches) > 1
    found = list(items(batches))
    assert sorted(text for text, _, _ in found) == sorted(texts.texts)
    mean = sum(label * weight for _, label, weight in found) / len(batches)
    np.testing.assert_allclose(mean, texts.labels.mean(), rtol=1e-6)


def test_long_texts_are_truncated_and_counted(texts):
    encoded = EncodedTexts(texts, TOKENIZER, 10)
    assert len(encoded) == COUNT and len(encoded.length_counts) == 11
    # two control ids and the space before the first word
    assert encoded.truncated == sum(len(text) > 7 for text in texts.texts) > 0
    found = {
        text: label for text, label, _ in items([encoded.batch(np.arange(COUNT), (512, 10), 1)])
    }
    assert found == {text[:7]: label for text, label in zip(texts.texts, texts.labels)}
