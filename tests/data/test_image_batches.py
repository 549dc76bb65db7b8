"""Batches: every image once an epoch, a pure function of seed, step and row, soft labels."""

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from tests.data.test_worker_batches import as_replicas_get_them
from zoo.data import image_batches, plain_text
from zoo.data.image_folder import image_folder
from zoo.data.images import Images, unreadable_images_named
from zoo.data.preprocessing import ImagePreprocessing, random_resized_crop
from zoo.errors import DataError, UserError
from zoo.training import rand_augment
from zoo.training.augmentation import Augmentation

COUNT, CLASSES = 50, 5
# each image holds its own number, so that it can be recognized in a batch
LABELS = np.arange(COUNT, dtype=np.int32) % CLASSES
PIXELS = np.arange(COUNT, dtype=np.uint8)[:, None, None, None].repeat(4, 1).repeat(4, 2)
IMAGES = Images(np.arange(COUNT), None, str, decoded=(PIXELS, LABELS))


def batches(count=10, batch_size=10, **options):
    """The first `count` batches; five of 10 images are an epoch."""
    dataset = image_batches.training_batches(IMAGES, CLASSES, batch_size, **options).whole()
    return [tuple(t.numpy() for t in batch) for batch in dataset.take(count)]


def numbers(batch):
    return batch[0][:, 0, 0, 0].astype(int)


def test_an_epoch_has_every_image_once_and_another_order_than_the_last():
    found = batches()
    for batch in found:
        np.testing.assert_array_equal(batch[1].argmax(axis=1), numbers(batch) % CLASSES)
        np.testing.assert_array_equal(batch[1].max(axis=1), 1.0)
    found = np.array([numbers(batch) for batch in found]).reshape(2, COUNT)
    for epoch in found:
        np.testing.assert_array_equal(np.sort(epoch), np.arange(COUNT))
    assert (found[0] != found[1]).any()


def test_a_later_start_continues_the_run():
    """In the middle of an epoch or at its beginning."""
    augment = Augmentation(randaugment_num_ops=0, mix_probability=0.0)
    whole = batches(8, augment=augment, seed=7)
    for first_step in (3, 5):
        rest = batches(8 - first_step, augment=augment, seed=7, first_step=first_step)
        for expected, found in zip(whole[first_step:], rest, strict=True):
            for mine, other in zip(expected, found, strict=True):
                np.testing.assert_array_equal(other, mine)
    other = batches(1, augment=augment, seed=8)
    assert (whole[0][0] != other[0][0]).any()


def test_label_smoothing_and_weights():
    for _, labels, weights in batches(label_smoothing=0.1):
        np.testing.assert_array_equal(weights, np.ones(10))
        np.testing.assert_allclose(labels.sum(axis=1), 1.0, atol=1e-6)
        np.testing.assert_allclose(labels.max(axis=1), 0.9 + 0.1 / CLASSES, atol=1e-6)


def test_evaluation_batches_are_all_images_in_order_and_rows_without_weight():
    tested = image_batches.evaluation_batches(IMAGES, CLASSES, 16)
    batches = [tuple(t.numpy() for t in batch) for batch in tested.whole()]
    found = np.concatenate([numbers(batch)[batch[2] > 0] for batch in batches])
    np.testing.assert_array_equal(found, np.arange(COUNT))
    assert len(batches) == tested.num_batches == 4
    weights = np.concatenate([batch[2] for batch in batches])
    np.testing.assert_array_equal(weights, np.arange(64) < COUNT)
    for context in (tf.distribute.InputContext(), tf.distribute.InputContext(1, 0, 2)):
        totals = [batch[2].total_weight[0] for batch in tested.shares(context)]
        assert {16, COUNT % 16} == {*np.array(totals)}


def test_the_end_of_training_is_not_waited_for():
    """TensorFlow ends a data set that it tunes up to a minute after the last batch is read."""
    for dataset in (
        image_batches.training_batches(IMAGES, CLASSES, 10).whole(),
        image_batches.evaluation_batches(IMAGES, CLASSES, 10).whole(),
        image_batches.training_batches(IMAGES, CLASSES, 10).shares(
            tf.distribute.InputContext(2, 1, 2)
        ),
        plain_text.training_windows(np.arange(1000, dtype=np.int32), 4, 16).whole(),
        plain_text.evaluation_windows(np.arange(1000, dtype=np.int32), 4, 16).whole(),
    ):
        assert dataset.options().autotune.enabled is False


@pytest.mark.parametrize("batch_size", [0, -1, 51])
def test_a_bad_batch_size_is_refused(batch_size):
    with pytest.raises(UserError, match=f"from 1 to .* 50. Received: {batch_size}"):
        image_batches.steps_per_epoch(IMAGES, batch_size)


