"""Attention with an explicit gradient equals the plain function, forward and backward."""

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from tests.layers.test_attention import gradients, normal, numpy
from zoo import kernels
from zoo.layers import MultiHeadAttention, MultiHeadSelfAttention


def plain_and_kernel(layer, inputs, dtype, **arguments):
    """[results and gradients] of a training step: with kernels off, and on."""

    def call(*tensors):
        x, weights = tensors[: len(inputs)], tensors[len(inputs) :]
        attended, _ = layer.stateless_call(weights, [], *x, training=True, **arguments)
        return ops.cast(attended, "float64" if dtype == "float64" else "float32")

    tensors = [*inputs, *(normal(*w.shape, seed=i) for i, w in enumerate(layer.weights))]
    results = []
    for on in (False, True):
        kernels.enabled = on  # the fixture restores it
        graph = tf.function(call).get_concrete_function(*map(tf.constant, tensors)).graph
        results.append([numpy(call(*map(tf.constant, tensors))), *gradients(call, tensors)])
        custom = "IdentityN" in {op.type for op in graph.get_operations()}
        assert custom == (on and dtype != "mixed_float16")  # whose gradients would underflow
    return results


@pytest.mark.parametrize(
    "settings, mask_shape, dtype",
    [
        ({}, None, "float32"),
        ({}, (3, 5), "float32"),
        ({"value_dim": 7}, (3, 1, 5, 5), "float32"),
        ({"causal": True}, None, "float32"),
        ({"causal": True}, (3, 1, 5, 5), "float32"),
        ({"memory": 5}, None, "float32"),
        ({"memory": 5}, (3, 5), "float64"),
        *(({}, (3, 1, 5, 5), dtype) for dtype in ("mixed_bfloat16", "mixed_float16")),
        ({"causal": True, "value_dim": 7}, (3, 5), "mixed_bfloat16"),
    ],
)
def test_equals_the_plain_function(settings, mask_shape, dtype):
    memory = settings.get("memory")
    kind = MultiHeadAttention if memory else MultiHeadSelfAttention
    layer = kind(8, 2, **{k: v for k, v in settings.items() if k != "memory"}, dtype=dtype)
    inputs, mask = [normal(3, 5, 8), *([normal(3, 5, 6, seed=9)] if memory else [])], None
    layer.build(*(x.shape for x in inputs))
    if mask_shape is not None:
        mask = np.random.default_rng(3).random(mask_shape) < 0.5
        mask[1] = False  # queries that may attend to nothing
    # half precision rounds each product of some ten terms; others, sums of a few dozen
    unit = {"mixed_bfloat16": 2**-8, "mixed_float16": 2**-11}.get(dtype, 2**-22)
    for expected, found in zip(*plain_and_kernel(layer, inputs, dtype, mask=mask), strict=True):
        np.testing.assert_allclose(found, expected, atol=8 * unit * max(1, np.abs(expected).max()))


def test_shapes_that_are_broadcast_are_left_to_the_plain_function():
    query, key = (tf.constant(normal(2, 3, 4, 5, seed=seed)) for seed in range(2))
    square = np.ones((4, 4), bool)
    assert kernels.attention(query, key, key, square) is not None
    assert kernels.attention(query, key, key[:1]) is None  # values of a batch of one
    assert kernels.attention(query, key, key, square[:3]) is None  # which raises
    assert kernels.attention(query, key[:, :, :3], key[:, :, :3], causal=True) is None


def test_what_values_have_in_common_costs_no_precision():
    """The gradient of the scores is a difference, whose terms bfloat16 would round too much."""
    inputs = [normal(1, 2, 1024, 16, seed=seed) + shift for seed, shift in enumerate((0, 0, 1))]
    inputs = [numpy(ops.cast(ops.cast(x, "bfloat16"), "float32")) for x in inputs]

    def attend(dtype):
        def call(*inputs):
            attended = kernels.attention(*(ops.cast(x, dtype) for x in inputs))
            return ops.cast(attended, "float32")

        return call

    found, expected = (gradients(attend(dtype), inputs) for dtype in ("bfloat16", "float32"))
    for one, other in zip(found, expected, strict=True):
        # 2^-8 is the unit of bfloat16; each gradient is the result of several products
        assert np.linalg.norm(one - other) < 3 * 2**-8 * np.linalg.norm(other)
