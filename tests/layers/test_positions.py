"""Positions: their formulas, and learned ones on other grids."""

import keras
import numpy as np
import pytest
from keras import ops

import zoo
from tests.layers.test_attention import numpy
from zoo.layers import (
    LearnedPositions,
    SinusoidalGridPositions,
    SinusoidalPositions,
    sinusoidal_positions,
)


def learned(shape, table, **settings):
    layer = LearnedPositions(shape, **settings)
    layer.build((None, None, table.shape[-1]))
    layer.embeddings.assign(table)
    return layer


@pytest.mark.parametrize("length, width", [(1, 2), (7, 4), (50, 64)])
def test_sinusoids_are_the_papers(length, width):
    expected = np.empty((length, width))
    for position in range(length):
        for k in range(width // 2):
            angle = position / 10000 ** (2 * k / width)
            expected[position, 2 * k : 2 * k + 2] = np.sin(angle), np.cos(angle)
    # angles of up to 50 radians in float32
    np.testing.assert_allclose(numpy(sinusoidal_positions(length, width)), expected, atol=1e-5)


def test_halves_are_the_same_numbers_in_another_order():
    interleaved = numpy(sinusoidal_positions(9, 6))
    halves = numpy(sinusoidal_positions(9, 6, layout="halves"))
    np.testing.assert_array_equal(halves[:, :3], interleaved[:, 0::2])
    np.testing.assert_array_equal(halves[:, 3:], interleaved[:, 1::2])


def test_positions_of_a_grid_are_those_of_beyer_et_al():
    """Each patch from its row y and column x: [sin(x w), cos(x w), sin(y w), cos(y w)]."""
    frequencies = 10_000.0 ** -np.linspace(0, 1, 4)
    expected = [
        np.concatenate([wave(place * frequencies) for place in (x, y) for wave in (np.sin, np.cos)])
        for y in range(3)
        for x in range(5)
    ]
    layer = SinusoidalGridPositions((3, 5))
    zeros = np.zeros((2, 15, 16), "float32")
    np.testing.assert_allclose(numpy(layer(zeros)), [expected] * 2, atol=1e-6)
    np.testing.assert_allclose(
        numpy(SinusoidalGridPositions((8, 8))(zeros, grid=(3, 5)))[0], expected, atol=1e-6
    )
    assert SinusoidalGridPositions((3, 5))(zeros[..., :4]).shape == (2, 15, 4)
    with pytest.raises(ValueError, match="multiple of 4. Received: width=10"):
        SinusoidalGridPositions((1, 1))(np.zeros((1, 1, 10), "float32"))


def test_a_sequence_takes_the_first_positions():
    table = np.random.default_rng(0).normal(size=(6, 4)).astype("float32")
    layer = learned(6, table)
    np.testing.assert_array_equal(numpy(layer(np.zeros((1, 4, 4), "float32")))[0], table[:4])
    with pytest.raises(ValueError, match="for 6 tokens. Received 7"):
        layer(np.zeros((1, 7, 4), "float32"))


def test_positions_beyond_the_table_are_nan_if_they_are_known_at_run_time_only():
    table = np.random.default_rng(0).normal(size=(6, 4)).astype("float32")
    layer = learned(6, table)
    zeros = np.zeros((1, 3, 4), "float32")
    found = numpy(layer(zeros, start=ops.convert_to_tensor(4)))[0]
    np.testing.assert_array_equal(found[:2], table[4:])
    assert np.isnan(found[2]).all()
    with pytest.raises(ValueError, match="for 6 tokens. Received 7"):
        layer(zeros, start=4)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="dynamic lengths are its own")
@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_dynamic_length_beyond_the_table(jit_compile):
    import tensorflow as tf

    layer = learned(6, np.ones((6, 4), "float32"))
    signature = [tf.TensorSpec((None, None, 4))]
    call = tf.function(layer, input_signature=signature, jit_compile=jit_compile)
    found = call(np.zeros((1, 8, 4), "float32")).numpy()[0]
    assert (found[:6] == 1).all() and np.isnan(found[6:]).all()


def test_an_offset_moves_the_positions():
    x = np.zeros((1, 3, 8), "float32")
    whole = numpy(sinusoidal_positions(9, 8, "halves", 50.0))
    layer = SinusoidalPositions("halves", 50.0, offset=2)
    np.testing.assert_allclose(numpy(layer(x))[0], whole[2:5], atol=1e-6)
    np.testing.assert_allclose(numpy(layer(x, start=4))[0], whole[6:9], atol=1e-6)


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("grid", [(2, 9), (7, 3), (4, 5), (1, 1)])
def test_a_grid_is_resized_as_keras_resizes_images(interpolation, grid):
    layer = LearnedPositions((4, 6), num_prefix_tokens=1, interpolation=interpolation)
    layer.build((None, 25, 8))
    table = numpy(layer.embeddings)
    expected = ops.image.resize(
        np.reshape(table[1:], (4, 6, 8)),
        grid,
        interpolation,
        antialias=True,
        data_format="channels_last",
    )
    expected = np.concatenate([table[:1], np.reshape(numpy(expected), (-1, 8))])
    zeros = np.zeros((1, len(expected), 8), "float32")
    np.testing.assert_allclose(numpy(layer(zeros, grid=grid))[0], expected, atol=1e-6)
    zeros = np.zeros((1, 25, 8), "float32")
    for same in (layer(zeros), layer(zeros, grid=(4, 6))):
        np.testing.assert_array_equal(numpy(same)[0], table)  # is not touched


def test_a_resized_grid_can_be_compiled():
    settings = {"patch_size": 4, "embed_dim": 8, "num_heads": 2, "num_layers": 1}
    model = zoo.vit(input_shape=(16, 24, 3), num_classes=2, **settings)
    model.compile("sgd", "mse", jit_compile=keras.backend.backend() != "torch")
    before = np.array(numpy(model.patch_positions.embeddings))
    images = np.random.default_rng(0).random((1, 28, 12, 3)).astype("float32")
    model.fit(images, np.ones((1, 2)), verbose=0)
    assert (numpy(model.patch_positions.embeddings) != before).any(axis=1).all()  # each learns


def test_bad_arguments():
    with pytest.raises(ValueError, match="layout='sideways'"):
        SinusoidalPositions("sideways")
    with pytest.raises(ValueError, match="multiple of 2. Received: width="):
        SinusoidalPositions()(np.zeros((1, 2, 3), "float32"))
    with pytest.raises(ValueError, match="interpolation='nearest'"):
        LearnedPositions(4, interpolation="nearest")
    with pytest.raises(ValueError, match="for 7 tokens.*Received 9 tokens"):
        LearnedPositions((2, 3), num_prefix_tokens=1)(np.zeros((1, 9, 4), "float32"))
