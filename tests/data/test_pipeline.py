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


def batches(**options):
    options = {"batch_size": 10, "epochs": 2, **options}
    dataset = pipeline.training_batches(IMAGES, PREPROCESSING, CLASSES, **options)
    return [(x.numpy(), y.numpy()) for x, y in dataset]


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
    augment = Augmentation()
    whole = batches(epochs=3, augment=augment, seed=7)
    rest = batches(epochs=3, augment=augment, seed=7, first_epoch=1)
    assert len(rest) == 10
    for expected, found in zip(whole[5:], rest):
        np.testing.assert_array_equal(found[0], expected[0])
        np.testing.assert_array_equal(found[1], expected[1])
    other = batches(epochs=3, augment=augment, seed=8)
    assert any((a[0] != b[0]).any() for a, b in zip(whole, other))


def test_repeats_stand_in_one_batch():
    found = np.array([numbers(batch) for batch in batches(batch_size=6, repeats=3, epochs=1)])
    assert found.shape == (8, 6)
    for batch in found:
        values, counts = np.unique(batch, return_counts=True)
        assert (counts == 3).all() and len(values) == 2
    assert len(np.unique(found)) == 16


def test_label_smoothing():
    for _, labels in batches(label_smoothing=0.1):
        np.testing.assert_allclose(labels.sum(axis=1), 1.0, atol=1e-6)
        np.testing.assert_allclose(labels.max(axis=1), 0.9 + 0.1 / CLASSES, atol=1e-6)


def test_shapes_are_known_to_the_model():
    dataset = pipeline.training_batches(IMAGES, PREPROCESSING, CLASSES, 10, 1)
    images, labels = dataset.element_spec
    assert images.shape[1:] == (4, 4, 1)
    assert labels.shape[1:] == (CLASSES,)
    assert images.dtype == labels.dtype == tf.float32


def test_test_batches_are_all_images_in_order():
    dataset = pipeline.test_batches(IMAGES, PREPROCESSING, CLASSES, 16)
    found = np.concatenate([numbers((x.numpy(), y)) for x, y in dataset])
    np.testing.assert_array_equal(found, np.arange(COUNT))


@pytest.mark.parametrize("batch_size", [0, -1, 51])
def test_a_bad_batch_size_is_refused(batch_size):
    with pytest.raises(UserError, match=f"from 1 to .* 50. Received: {batch_size}"):
        pipeline.steps_per_epoch(IMAGES, batch_size)
