"""The encoder block: the settings of its residual branches, activations, and first tokens."""

import keras
import numpy as np
import pytest
from keras import ops

from tests.layers.test_attention import normal, numpy
from zoo.layers import FeedForward, TransformerEncoder, gelu, gelu_tanh, quick_gelu, swiglu


def shaken_after_build(layer, *inputs):
    layer(*inputs)
    return shaken(layer)


def shaken(layer):
    for index, variable in enumerate(layer.weights):
        variable.assign(variable + 0.3 * normal(*variable.shape, seed=index))
    return layer


def test_stochastic_depth_skips_whole_examples():
    keras.utils.set_random_seed(0)
    layer = TransformerEncoder(4, 2, stochastic_depth=0.4)
    x = normal(2000, 3, 4)
    shaken_layer = shaken_after_build(layer, x)
    # One part alone: the other adds nothing.
    layer.feed_forward.output_projection.set_weights([np.zeros((16, 4)), np.zeros(4)])
    added = numpy(shaken_layer(x)) - x
    in_training = numpy(layer(x, training=True)) - x
    skipped = (in_training == 0).all(axis=(1, 2))
    # standard deviation of the share of 2,000 draws at 0.4: 0.011
    assert abs(skipped.mean() - 0.4) < 0.04
    np.testing.assert_allclose(in_training[~skipped], added[~skipped] / 0.6, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("shape", [(), (5,), (3, 5)])
def test_the_feed_forward_network_treats_every_vector_alike(shape):
    layer = FeedForward(3)
    x = normal(4, *shape, 4)
    found = layer(x)
    assert tuple(found.shape) == layer.compute_output_shape(x.shape) == (4, *shape, 3)
    vectors = numpy(layer(x.reshape(1, -1, 4)))
    np.testing.assert_allclose(numpy(found).ravel(), vectors.ravel(), atol=1e-6)


@pytest.mark.parametrize(
    "activation, formula",
    [
        ("relu", lambda x: np.maximum(x, 0)),
        ("gelu_tanh", lambda x: x / 2 * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3)))),
        ("quick_gelu", lambda x: x / (1 + np.exp(-1.702 * x))),
        ("swiglu", lambda x: x[..., :5] / (1 + np.exp(-x[..., :5])) * x[..., 5:]),
        (ops.tanh, np.tanh),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_activations_by_name(activation, formula):
    layer = FeedForward(4, 5, activation=activation)
    x = normal(2, 3, 4)
    layer(x)
    shaken(layer)
    hidden = x @ numpy(layer.hidden.kernel) + numpy(layer.hidden.bias)
    assert hidden.shape[-1] == (10 if activation == "swiglu" else 5)
    expected = formula(hidden) @ numpy(layer.output_projection.kernel) + numpy(
        layer.output_projection.bias
    )
    np.testing.assert_allclose(numpy(layer(x)), expected, atol=1e-4)


@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-6), ("bfloat16", 0.04)])
def test_gelu_is_the_exact_one(dtype, tolerance):
    x = np.linspace(-6, 6, 1001, dtype="float32")
    expected = numpy(ops.gelu(x, approximate=False))
    found = numpy(ops.cast(gelu(ops.cast(x, dtype)), "float32"))
    np.testing.assert_allclose(found, expected, atol=tolerance)


@pytest.mark.parametrize(
    "norm, attention, arguments",
    [
        ("pre", "softmax", {"mask": np.tri(5, dtype=bool)[None, None]}),
        ("post", "softmax", {"bias": normal(2, 5, 5)}),
        ("pre", "blockwise", {"bias": normal(1, 5, 5)}),
        ("post", "linear", {"mask": np.arange(5) < np.array([[5], [2], [3]])}),
    ],
)
def test_the_first_tokens_alone_are_as_among_all(norm, attention, arguments):
    block = TransformerEncoder(8, 2, norm=norm, attention=attention)
    x = normal(3, 5, 8)
    shaken_after_build(block, x)
    expected = numpy(block(x, **arguments))[:, :2]
    found = numpy(block.first_tokens(x, 2, **arguments))
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_carried_mask_is_obeyed_beside_the_call(norm):
    block = TransformerEncoder(8, 2, norm=norm)
    x = normal(3, 5, 8)
    x[:, 3:] = 0.0
    expected = numpy(block(x, mask=x.any(axis=-1)))[:, :2]
    carrying = keras.layers.Masking()(ops.convert_to_tensor(x))
    np.testing.assert_allclose(numpy(block.first_tokens(carrying, 2)), expected, atol=1e-5)
    assert not numpy(block.attention_weights(carrying))[..., 3:].any()


@pytest.mark.parametrize("activation", [gelu, gelu_tanh, quick_gelu, swiglu])
def test_activations_as_functions_are_saved(activation):
    block = TransformerEncoder(8, 2, activation=activation)
    twin = TransformerEncoder.from_config(block.get_config())
    assert twin.activation is activation
