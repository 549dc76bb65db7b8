"""Batches: every image once an epoch, a pure function of seed and step, soft labels."""

import numpy as np
import pytest
import tensorflow as tf

from zoo.data import pipeline
from zoo.data.images import Images
from zoo.data.preprocessing import ImagePreprocessing
from zoo.errors import UserError
from zoo.training.augmentation import Augmentation

COUNT, CLASSES = 50, 5
PREPROCESSING = ImagePreprocessing((4, 4), 1, (0.0,), (1.0,))
# each image holds its own number, so that it can be recognised in a batch
IMAGES = Images(
    np.arange(COUNT, dtype=np.uint8)[:, None, None, None].repeat(4, 1).repeat(4, 2),
    np.arange(COUNT, dtype=np.int32) % CLASSES,
)


def batches(count=10, batch_size=10, **options):
    """The first `count` batches; five of 10 images are an epoch."""
    dataset = pipeline.training_batches(IMAGES, PREPROCESSING, CLASSES, batch_size, **options)
    return [tuple(t.numpy() for t in batch) for batch in dataset.take(count)]


def numbers(batch):
    return np.round(batch[0][:, 0, 0, 0] * 255).astype(int)


def test_an_epoch_has_every_image_once_and_another_order_than_the_last():
    found = np.array([numbers(batch) for batch in batches()]).reshape(2, COUNT)
    for epoch in found:
        np.testing.assert_array_equal(np.sort(epoch), np.arange(COUNT))
    assert (found[0] != found[1]).any()


def test_labels_go_with_their_images():
    for batch in batches():
        np.testing.assert_array_equal(batch[1].argmax(axis=1), numbers(batch) % CLASSES)
        np.testing.assert_array_equal(batch[1].max(axis=1), 1.0)


def test_a_later_start_continues_the_run():
    """In the middle of an epoch or at its beginning."""
    augment = Augmentation()
    whole = batches(15, augment=augment, seed=7)
    for first_step in (3, 5):
        rest = batches(15 - first_step, augment=augment, seed=7, first_step=first_step)
        for expected, found in zip(whole[first_step:], rest, strict=True):
            for mine, other in zip(expected, found, strict=True):
                np.testing.assert_array_equal(other, mine)
    other = batches(15, augment=augment, seed=8)
    assert any((a[0] != b[0]).any() for a, b in zip(whole, other))


def test_parts_are_the_batch_in_order():
    parts = pipeline.training_batches(IMAGES, PREPROCESSING, CLASSES, 10, accumulation=5)
    for part, batch in zip(parts.take(2), batches(2)):
        assert len(part) == 5
        for found, expected in zip(zip(*part), batch):
            np.testing.assert_array_equal(np.concatenate(found), expected)


def test_repeats_stand_in_one_batch():
    found = np.array([numbers(batch) for batch in batches(8, batch_size=6, repeats=3)])
    assert found.shape == (8, 6)
    for batch in found:
        values, counts = np.unique(batch, return_counts=True)
        assert (counts == 3).all() and len(values) == 2
    assert len(np.unique(found)) == 16


def test_label_smoothing():
    for _, labels, _ in batches(label_smoothing=0.1):
        np.testing.assert_allclose(labels.sum(axis=1), 1.0, atol=1e-6)
        np.testing.assert_allclose(labels.max(axis=1), 0.9 + 0.1 / CLASSES, atol=1e-6)


def test_shapes_are_known_to_the_model():
    dataset = pipeline.training_batches(IMAGES, PREPROCESSING, CLASSES, 10)
    images, labels, weights = dataset.element_spec
    assert images.shape[1:] == (4, 4, 1)
    assert labels.shape[1:] == (CLASSES,)
    assert weights.shape[1:] == ()
    assert images.dtype == labels.dtype == weights.dtype == tf.float32


def test_test_batches_are_all_images_in_order():
    dataset = pipeline.test_batches(IMAGES, PREPROCESSING, CLASSES, 16)
    found = np.concatenate([numbers((batch[0].numpy(),)) for batch in dataset])
    np.testing.assert_array_equal(found, np.arange(COUNT))
    assert len(dataset) == 4


def test_weights_make_means_of_sums():
    """Over a batch in training; over all images, on the mean of the batches, in a test."""
    for _, _, weights in batches(batch_size=7, count=2):
        np.testing.assert_allclose(weights, np.full(7, 1 / 7), rtol=1e-6)
    tested = [w.numpy() for _, _, w in pipeline.test_batches(IMAGES, PREPROCESSING, CLASSES, 16)]
    assert [len(w) for w in tested] == [16, 16, 16, 2]
    np.testing.assert_allclose(np.concatenate(tested) / len(tested), 1 / COUNT, rtol=1e-6)


@pytest.mark.parametrize("batch_size", [0, -1, 51])
def test_a_bad_batch_size_is_refused(batch_size):
    with pytest.raises(UserError, match=f"from 1 to .* 50. Received: {batch_size}"):
        pipeline.steps_per_epoch(IMAGES, batch_size)
