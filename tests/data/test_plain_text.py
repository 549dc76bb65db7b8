"""Text files and windows of their tokens."""

import numpy as np
import pytest
import tensorflow as tf

from zoo.data import plain_text
from zoo.errors import UserError
from zoo.text import BOS_ID, PAD_ID

TOKENS = np.arange(300, 1000, dtype=np.int32)


def taken(dataset, count):
    return [tuple(map(np.asarray, batch)) for batch in dataset.whole().take(count)]


def test_windows_are_parts_of_the_text_in_another_order_each_epoch():
    steps, epochs = plain_text.steps_per_epoch(TOKENS, 4, 16), []
    batches = taken(plain_text.training_windows(TOKENS, 4, 16, seed=1), 2 * steps)
    for epoch in (batches[:steps], batches[steps:]):
        labels = np.concatenate([batch[1] for batch in epoch])
        assert (np.diff(labels, axis=1) == 1).all(), "consecutive tokens"
        assert len(np.unique(labels)) == labels.size, "no token twice"
        assert labels.size > 0.8 * len(TOKENS)
        epochs.append(labels)
    assert not np.array_equal(*epochs)
    assert (np.sort(epochs[0], axis=0)[0] != np.sort(epochs[1], axis=0)[0]).any(), "other places"
    for inputs, labels, weights in batches:
        assert (inputs[:, 0] == BOS_ID).all()
        np.testing.assert_array_equal(inputs[:, 1:], labels[:, :-1])
        np.testing.assert_array_equal(weights, np.ones((4, 16)))


@pytest.mark.parametrize("first_step", [1, 10, 13])
def test_a_later_start_continues(first_step):
    whole = taken(plain_text.training_windows(TOKENS, 4, 16, seed=1), 16)
    rest = taken(plain_text.training_windows(TOKENS, 4, 16, 1, first_step), 16 - first_step)
    tf.nest.map_structure(np.testing.assert_array_equal, rest, whole[first_step:])


@pytest.mark.parametrize("count", [1, 63, 64, 65, 700])
def test_evaluation_counts_each_token_once(count):
    dataset = plain_text.evaluation_windows(TOKENS[:count], 4, 16)
    batches = taken(dataset, dataset.num_batches + 1)
    assert len(batches) == dataset.num_batches
    inputs, labels, weights = (np.concatenate(parts) for parts in zip(*batches))
    np.testing.assert_array_equal(labels[weights > 0], TOKENS[:count])
    assert {*weights.flat} <= {0, 1}
    assert (labels[weights == 0] == PAD_ID).all()


def test_too_few_tokens():
    with pytest.raises(UserError, match="too few for a batch of 4 windows of 16 tokens"):
        plain_text.training_windows(TOKENS[:79], 4, 16)
    plain_text.training_windows(TOKENS[:80], 4, 16)


def test_the_end_of_each_text_is_held_out():
    texts = ["a" * 200 + "b" * 10, "c" * 19]
    train, valid = plain_text.hold_out(texts)
    assert [one + other for one, other in zip(train, [*valid, ""])] == texts
    assert valid == ["b" * 10]


@pytest.mark.parametrize("texts", [["too short"] * 3, ["a" * 90 + "\n" * 30]])
def test_nothing_to_hold_out(texts):
    with pytest.raises(UserError, match="The last 5% of each text, .* contain no text"):
        plain_text.hold_out(texts)


def test_line_ends_and_a_byte_order_mark_are_not_text(tmp_path):
    (tmp_path / "text.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    assert plain_text.read_texts([tmp_path / "text.txt"]) == ["one\ntwo\n"]
    (tmp_path / "text.txt").write_text(" \n")
    with pytest.raises(UserError, match=r"text\.txt contains no text"):
        plain_text.read_texts([tmp_path / "text.txt"])
    with pytest.raises(UserError, match="No such file"):
        plain_text.read_texts([tmp_path / "nowhere.txt"])


def test_the_projects_texts_are_read():
    texts = plain_text.project_texts()
    assert any("softmax" in text for text in texts) and sum(map(len, texts)) > 300_000
