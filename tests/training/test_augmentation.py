"""Properties of the augmentation: what it may change, what it must not, and who decides."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from zoo.data.image_batches import BatchRows
from zoo.training import augmentation, rand_augment
from zoo.training.augmentation import Augmentation
from zoo.training.rand_augment import OPERATIONS

SEED = tf.constant([3, 5])
OFF = {"crop_padding": 0, "randaugment_num_ops": 0}
OFF |= dict.fromkeys(("flip_probability", "erase_probability", "mix_probability"), 0.0)
WITHOUT_STRENGTH = {"identity", "autocontrast", "equalize"}


def every_row(images):
    return BatchRows(tf.range(len(images)), len(images))


def only(**settings):
    return Augmentation(**{**OFF, **settings})


def batch(count=64, height=32, width=32, channels=3):
    shape = (count, height, width, channels)
    images = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    return tf.constant(images), tf.one_hot(tf.range(count) % 10, 10)


def same(count=64, height=32, width=32, channels=3):
    return tf.repeat(batch(1, height, width, channels)[0], count, axis=0)


def run(settings, images, labels, seed=SEED):
    return [value.numpy() for value in settings(images, labels, seed)]


def test_off_changes_nothing():
    images, labels = batch()
    new_images, new_labels = run(only(), images, labels)
    np.testing.assert_array_equal(new_images, images.numpy())
    np.testing.assert_array_equal(new_labels, labels.numpy())


@pytest.mark.ci
def test_seed_alone_decides(monkeypatch, same_policy):
    """Not a graph, nor the precision of the model, nor the parts that are augmented together."""
    images, labels = batch(count=70)
    settings = Augmentation(randaugment_num_ops=1, randaugment_probability=1.0)
    first = run(settings, images, labels)
    graph = [value.numpy() for value in tf.function(settings)(images, labels, SEED)]
    other = run(settings, images, labels, tf.constant([3, 6]))
    monkeypatch.setattr(augmentation, "_PIXELS", 32 * 32 * 33)  # parts of 32, 32 and 6 rows
    keras.config.set_dtype_policy("mixed_bfloat16")
    again = run(settings, images, labels)
    for one, compiled, same, different, atol in zip(first, graph, again, other, (1, 1e-3)):
        # a value near half a level may be rounded otherwise
        np.testing.assert_allclose(one.astype(float), compiled, atol=atol)
        np.testing.assert_array_equal(one, same)
        assert np.abs(one.astype(float) - different).max() > 0.1


@pytest.mark.parametrize("shape", [(33, 8, 8, 1), (1, 32, 32, 3), (6, 11, 4, 2)])
def test_values_stay_images_and_labels(shape):
    images, labels = batch(*shape)
    settings = Augmentation(randaugment_probability=1.0, randaugment_num_ops=3)
    new_images, new_labels = run(settings, images, labels, SEED)
    assert new_images.shape == shape and new_labels.shape == labels.shape
    assert new_images.dtype == np.uint8 and new_labels.dtype == np.float32
    assert (new_labels >= 0).all()
    np.testing.assert_allclose(new_labels.sum(1), 1, atol=1e-5)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", OPERATIONS)
def test_channels_stay_last(name, channels):
    """Keras's setting for images in which channels come first changes nothing."""
    images = tf.cast(batch(4, 8, 8, channels)[0], tf.float32)
    strength = tf.fill([4, 1, 1, 1], 0.5)
    expected = OPERATIONS[name](images, strength)
    keras.config.set_image_data_format("channels_first")
    try:
        found = OPERATIONS[name](images, strength)
    finally:
        keras.config.set_image_data_format("channels_last")
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("value", [0, 90])
def test_flat_images_make_no_nan(value):
    images = tf.fill([70, 8, 8, 3], float(value))
    new = rand_augment.rand_augment(images, SEED, every_row(images), 4, 0.9, 1.0)
    assert np.isfinite(new).all()
    assert np.isfinite(only(erase_probability=0.5).erase(images, SEED, every_row(images))).all()


