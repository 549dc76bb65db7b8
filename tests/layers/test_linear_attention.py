"""Linear attention: parity with the quadratic formula, causality, masks, cached steps."""

import keras
import numpy as np
import pytest
from keras import ops

from tests.layers.test_attention import gradients, normal, numpy
from zoo.layers import (
    MultiHeadSelfAttention,
    RotaryPositions,
    blockwise_attention,
    causal_mask,
    linear_attention,
    linear_attention_weights,
)

# float32 sums of a few dozen terms in another order
TOLERANCE = 1e-5
B, H, T, S = 2, 3, 11, 9


def quadratic(query, key, value, mask=True):
    """The formula with all weights, in float64."""

    def feature_map(x):
        x = x.astype("float64")
        return np.where(x > 0, x, np.expm1(x)) + 1

    weights = np.einsum("bhtd,bhsd->bhts", feature_map(query), feature_map(key)) * mask
    totals = weights.sum(axis=-1, keepdims=True)
    return np.divide(weights, totals, out=np.zeros_like(weights), where=totals > 0) @ value


def heads(queries=T, keys=S):
    return normal(B, H, queries, 5), normal(B, H, keys, 5, seed=1), normal(B, H, keys, 7, seed=2)


def padding(length):
    return np.arange(length) < np.array([[0], [length - 2]])  # the first one has no keys


@pytest.mark.parametrize("masked", [False, True])
def test_equals_the_quadratic_formula(masked):
    query, key, value = heads()
    mask = padding(S)[:, None, None] if masked else None
    found = numpy(linear_attention(query, key, value, mask))
    expected = quadratic(query, key, value, True if mask is None else mask)
    np.testing.assert_allclose(found, expected, atol=TOLERANCE)
    if masked:
        assert (found[0] == 0).all()


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("size", [1, 4, T, 64])
def test_causal_equals_the_quadratic_formula_with_chunks_of_any_size(size, masked):
    query, key, value = heads(T, T)
    valid = np.ones((B, 1, 1, T), bool)
    valid[0, ..., :2] = valid[1, ..., 5] = not masked
    found = linear_attention(
        query, key, value, valid if masked else None, causal=True, chunk_size=size
    )
    expected = quadratic(query, key, value, valid & np.tri(T, dtype=bool))
    np.testing.assert_allclose(numpy(found), expected, atol=TOLERANCE)


@pytest.mark.parametrize("causal", [False, True])
def test_gradients_equal_those_of_the_weights_one_by_one(causal):
    inputs = heads(T, T)
    mask = padding(T)[:, None, None]
    both = mask & np.tri(T, dtype=bool) if causal else mask

    def one_by_one(query, key, value):
        return ops.matmul(linear_attention_weights(query, key, both), value)

    found = gradients(lambda *x: linear_attention(*x, mask, causal=causal, chunk_size=4), inputs)
    for ours, expected in zip(found, gradients(one_by_one, inputs)):
        assert np.isfinite(ours).all()
        np.testing.assert_allclose(ours, expected, atol=TOLERANCE)


def test_the_feature_map_is_positive_far_below_zero():
    query = normal(1, 1, 2, 4)
    key = np.full((1, 1, 2, 4), -40.0, "float32")
    value = normal(1, 1, 2, 3, seed=1)
    key[:, :, 1] -= np.log(3.0)  # a third of the weight of the other
    expected = 0.75 * value[:, :, :1] + 0.25 * value[:, :, 1:]
    found = numpy(linear_attention(query, key, value))
    np.testing.assert_allclose(found, np.repeat(expected, 2, axis=2), rtol=1e-4)


@pytest.mark.parametrize("dtype, unit", [("float16", 2**-11), ("bfloat16", 2**-8)])
@pytest.mark.parametrize("causal", [False, True])
def test_half_precision_sums_in_float32(dtype, unit, causal):
    length = 4096  # the sum of as many weights overflows float16
    shape = (1, 1, length, 8)
    query, key = (ops.cast(np.full(shape, 8.0), dtype) for _ in range(2))
    value = ops.cast(np.full(shape, 0.7), dtype)
    found = linear_attention(query, key, value, causal=causal)
    assert keras.backend.standardize_dtype(found.dtype) == dtype
    np.testing.assert_allclose(numpy(ops.cast(found, "float32")), 0.7, rtol=2 * unit)


def test_masks_of_queries_and_biases_are_refused():
    x = normal(B, T, 8)
    for causal in (False, True):
        layer = MultiHeadSelfAttention(8, 2, attention="linear", causal=causal)
        with pytest.raises(ValueError, match="may not depend on the query"):
            layer(x, mask=causal_mask(T))
        with pytest.raises(ValueError, match=r"bias of shape \(1, 2, 11, 11\)"):
            layer(x, bias=normal(1, 2, T, T))


@pytest.mark.parametrize(
    "attention, causal",
    [("softmax", True), ("blockwise", True), ("linear", True), ("linear", False)],
)
def test_weights_are_those_of_the_call(attention, causal):
    x = normal(B, T, 8)
    valid = np.arange(T) < np.array([[T], [4]])
    layer = MultiHeadSelfAttention(8, 2, attention=attention, causal=causal)
    rotation = RotaryPositions(4)(np.arange(T)[None])
    expected = layer(x, mask=valid, rotation=rotation)
    weights = layer.attention_weights(x, mask=valid, rotation=rotation)
    _, _, value = layer.project(x)
    attended = layer.output_projection(layer._join_heads(ops.matmul(weights, value)))
    np.testing.assert_allclose(numpy(attended), numpy(expected), atol=TOLERANCE)


@pytest.mark.parametrize("function", [linear_attention, blockwise_attention])
def test_causal_attention_needs_as_many_queries_as_keys(function):
    with pytest.raises(ValueError, match="causal=True, 11 queries and 9 keys"):
        function(*heads(), causal=True)
