"""Patches and learned tokens."""

import keras
import numpy as np
import pytest

from tests.layers.test_attention import numpy
from zoo.layers import ClassToken, PatchDropout, PatchEmbed, PatchExtract, RegisterTokens


def test_patches_are_blocks_of_the_image():
    images = np.arange(2 * 4 * 6 * 3, dtype="float32").reshape(2, 4, 6, 3)
    patches = numpy(PatchExtract(2)(images))
    assert patches.shape == (2, 6, 12)
    for row in range(2):
        for column in range(3):
            block = images[:, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
            np.testing.assert_array_equal(patches[:, 3 * row + column], block.reshape(2, 12))


def test_an_image_that_does_not_divide_is_named():
    with pytest.raises(ValueError, match="30x32 pixels, patch_size=4"):
        PatchExtract(4)(np.zeros((1, 30, 32, 3), "float32"))
    with pytest.raises(ValueError, match="32x30 pixels, patch_size=4"):
        PatchEmbed(8, 4)(keras.Input((32, 30, 3)))
    with pytest.raises(ValueError, match="patch_size=0"):
        PatchExtract(0)


@pytest.mark.parametrize("classes", [1, 2])
def test_class_tokens_then_registers_then_patches(classes):
    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype("float32")
    first = ClassToken(classes)
    registers = RegisterTokens(2, num_prefix_tokens=classes)
    first.build(x.shape)
    registers.build(x.shape)
    first.tokens.assign(np.arange(4.0 * classes).reshape(classes, 4))
    tokens = numpy(registers(first(x)))
    np.testing.assert_array_equal(tokens[:, :classes], np.stack([numpy(first.tokens)] * 2))
    expected = np.stack([numpy(registers.tokens)] * 2)
    np.testing.assert_array_equal(tokens[:, classes : classes + 2], expected)
    np.testing.assert_array_equal(tokens[:, classes + 2 :], x)


def test_class_tokens_start_at_zero_and_registers_at_small_random_numbers():
    first = ClassToken(20)
    registers = RegisterTokens(20)
    first.build((None, None, 50))
    registers.build((None, None, 50))
    assert not numpy(first.tokens).any()
    # A normal distribution that is truncated at two deviations has 0.88 of its deviation left; that
    # of 1,000 draws is known to 3 %.
    np.testing.assert_allclose(numpy(registers.tokens).std(), 0.88 * 0.02, rtol=0.1)


def test_patch_dropout_keeps_the_prefix_and_a_part_of_the_patches_of_each_image():
    x = np.random.default_rng(0).normal(size=(3, 2 + 10, 4)).astype("float32")
    dropout = PatchDropout(0.6, num_prefix_tokens=2, seed=0)
    np.testing.assert_array_equal(numpy(dropout(x)), x)
    chosen = set()
    for _ in range(5):
        dropped = numpy(dropout(x, training=True))
        assert dropped.shape == (3, 2 + 4, 4)
        np.testing.assert_array_equal(dropped[:, :2], x[:, :2])
        for image, kept in zip(x[:, 2:], dropped[:, 2:], strict=True):
            (indices, found) = np.nonzero((image[:, None] == kept).all(axis=-1))
            assert sorted(found) == [0, 1, 2, 3] and len({*indices}) == 4
            chosen.add(frozenset(indices.tolist()))
    assert len(chosen) > 10  # of 15 draws from 210
    assert set().union(*chosen) == {*range(10)}


def test_patch_dropout_at_its_limits():
    x = np.ones((2, 3, 4), "float32")
    assert PatchDropout(0.99)(x, training=True).shape == (2, 1, 4)
    assert PatchDropout(0.0)(x, training=True).shape == (2, 3, 4)
    for rate in (-0.1, 1.0, float("nan")):
        with pytest.raises(ValueError, match=f"rate={rate}"):
            PatchDropout(rate)


def test_patch_dropout_needs_a_known_number_of_patches_in_training():
    def call(x, training=True):
        return PatchDropout(0.5, num_prefix_tokens=3, seed=0)(x, training=training)

    x = np.ones((2, 3, 4), "float32")
    for training in (False, True):  # there is nothing to drop
        np.testing.assert_array_equal(numpy(call(x, training=training)), x)
    assert PatchDropout(0.5)(x[:, :0], training=True).shape == (2, 0, 4)
    assert call(keras.Input((5, 4)), training=False).shape == (None, 5, 4)
    with pytest.raises(ValueError, match="known number of patches"):
        PatchDropout(0.5).call(keras.KerasTensor((2, None, 4)), training=True)