@pytest.mark.parametrize("padding,size", [(1, (8, 8)), (3, (7, 12))])
def test_crop_and_flip_only_move_pixels(padding, size):
    images = same(200, *size)
    moved = run(only(crop_padding=padding, flip_probability=0.3), images, batch(200)[1])[0]
    padded = np.pad(images[0], [(padding, padding), (padding, padding), (0, 0)])
    crops = {}
    for top in range(2 * padding + 1):
        for left in range(2 * padding + 1):
            crop = padded[top : top + size[0], left : left + size[1]]
            crops[crop.tobytes()] = (top, left, False)
            crops[crop[:, ::-1].tobytes()] = (top, left, True)
    tops, lefts, flips = zip(*(crops[image.tobytes()] for image in moved))
    assert set(tops) == set(lefts) == set(range(2 * padding + 1))
    assert abs(np.mean(flips) - 0.3) < 0.12  # 200 draws: a standard deviation of 0.03


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("channels", [1, 3])
def test_operation(name, channels):
    images = tf.round(50.0 + tf.cast(batch(5, 9, 12, channels)[0], tf.float32) / 2.0)
    strength = tf.reshape([0.0, 0.5, -0.5, 1.0, -1.0], [5, 1, 1, 1])
    whole = OPERATIONS[name](images, strength)
    alone = [OPERATIONS[name](images[i : i + 1], strength[i : i + 1]) for i in range(5)]
    np.testing.assert_allclose(whole, tf.concat(alone, 0), atol=1e-3)
    if name not in WITHOUT_STRENGTH:
        np.testing.assert_allclose(whole[0], images[0], atol=1e-4)
    if name != "identity" and not (name == "color" and channels == 1):
        assert np.abs(whole[3] - images[3]).max() > 1
    assert OPERATIONS[name](images[:0], strength[:0]).shape == (0, 9, 12, channels)


