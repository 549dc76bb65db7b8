"""Rotary positions: rotations by complex numbers, and attention that depends on distances alone."""

import keras
import numpy as np
import pytest
from keras import ops

from tests.layers.test_encoder import normal, numpy, shaken_after_build
from zoo.layers import (
    MultiHeadSelfAttention,
    RotaryGridPositions,
    RotaryPositions,
    TransformerDecoder,
    TransformerEncoder,
    rotate,
)

# The same float32 sums in another order, after angles of some dozen radians.
TOLERANCE = {"rtol": 1e-4, "atol": 1e-4}
LINE = np.array([[3, 0, 7, 4, 5]])
GRID = np.array([[[0, 0], [0, 5], [3, 1], [2, 2], [9, 4]]])
each_shape = pytest.mark.parametrize("positions", [LINE, GRID], ids=["line", "grid"])


def rotation_of(positions, key_dim=8, **settings):
    return RotaryPositions(key_dim, num_axes=max(1, positions.ndim - 1), **settings)(positions)


@each_shape
def test_pairs_are_multiplied_by_complex_numbers(positions):
    """e^(ipθ) times first + i·second, with θ = 50^(-2k/D) on a line; half of the pairs per axis."""
    x = normal(2, 3, 5, 8)
    found = numpy(rotate(x, rotation_of(positions, max_wavelength=50.0)))
    by_axis = positions[0].reshape(5, -1)
    pairs = 4 // by_axis.shape[1]
    angles = np.empty((5, 4))
    for axis in range(by_axis.shape[1]):
        for k in range(pairs):
            angles[:, axis * pairs + k] = by_axis[:, axis] * 50.0 ** (-k / pairs)
    expected = (x[..., :4] + 1j * x[..., 4:]) * np.exp(1j * angles)
    np.testing.assert_allclose(found[..., :4], expected.real, atol=1e-5)
    np.testing.assert_allclose(found[..., 4:], expected.imag, atol=1e-5)


@each_shape
@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-4), ("mixed_bfloat16", 0.03)])
def test_attention_depends_on_distances_alone(positions, dtype, tolerance):
    """Also far away in mixed precision, whose 8 bits cannot tell 3000 and 3001 apart."""
    layer = MultiHeadSelfAttention(16, 2, dtype=dtype)
    x = normal(2, 5, 16)
    shaken_after_build(layer, x)

    def attended(positions):
        rotation = rotation_of(positions, dtype=dtype)
        return numpy(ops.cast(layer(x, rotation=rotation), "float32"))

    expected = attended(positions)
    shift = np.array([3000, 500])[: positions.shape[-1]] if positions.ndim == 3 else 3000
    scale = np.abs(expected).max()
    assert np.abs(attended(positions + shift) - expected).max() < tolerance * scale
    assert np.abs(attended(positions * 2) - expected).max() > 0.1 * scale


@pytest.mark.parametrize("with_memory", [False, True])
def test_steps_equal_the_whole(with_memory):
    layer = TransformerDecoder(16, 2, 24, cross_attention=with_memory)
    x = normal(2, 5, 16)
    memory = None
    if with_memory:
        memory = normal(2, 4, 6)
        shaken_after_build(layer, x, memory)
    else:
        shaken_after_build(layer, x)
    positions = np.arange(5)[None]
    expected = numpy(layer(x, memory, rotation=rotation_of(positions)))
    assert np.abs(numpy(layer(x, memory)) - expected).max() > 0.01
    cache = layer.create_cache(7, memory, batch_size=2)
    for first, last in ((0, 2), (2, 3), (3, 5)):
        mask = np.arange(7) <= np.arange(first, last)[:, None]
        rotation = rotation_of(positions[:, first:last])
        found, cache = layer.step(
            x[:, first:last], cache, first, mask[None, None], rotation=rotation
        )
        np.testing.assert_allclose(numpy(found), expected[:, first:last], **TOLERANCE)


@pytest.mark.parametrize(
    "kind, options, dtype",
    [
        (MultiHeadSelfAttention, {}, "float32"),
        (TransformerEncoder, {}, "mixed_float16"),
        (TransformerDecoder, {"cross_attention": False}, "float32"),
    ],
)
def test_functional_models(kind, options, dtype, tmp_path):
    """Layers with a rotation build, infer shapes of any length, and are saved."""
    inputs = [keras.Input((None, 16)), keras.Input((None,), dtype="int32")]
    layer = kind(16, 2, **options, dtype=dtype)
    outputs = layer(inputs[0], rotation=RotaryPositions(8, dtype=dtype)(inputs[1]))
    assert outputs.shape == (None, None, 16)
    model = keras.Model(inputs, outputs)
    arrays = [normal(3, 5, 16), np.repeat(LINE, 3, axis=0)]
    expected = numpy(model(arrays))
    direct = layer(arrays[0], rotation=rotation_of(LINE, dtype=dtype))
    np.testing.assert_allclose(expected, numpy(direct), atol=1e-5 if dtype == "float32" else 1e-2)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(numpy(loaded(arrays)), expected, atol=1e-5)


@pytest.mark.parametrize(
    "settings, position",
    [
        ({}, lambda i, n: i),
        ({"extent": 16.0}, lambda i, n: 16 * i / n),
        ({"centered": True}, lambda i, n: i + 0.5 - n / 2),
        # DINOv3: 2π times a coordinate in [-1, 1]
        ({"extent": 4 * np.pi, "centered": True}, lambda i, n: 2 * np.pi * (2 * (i + 0.5) / n - 1)),
    ],
    ids=["indices", "extent", "centered", "DINOv3"],
)
@pytest.mark.parametrize("grid", [(3, 5), (1, 1), (0, 4)])
def test_rotation_of_a_grid(settings, position, grid):
    rows, columns = grid
    layer = RotaryGridPositions(8, 50.0, **settings)
    places = [(position(i, rows), position(j, columns)) for i, j in np.ndindex(grid)]
    positions = np.array([(0, 0), (0, 0), *places], "float32")[None]
    expected = numpy(RotaryPositions(8, 50.0, num_axes=2)(positions))
    np.testing.assert_allclose(numpy(layer.of_grid(grid, 2)), expected, atol=1e-5)


@pytest.mark.skipif(
    keras.backend.result_type("float64") != "float64", reason="the backend computes in float32"
)
def test_rotation_of_far_positions_in_float64():
    found = ops.convert_to_numpy(rotation_of(np.array([[10**6]]), dtype="float64"))[0, 0, 0]
    angles = 1e6 * 10000.0 ** (-np.arange(4) / 4)
    np.testing.assert_allclose(found, [*np.cos(angles), *np.sin(angles)], atol=1e-8)


@pytest.mark.parametrize(
    "key_dim, settings, message",
    [
        (0, {}, "multiple of 2. Received: key_dim=0"),
        (7, {}, "multiple of 2. Received: key_dim=7"),
        (6, {"num_axes": 2}, "multiple of 4. Received: key_dim=6"),
    ],
)
def test_bad_arguments(key_dim, settings, message):
    with pytest.raises(ValueError, match=message):
        RotaryPositions(key_dim, **settings)
    if key_dim % 2 == 0:
        with pytest.raises(ValueError, match="multiple of 4"):
            RotaryGridPositions(key_dim)


def test_rotation_of_heads_of_another_width():
    with pytest.raises(ValueError, match=r"need key_dim=8. Received: .* \(1, 1, 5, 2\)"):
        MultiHeadSelfAttention(16, 2)(normal(1, 5, 16), rotation=rotation_of(LINE, key_dim=2))