@pytest.mark.parametrize(
    "workers, replicas, options",
    [
        (2, 2, {"min_crop_area": 0.3}),
        pytest.param(1, 2, {}, marks=pytest.mark.slow),
        pytest.param(2, 6, {}, marks=pytest.mark.slow),
    ],
)
def test_any_number_of_workers_computes_the_same_rows(workers, replicas, options, monkeypatch):
    """To the bit: what is drawn for a row, and whom it is mixed with, depends on its number."""
    few = {
        name: rand_augment.OPERATIONS[name] for name in ("identity", "brightness", "translate_x")
    }
    monkeypatch.setattr(rand_augment, "OPERATIONS", few)
    # a batch of 44 has two whole groups and a part of one
    augment = Augmentation(
        randaugment_num_ops=1, randaugment_probability=1.0, erase_probability=0.5
    )
    pixels = np.random.default_rng(0).integers(0, 256, (50, 6, 5, 3), "u1")
    images = Images(np.arange(50), None, str, decoded=(pixels, LABELS))
    if "min_crop_area" in options:
        files = tf.stack([tf.io.encode_png(image) for image in pixels])
        preprocessing = ImagePreprocessing((6, 5), 3)
        images = Images(
            np.arange(50), lambda n: (files[n], tf.cast(n % CLASSES, tf.int32)), str, preprocessing
        )
    batches = image_batches.training_batches(images, CLASSES, 44, augment, **options)
    whole = list(batches.whole().take(2).as_numpy_iterator())
    found = as_replicas_get_them(batches, workers, replicas, 2)
    for expected, parts in zip(whole, found, strict=True):
        pixels, labels, shares = zip(*parts)
        real = np.concatenate([share.is_real for share in shares]) > 0
        for share in shares:
            assert (share.num_rows == 44).all() and (share.total_weight == 44).all()
        weights = [share.weights for share in shares]
        for found, known in zip((pixels, labels, weights), expected, strict=True):
            np.testing.assert_array_equal(np.concatenate(found)[real], known)


def test_a_worker_computes_few_other_rows():
    for workers in (1, 4):
        contexts = [tf.distribute.InputContext(workers, n, workers) for n in range(workers)]
        rows = [image_batches._WorkerRows(128, context).indices for context in contexts]
        assert [len(own) for own in rows] == [128 // workers] * workers


@pytest.fixture
def folder(tmp_path):
    """40 photographs of different sizes, of two classes; their brightness tells their number."""
    for number in range(40):
        pixels = np.full((20 + number, 60 - number, 3), 6 * number, np.uint8)
        path = tmp_path / "train" / "ab"[number % 2] / f"{number:02}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    return tmp_path


def test_images_that_cannot_be_read_are_named(folder):
    data = image_folder(folder).loaded((8, 8), streamed=True)
    lost = folder / "train" / "a" / "10.jpg"
    lost.write_bytes(lost.read_bytes()[:150])
    batches = image_batches.training_batches(data.train, 2, 12, min_crop_area=0.2).whole()
    message = "1 of 36 images cannot be read. Repair or remove them: .*10.jpg cannot be read as"
    with pytest.raises(DataError, match=message), unreadable_images_named(data.train, None):
        arrays = list(batches.take(3).as_numpy_iterator())
        assert not arrays
    with unreadable_images_named(data.test):
        assert len(list(image_batches.evaluation_batches(data.test, 2, 3).whole())) == 2


def test_random_crops_are_parts_of_the_image(folder):
    """Of a ramp from 0 to 200, a part is a ramp of at least its share."""
    ramp = np.linspace(0, 200, 90)[None, :, None].repeat(70, 0).repeat(3, 2).astype(np.uint8)
    Image.fromarray(ramp).save(folder / "ramp.jpg", quality=95)
    data = tf.io.read_file(str(folder / "ramp.jpg"))
    for image in (data, tf.io.encode_png(ramp)):
        crops = [random_resized_crop(image, [0, s], (12, 10, 3), 0.25).numpy() for s in range(30)]
        spans = np.array([float(c[6, -1, 0]) - float(c[6, 0, 0]) for c in crops])
        assert all(crop.shape == (12, 10, 3) for crop in crops)
        assert 40 < spans.min() < 100 and 120 < spans.max() <= 200
    # the part of a JPEG is that of its pixels, but for the losses of the format
    found = random_resized_crop(data, [0, 0], (12, 10, 3), 0.25)
    np.testing.assert_allclose(crops[0].astype(float), found, atol=9)


@pytest.mark.parametrize("workers, replicas", [(1, 1), (1, 2), (2, 2)])
def test_the_device_augments_as_the_cpu_does(workers, replicas):
    """To the bit, with whole groups of rows in each replica."""
    pixels = np.random.default_rng(0).integers(0, 256, (50, 8, 8, 3), "u1")
    images = Images(np.arange(50), None, str, decoded=(pixels, LABELS))
    settings = {"augment": Augmentation(), "label_smoothing": 0.1, "seed": 3}
    expected = image_batches.training_batches(images, CLASSES, 32, **settings)
    later = image_batches.training_batches(images, CLASSES, 32, **settings, on_device=True)
    [whole] = expected.whole().take(1).as_numpy_iterator()
    [[(inputs, labels, _)]] = as_replicas_get_them(later, 1, 1, 1)
    assert (inputs["pixels"] != whole[0]).any() and (labels != whole[1]).any()
    for found, known in zip(*later.whole().take(1).as_numpy_iterator(), whole, strict=True):
        np.testing.assert_array_equal(found, known)
    [shares] = as_replicas_get_them(later, workers, replicas, 1)
    parts = [later.on_device(inputs, labels) for inputs, labels, _ in shares]
    for found, known in zip(zip(*parts), whole):
        np.testing.assert_array_equal(np.concatenate(found), known)


def test_all_seeds_that_settings_allow():
    for seed, stored in ((0, 0), (7, 7), (2**31, -(2**31)), (2**32 - 1, -1)):
        assert image_batches._seed(seed, 3).numpy().tolist() == [stored, 3]
