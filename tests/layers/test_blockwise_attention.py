"""Attention block by block equals attention at once: results, gradients, masks, dtypes."""

import keras
import numpy as np
import pytest
from keras import ops

from tests.layers.test_attention import gradients, normal, numpy
from zoo.layers import (
    MultiHeadSelfAttention,
    TransformerDecoder,
    blockwise_attention,
    causal_mask,
    scaled_dot_product_attention,
)

BLOCK_SIZE = 128  # of the layers

# float32 sums of a few dozen terms in another order
TOLERANCE = 1e-5
B, H, T, S = 2, 3, 11, 9


def random_mask(*shape):
    mask = np.random.default_rng(5).random(shape) < 0.6
    mask[0, :, min(3, shape[2] - 1)] = False  # a query that may attend to nothing
    return mask


@pytest.mark.parametrize(
    "mask_shape, bias_shape, size, keys, causal",
    [
        (None, None, 4, S, False),  # which divides neither length
        ((B, 1, T, S), None, 4, S, False),
        ((B, 1, 1, S), (1, H, T, S), 4, S, False),
        ((1, 1, T, 1), (B, 1, 1, S), 4, S, False),
        ((B, 1, T, S), (1, H, T, 1), 9, S, False),
        ((B, 1, 1, S), None, 1, S, False),
        ((B, 1, 1, T), None, 4, T, True),
    ],
)
def test_equals_attention_at_once(mask_shape, bias_shape, size, keys, causal):
    inputs = [normal(B, H, T, 5), normal(B, H, keys, 5, seed=1), normal(B, H, keys, 7, seed=2)]
    inputs += [] if bias_shape is None else [normal(*bias_shape, seed=3)]
    mask = None if mask_shape is None else random_mask(*mask_shape)
    whole = ops.logical_and(causal_mask(T), True if mask is None else mask) if causal else mask

    def in_blocks(query, key, value, bias=None):
        settings = {"bias": bias, "causal": causal, "block_size": size}
        return blockwise_attention(query, key, value, mask, **settings)

    def at_once(query, key, value, bias=None):
        return scaled_dot_product_attention(query, key, value, whole, bias=bias)

    tensors = [ops.convert_to_tensor(x) for x in inputs]
    np.testing.assert_allclose(numpy(in_blocks(*tensors)), numpy(at_once(*tensors)), atol=TOLERANCE)
    for found, expected in zip(gradients(in_blocks, inputs), gradients(at_once, inputs)):
        np.testing.assert_allclose(found, expected, atol=TOLERANCE)


@pytest.mark.parametrize("dtype, unit", [("float16", 2**-11), ("bfloat16", 2**-8)])
def test_half_precision_is_finite_and_close(dtype, unit):
    inputs = [ops.cast(normal(B, H, T, 16, seed=seed) * 3, dtype) for seed in range(3)]
    found = blockwise_attention(*inputs, random_mask(B, 1, T, T), block_size=4)
    assert keras.backend.standardize_dtype(found.dtype) == dtype
    expected = scaled_dot_product_attention(
        *(ops.cast(x, "float32") for x in inputs), random_mask(B, 1, T, T)
    )
    # scores of up to 100 in bfloat16 are off by up to a unit, and so are weights by their share
    tolerance = 12 * (1 if dtype == "float16" else 20) * unit
    np.testing.assert_allclose(numpy(ops.cast(found, "float32")), numpy(expected), atol=tolerance)


LONG = BLOCK_SIZE + 5  # tokens of a sequence in two blocks


@pytest.mark.parametrize("causal", [False, True])
def test_the_layer_has_the_weights_and_results_of_self_attention(causal):
    x = normal(B, LONG, 8)
    valid = np.arange(LONG) < np.array([[LONG], [40]])
    plain = MultiHeadSelfAttention(8, 2, causal=causal, name="attention")
    layer = MultiHeadSelfAttention(8, 2, attention="blockwise", causal=causal, name="attention")
    expected = plain(x, mask=valid)
    layer(x)
    assert [w.path for w in layer.weights] == [w.path for w in plain.weights]
    layer.set_weights(plain.get_weights())
    np.testing.assert_allclose(numpy(layer(x, mask=valid)), numpy(expected), atol=TOLERANCE)


def test_a_decoder_in_blocks_equals_one_at_once_also_step_by_step():
    x = normal(B, LONG, 8)
    plain, blockwise = (
        TransformerDecoder(8, 2, cross_attention=False, attention=attention)
        for attention in ("softmax", "blockwise")
    )
    expected = numpy(plain(x))
    blockwise(x)
    blockwise.set_weights(plain.get_weights())
    np.testing.assert_allclose(numpy(blockwise(x)), expected, atol=TOLERANCE)
    cache = blockwise.create_cache(LONG, batch_size=B)
    mask = np.tri(LONG - 1, LONG, dtype=bool)[None, None]
    _, cache = blockwise.step(x[:, :-1], cache, 0, mask)
    output, _ = blockwise.step(x[:, -1:], cache, LONG - 1, np.ones((1, 1, 1, LONG), bool))
    np.testing.assert_allclose(numpy(output)[:, 0], expected[:, -1], atol=TOLERANCE)


def test_fit_with_a_dynamic_length():
    inputs = keras.Input((None, 8))
    model = keras.Model(
        inputs, TransformerDecoder(8, 2, cross_attention=False, attention="blockwise")(inputs)
    )
    model.compile(keras.optimizers.SGD(0.1), "mse")
    before = [numpy(w) for w in model.trainable_variables]
    x = normal(4, LONG, 8)
    model.fit(x, -x, verbose=0)
    after = [numpy(w) for w in model.trainable_variables]
    assert all(np.isfinite(w).all() and (w != old).any() for w, old in zip(after, before))
