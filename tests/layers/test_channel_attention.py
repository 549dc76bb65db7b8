"""Squeeze-and-excitation and CBAM beside their equations in NumPy.

Tolerance: 1e-5, for sums of at most some hundred float32 products in another order.
"""

import numpy as np
import pytest

from tests.contracts import shake
from tests.layers.test_attention import numpy
from zoo.layers import ConvBlockAttention, SqueezeExcite

IMAGES = np.random.default_rng(0).normal(size=(3, 5, 6, 8)).astype("float32")


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def shaken(layer, x=IMAGES):
    layer(x)
    shake(layer)
    return layer


def mlp(layer, pooled):
    """The two linear layers, [B, C] -> [B, C], with biases if the layer has them."""
    for part in (layer.hidden, layer.output_projection):
        pooled = pooled @ numpy(part.kernel) + (numpy(part.bias) if part.use_bias else 0)
        pooled = np.maximum(pooled, 0) if part is layer.hidden else pooled
    return pooled


@pytest.mark.parametrize("use_bias", [False, True])
def test_squeeze_excite_is_the_equations_2_to_4(use_bias):
    layer = shaken(SqueezeExcite(2, use_bias))
    weights = sigmoid(mlp(layer, IMAGES.mean(axis=(1, 2))))
    np.testing.assert_allclose(numpy(layer.channel_weights(IMAGES)), weights, atol=1e-5)
    np.testing.assert_allclose(numpy(layer(IMAGES)), IMAGES * weights[:, None, None], atol=1e-5)


@pytest.mark.parametrize("use_bias", [False, True])
def test_cbam_is_the_equations_1_to_3(use_bias):
    layer = shaken(ConvBlockAttention(2, 3, use_bias))
    pooled = mlp(layer, IMAGES.mean(axis=(1, 2))) + mlp(layer, IMAGES.max(axis=(1, 2)))
    refined = IMAGES * sigmoid(pooled)[:, None, None]
    maps = np.stack([refined.mean(axis=-1), refined.max(axis=-1)], axis=-1)
    maps = np.pad(maps, ((0, 0), (1, 1), (1, 1), (0, 0)))
    kernel = numpy(layer.spatial.kernel)[..., 0]
    weights = np.zeros((3, 5, 6, 1))
    for row in range(5):
        for column in range(6):
            window = maps[:, row : row + 3, column : column + 3]
            weights[:, row, column, 0] = (window * kernel).sum(axis=(1, 2, 3))
    weights = sigmoid(weights + (numpy(layer.spatial.bias) if use_bias else 0))
    np.testing.assert_allclose(numpy(layer.spatial_weights(refined)), weights, atol=1e-5)
    np.testing.assert_allclose(numpy(layer(IMAGES)), refined * weights, atol=1e-5)


@pytest.mark.parametrize("channels, ratio", [(64, 16), (512, 16), (256, 4)])
def test_the_parameters_are_those_of_the_papers(channels, ratio):
    """2·C²/r: Hu et al. 2017, equation 5; CBAM adds two kernels of 7x7."""
    units = channels // ratio
    for kind, positions in ((SqueezeExcite, 0), (ConvBlockAttention, 2 * 7 * 7)):
        layer = kind(ratio)
        layer.build((None, 4, 4, channels))
        assert layer.count_params() == 2 * channels**2 // ratio + positions
        layer = kind(ratio, use_bias=True)
        layer.build((None, 4, 4, channels))
        biases = units + channels + bool(positions)
        assert layer.count_params() == 2 * channels**2 // ratio + positions + biases


def test_fewer_channels_than_the_ratio_have_one_hidden_unit():
    layer = SqueezeExcite(16)
    layer.build((None, 4, 4, 8))
    assert layer.hidden.units == 1


def test_large_values_do_not_overflow_in_float16():
    """Their sum is 80 times as large as the largest float16."""
    images = np.full((1, 96, 96, 8), 600.0, "float16")
    for kind in (SqueezeExcite, ConvBlockAttention):
        layer = kind(2, dtype="mixed_float16")
        assert np.isfinite(numpy(layer(images))).all()


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="ratio=0"):
        SqueezeExcite(0)
    with pytest.raises(ValueError, match="kernel_size=0"):
        ConvBlockAttention(kernel_size=0)
    with pytest.raises(ValueError, match="expected ndim=4, found ndim=3"):
        SqueezeExcite()(IMAGES[0])
