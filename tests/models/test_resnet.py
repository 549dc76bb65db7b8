"""The residual network beside the paper."""

import numpy as np
import pytest
from keras import ops

import zoo
from tests.contracts import shake


@pytest.mark.parametrize(
    "blocks, millions", [(3, 0.27), (5, 0.46), (7, 0.66), (9, 0.85), (18, 1.7)]
)
def test_the_parameters_are_those_of_the_paper(blocks, millions):
    """He et al. 2015, table 6: networks of 20, 32, 44, 56 and 110 layers."""
    count = zoo.resnet(blocks_per_stage=blocks).count_params() / 1e6
    assert round(count, 2 if millions < 1 else 1) == millions


def test_the_parameters_of_resnet_20_are_those_of_another_implementation():
    """269,722 with batch normalization, which has as many trainable weights:
    https://github.com/akamaster/pytorch_resnet_cifar10
    """
    assert zoo.resnet().count_params() == 269_722


def test_attention_adds_the_parameters_of_its_layers():
    plain, cbam = (zoo.resnet(ratio=4, attention=kind).count_params() for kind in (None, "cbam"))
    assert cbam - plain == sum(3 * (2 * width**2 // 4 + 2 * 7 * 7) for width in (16, 32, 64))


def test_the_sides_are_halved_twice():
    model = zoo.resnet(input_shape=(32, 20, 3), blocks_per_stage=2)
    shape, shapes = (None, 32, 20, 16), []
    for block in model.residual_blocks:
        shape = block.compute_output_shape(shape)
        shapes.append(shape[1:])
    assert shapes[::2] == shapes[1::2] == [(32, 20, 16), (16, 10, 32), (8, 5, 64)]


def test_other_image_sizes_are_accepted():
    model = zoo.resnet(input_shape=(8, 8, 1), blocks_per_stage=1, attention="cbam")
    assert model(np.zeros((2, 13, 9, 1), "float32")).shape == (2, 10)


def test_an_image_does_not_depend_on_the_others_of_its_batch():
    """In training too, as with several devices: to rounding."""
    model = zoo.resnet(input_shape=(8, 8, 3), blocks_per_stage=1, attention="squeeze_excite")
    shake(model)
    images = np.random.default_rng(0).normal(size=(4, 8, 8, 3)).astype("float32")
    whole, first = (ops.convert_to_numpy(model(x, training=True)) for x in (images, images[:1]))
    np.testing.assert_allclose(whole[:1], first, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "settings, message",
    [
        (
            {"blocks_per_stage": 0},
            "at least 1. Received: num_classes=10, blocks_per_stage=0",
        ),
        ({"num_classes": 0}, "num_classes=0"),
        ({"width": 12}, "groups=8, width=12"),
        ({"input_shape": (None, 8, 3)}, "input_shape must be"),
        ({"attention": "se"}, "cbam"),
    ],
)
def test_wrong_arguments_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        zoo.resnet(**settings)
