"""The convolutional network of recipes/cnn_cifar10.py."""

import dataclasses
import json

import numpy as np
import pytest

import zoo
from tests.test_recipes import recipe
from zoo.data.images import digits, sample
from zoo.errors import UserError

cnn_cifar10 = recipe("cnn_cifar10")


def test_the_first_layer_whitens():
    """Its outputs on patches of images are uncorrelated and have deviations of 1."""
    data = digits().loaded()
    model = cnn_cifar10.build_model(data.input_shape, 10, (4, 4))
    whitening = model.get_layer("whitening")
    preprocessing = data.preprocessing()
    others = preprocessing.normalize(sample(data.train, 1000).pixels)
    cnn_cifar10.initialize_whitening(whitening, others)
    assert not whitening.trainable_variables
    images = preprocessing.normalize(data.train.pixels[:1000])
    outputs = np.reshape(whitening(images), (-1, 8))
    np.testing.assert_allclose(outputs[:, 4:], -outputs[:, :4], atol=1e-5)
    covariance = np.cov(outputs[:, :4], rowvar=False)
    # The filters are made of 1,000 other images, and 5e-4 is added to each variance.
    np.testing.assert_allclose(covariance, np.eye(4), atol=0.1)


@pytest.mark.parametrize("shape", [(32, 32, 3), (9, 20, 1)])
def test_sizes(shape):
    cnn_cifar10.check_size((4, 4, 4), shape)
    model = cnn_cifar10.build_model(shape, 5, (4, 4, 4))
    assert model.output_shape == (None, 5)
    with pytest.raises(UserError, match="--widths: 6 stages need images of at least 65x65 pixels"):
        cnn_cifar10.check_size((4,) * 6, shape)
    with pytest.raises(UserError, match="--widths must be one or more numbers, at least 1"):
        cnn_cifar10.Config(widths=(4, 0))
    with pytest.raises(UserError, match="--accumulation must be a number"):
        cnn_cifar10.Config(accumulation="auto")


@pytest.mark.slow
def test_digits(tmp_path):
    """The documented command is more accurate than the Vision Transformer's 97 %."""
    cnn_cifar10.main(dataclasses.replace(cnn_cifar10.DIGITS, out=str(tmp_path / "run")))
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["test_accuracy"] > 0.98
    loaded = zoo.load(tmp_path / "run")
    assert loaded.model.count_params() == metrics["parameters"]