def test_operations_on_known_pixels():
    ramp = np.linspace(50, 150, 64).round().astype(np.float32).reshape(1, 8, 8, 1)
    full = tf.ones([1, 1, 1, 1])
    for name in ("autocontrast", "equalize"):
        spread = OPERATIONS[name](tf.constant(ramp), full).numpy()
        assert (spread.min(), round(float(spread.max()))) == (0, 255)
        np.testing.assert_allclose(spread.ravel(), np.linspace(0, 255, 64), atol=3)
    np.testing.assert_array_equal(OPERATIONS["solarize"](ramp, full), 255 - ramp)
    np.testing.assert_array_equal(OPERATIONS["posterize"](ramp, full), ramp // 16 * 16)
    np.testing.assert_allclose(OPERATIONS["brightness"](ramp, -full), 0.1 * ramp, rtol=1e-4)
    shifted = OPERATIONS["translate_x"](ramp, full * 0.25 / 0.45).numpy()
    np.testing.assert_allclose(shifted[:, :, :6], ramp[:, :, 2:], atol=1e-3)
    assert (shifted[:, :, 6:] == 128).all()
    gray = OPERATIONS["color"](tf.cast(batch(1)[0], tf.float32), -full / 0.9).numpy()
    np.testing.assert_allclose(gray[..., 0], gray[..., 2], atol=1e-2)


def test_erase_is_one_box_of_noise():
    images = tf.fill([800, 32, 32, 1], 300.0)
    new = tf.function(only(erase_probability=0.25).erase)(images, SEED, every_row(images))
    holes = (new != images).numpy()[..., 0]
    erased = holes[holes.any((1, 2))]
    assert abs(len(erased) / 800 - 0.25) < 0.06
    for hole in erased:
        assert hole.sum() == hole.any(0).sum() * hole.any(1).sum()
    areas = erased.mean((1, 2))
    assert 0.01 < areas.min() < 0.06 and 0.33 < areas.max() <= 0.42


def one_class_each(count, height=32, width=32):
    """Images whose every pixel is the number of their class; after 250, numbers repeat."""
    classes = tf.cast(tf.range(count) % 251, tf.uint8)[:, None, None, None]
    return tf.tile(classes, [1, height, width, 1]), tf.one_hot(tf.range(count), count)


@pytest.mark.parametrize("size", [(32, 32), (5, 9)])
def test_cutmix_label_is_the_share_of_pixels(size):
    images, labels = one_class_each(200, *size)
    new_images, new_labels = run(only(mix_probability=1.0, mixup_alpha=0.0), images, labels)
    shares = [[(image == k).mean() for k in range(200)] for image in new_images]
    np.testing.assert_allclose(new_labels, shares, atol=1e-6)
    assert len(np.unique(new_labels.max(1).round(4))) > 10


@pytest.mark.parametrize("count", [16, 37])
def test_mixup_is_with_another_image_of_the_group(count):
    """The share in the label is the weight of the pixels."""
    settings = only(mix_probability=1.0, cutmix_alpha=0.0)
    images, labels = run(settings, *one_class_each(count, 4, 4))
    assert (images.std((1, 2)) < 1e-4).all()
    np.testing.assert_allclose(images[:, 0, 0, 0], labels @ np.arange(count), atol=0.51)
    partners = np.where(labels - np.diag(np.diag(labels)) > 0, np.arange(count), 0).max(axis=1)
    rows = np.arange(count)[labels.max(axis=1) < 1]
    assert len(rows) > 0.9 * count and (partners[rows] != rows).all()
    assert (partners[rows] // augmentation.GROUP_SIZE == rows // augmentation.GROUP_SIZE).all()
    assert len(np.unique(partners[rows])) == len(rows)


@pytest.mark.parametrize("alpha", [0.2, 5.0])
def test_mixup_share_is_beta(alpha):
    batch = one_class_each(400, 1, 1)
    settings = only(mix_probability=1.0, cutmix_alpha=0.0, mixup_alpha=alpha)
    share = np.array(
        [np.diag(run(settings, *batch, tf.constant([seed, 5]))[1]) for seed in range(10)]
    )
    assert abs(share.mean() - 0.5) < 0.03
    assert abs(share.var() - 1 / (4 * (2 * alpha + 1))) < 0.015


def test_mix_and_cutmix_probability():
    images, labels = one_class_each(2000, 8, 8)
    new_images, new_labels = run(only(mix_probability=0.6, cutmix_probability=0.25), images, labels)
    mixed = (new_labels < 1).sum(1) == 2000
    cut = np.array([len(np.unique(image)) > 1 for image in new_images])
    assert abs(mixed.mean() - 0.6) < 0.06
    assert 0.6 * 0.25 * 0.7 < cut.mean() < 0.6 * 0.25 * 1.2


@pytest.mark.parametrize(
    "settings",
    [
        only(crop_padding=4),
        only(flip_probability=0.5),
        only(randaugment_num_ops=1, randaugment_probability=1.0),
        only(erase_probability=0.5),
        only(mix_probability=1.0),
    ],
)
def test_every_stage_follows_the_seed_and_changes_images_one_by_one(settings):
    images, labels = batch()
    first, other = (run(settings, images, labels, tf.constant([0, k]))[0] for k in (1, 2))
    assert (first != other).any()
    assert (first != run(settings, images, labels, tf.constant([1, 1]))[0]).any()
    if not settings.mix_probability:
        changed = len({image.tobytes() for image in run(settings, same(), labels)[0]})
        assert changed >= (2 if settings.flip_probability else 12)


def test_randaugment_draws_operations_and_signs_anew_each_turn(monkeypatch):
    operations = {"identity": lambda x, strength: x, "shift": lambda x, strength: x + strength}
    monkeypatch.setattr(rand_augment, "OPERATIONS", operations)
    zeros = tf.zeros([2000, 1, 1, 1])
    sums = rand_augment.rand_augment(zeros, SEED, every_row(zeros), 2, 0.5, 0.8)
    shares = [np.mean(sums.numpy() == value) for value in (-1, -0.5, 0, 0.5, 1)]
    # an image is shifted with probability 0.8 / 2, to either side
    np.testing.assert_allclose(shares, [0.04, 0.24, 0.44, 0.24, 0.04], atol=0.04)


@pytest.mark.parametrize("kind", ["erase", "cutmix"])
def test_boxes_favour_no_side(kind):
    images, labels = one_class_each(3000, 12, 10)
    images = tf.cast(images, tf.float32)
    rows = every_row(images)
    if kind == "erase":
        new_images = tf.function(only(erase_probability=1.0).erase)(images, SEED, rows)
    else:
        cutmix = only(mix_probability=1.0, mixup_alpha=0.0)
        new_images = cutmix.mix(images, labels, SEED, rows)[0]
    covered = (new_images != images).numpy()[..., 0].mean(0)
    np.testing.assert_allclose(covered, covered[::-1], atol=0.05)
    np.testing.assert_allclose(covered, covered[:, ::-1], atol=0.05)
    # Where boxes may be cut by the border, the middle is covered more often than corners.
    assert covered[6, 5] > 1.5 * covered[0, 0]
