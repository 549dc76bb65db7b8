"""Attention: parity with Keras, masks, and what a head may see."""

import keras
import numpy as np
import pytest
from keras import ops

from zoo.layers import (
    MultiHeadAttention,
    MultiHeadSelfAttention,
    TransformerEncoder,
    attention_mask,
    attention_weights,
    blockwise_attention,
    causal_mask,
    padding_mask,
    scaled_dot_product_attention,
)

# float32 sums of a few dozen terms in another order
TOLERANCE = 2e-6


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def numpy(tensor):
    return ops.convert_to_numpy(tensor)


def gradients(function, inputs):
    """Gradients of the sum of the sines of `function`'s result with respect to its inputs."""

    def loss(*inputs):
        return ops.sum(ops.sin(function(*inputs)))

    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        @tf.function
        def differentiate(*inputs):
            with tf.GradientTape() as tape:
                tape.watch(inputs)
                total = loss(*inputs)
            return tape.gradient(total, inputs)

        return [x.numpy() for x in differentiate(*map(tf.constant, inputs))]
    if keras.backend.backend() == "jax":
        import jax

        return [numpy(x) for x in jax.grad(loss, argnums=tuple(range(len(inputs))))(*inputs)]
    tensors = [ops.convert_to_tensor(x).requires_grad_() for x in inputs]
    loss(*tensors).backward()
    return [numpy(x.grad) for x in tensors]


def copy_to_keras(twin, query, key, value, output):
    """Each argument is a (kernel [E, H·D], bias) pair; Keras has an axis for the heads."""
    for dense, (kernel, bias) in (
        (twin._query_dense, query),
        (twin._key_dense, key),
        (twin._value_dense, value),
    ):
        dense.kernel.assign(kernel.reshape(dense.kernel.shape))
        dense.bias.assign(bias.reshape(dense.bias.shape))
    twin._output_dense.kernel.assign(output[0].reshape(twin._output_dense.kernel.shape))
    twin._output_dense.bias.assign(output[1])


def parts(dense, *ends):
    """The (kernel, bias) pairs that lie side by side in a dense layer."""
    kernel, bias = (numpy(v) for v in (dense.kernel, dense.bias))
    return list(zip(np.split(kernel, ends, axis=1), np.split(bias, ends)))


@pytest.mark.parametrize("masked", [False, True])
def test_self_attention_equals_keras(masked):
    ours = MultiHeadSelfAttention(12, 3, key_dim=5, value_dim=7)
    x = normal(4, 6, 12)
    mask = np.tri(6, dtype=bool)[None] if masked else None
    ours(x)
    for index, variable in enumerate(ours.weights):
        variable.assign(normal(*variable.shape, seed=index))
    theirs = keras.layers.MultiHeadAttention(3, 5, 7)
    theirs(x, x, return_attention_scores=True)  # on JAX, Keras needs this for another value width
    copy_to_keras(theirs, *parts(ours.qkv, 15, 30), *parts(ours.output_projection))
    expected, weights = theirs(x, x, attention_mask=mask, return_attention_scores=True)
    mask = None if mask is None else mask[:, None]
    # weights of up to 5 standard deviations: outputs are of the order of 100
    np.testing.assert_allclose(numpy(ours(x, mask=mask)), numpy(expected), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(numpy(ours.attention_weights(x, mask)), numpy(weights), atol=1e-5)


def test_attention_to_a_memory_equals_keras():
    ours = MultiHeadAttention(12, 3, key_dim=5, value_dim=7)
    query = normal(4, 6, 12)
    memory = normal(4, 9, 10, seed=1)
    ours(query, memory)
    for index, variable in enumerate(ours.weights):
        variable.assign(normal(*variable.shape, seed=index))
    theirs = keras.layers.MultiHeadAttention(3, 5, 7)
    theirs(query, memory, return_attention_scores=True)
    copy_to_keras(
        theirs, *parts(ours.query), *parts(ours.key_value, 15), *parts(ours.output_projection)
    )
    valid = np.arange(9) < np.array([[9], [4], [1], [7]])
    expected, weights = theirs(
        query, memory, attention_mask=valid[:, None], return_attention_scores=True
    )
    np.testing.assert_allclose(
        numpy(ours(query, memory, mask=valid)), numpy(expected), rtol=1e-4, atol=1e-4
    )
    found = ours.attention_weights(query, memory, valid)
    np.testing.assert_allclose(numpy(found), numpy(weights), atol=1e-5)


def test_a_batch_of_one_is_broadcast():
    """Also if its size is not known, and for gradients."""
    layer = MultiHeadAttention(8, 2)
    x = normal(1, 3, 8)
    memory = normal(2, 5, 8, seed=1)
    expected = [layer(np.repeat(x, 2, 0), memory), layer(np.repeat(memory[:1], 2, 0), memory)]
    for query, other in zip((x, memory[:1]), expected):
        np.testing.assert_allclose(numpy(layer(query, memory)), numpy(other), atol=TOLERANCE)
        assert [g.shape for g in gradients(layer, [query, memory])] == [query.shape, memory.shape]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_masked_weights_are_exactly_zero(dtype):
    query, key = (ops.cast(normal(2, 3, 4, 8, seed=s) * 20, dtype) for s in (0, 1))
    mask = np.random.default_rng(2).random((2, 1, 4, 4)) < 0.5
    mask[0, 0, 2] = False
    weights = numpy(ops.cast(attention_weights(query, key, mask), "float32"))
    mask = np.broadcast_to(mask, weights.shape)
    assert (weights[~mask] == 0).all()
    sums = weights.sum(axis=-1)
    # half precision rounds each weight: 2^-8 for bfloat16
    np.testing.assert_allclose(sums, mask.any(axis=-1), atol=1e-6 if dtype == "float32" else 1e-2)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_large_scores_do_not_overflow(dtype):
    large = ops.cast(np.full((1, 1, 2, 64), 300.0), dtype)
    np.testing.assert_array_equal(numpy(ops.cast(attention_weights(large, large), "float32")), 0.5)


def test_scores_of_float16_are_computed_in_float32():
    query = np.full((1, 1, 1, 64), 16.0)
    key = np.full((1, 1, 2, 64), 128.0)
    key[0, 0, 1, 0] -= 0.125  # scores of 16384 and 16383.75, which float16 cannot tell apart
    query = ops.cast(query, "float16")
    key = ops.cast(key, "float16")
    weights = numpy(ops.cast(attention_weights(query, key), "float32"))
    np.testing.assert_allclose(weights[0, 0, 0, 0], 1 / (1 + np.exp(-0.25)), rtol=2**-10)


def test_the_mask_that_keras_carries_goes_on_and_hides_weights():
    """That it hides keys from the outputs is in the contracts."""
    ids = np.array([[5, 3, 0], [2, 0, 0]])
    embedded = keras.layers.Embedding(10, 8, mask_zero=True)(ids)
    layer = MultiHeadSelfAttention(8, 2)
    cross = MultiHeadAttention(8, 2)
    assert (numpy(layer(embedded)._keras_mask) == (ids != 0)).all()
    causal = layer(embedded, mask=causal_mask(3))
    assert causal._keras_mask.shape == (2, 3), "a causal mask of the call is no padding"
    query = normal(2, 4, 8)
    mask = getattr(cross(query, embedded), "_keras_mask", None)
    assert mask is None, "the memory's mask is not the query's"
    for weights in (layer.attention_weights(embedded), cross.attention_weights(query, embedded)):
        assert ((numpy(weights) > 0) == (ids != 0)[:, None, None]).all()


def test_bad_arguments():
    with pytest.raises(ValueError, match="embed_dim=10, num_heads=3"):
        MultiHeadSelfAttention(10, 3)
    with pytest.raises(ValueError, match="num_heads=0"):
        MultiHeadAttention(10, 0)
    with pytest.raises(ValueError, match=r"shape \(3,\)"):
        MultiHeadSelfAttention(4, 2)(normal(2, 3, 4), mask=np.ones(3, bool))
    for shape in ((4, 4), (2, 2, 3, 4)):
        with pytest.raises(ValueError, match="expected ndim=3"):
            MultiHeadSelfAttention(4, 2)(normal(*shape))
        with pytest.raises(ValueError, match="expected ndim=3"):
            TransformerEncoder(4, 2)(normal(*shape))


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("shape", [(3, 3), (3, 1), (3, 1, 3), (3, 1, 1, 3), (1, 3, 3, 3), (2, 4)])
def test_masks_and_biases_do_not_enlarge_the_scores(batch, shape):
    layer = MultiHeadSelfAttention(4, 2)
    x = normal(batch, 3, 4)
    full = rf"\({batch}, 2, 3, 3\)"
    with pytest.raises(ValueError, match="mask must broadcast .*" + full):
        layer(x, mask=np.ones(shape, bool))
    if len(shape) == 4:
        with pytest.raises(ValueError, match="bias must broadcast .*" + full):
            layer(x, bias=np.zeros(shape, "float32"))


def test_masks():
    valid = np.array([[True, True, False]])
    expected = np.array([[1, 0, 0], [1, 1, 0], [1, 1, 0]], bool)
    both = padding_mask(valid) & causal_mask(3)
    assert (numpy(both) == expected[None, None]).all()
    assert attention_mask(None) is None
    assert (numpy(causal_mask(4)) == np.tri(4, dtype=bool)).all()


@pytest.mark.parametrize("function", [scaled_dot_product_attention, blockwise_attention])
@pytest.mark.parametrize("length", [4, 300])
def test_a_mask_of_queries_and_keys_and_causality(function, length):
    """A mask [T, S] is what it is without `causal`, also in a batch of as many sequences."""
    query, key, value = (normal(4, 2, length, 3, seed=seed) for seed in range(3))
    mask = np.random.default_rng(0).random((length, length)) < 0.7
    expected = scaled_dot_product_attention(
        query, key, value, mask & np.tri(length, dtype=bool)[None, None]
    )
    found = function(query, key, value, mask, causal=True)
    np.testing.assert_allclose(numpy(found), numpy(expected), atol=1e-5)
    with pytest.raises(ValueError, match="mask must broadcast"):
        function(query, key, value, mask[:-1])


def test_weights_of_cross_attention_are_those_of_the_call():
    query = normal(2, 5, 8)
    memory = normal(2, 5, 6, seed=1)
    for options in ({}, {"attention": "linear"}):
        layer = MultiHeadAttention(8, 2, **options)
        expected = layer(query, memory)
        _, value = layer.project(memory)
        attended = ops.matmul(layer.attention_weights(query, memory), value)
        attended = layer.output_projection(
            ops.reshape(ops.transpose(attended, (0, 2, 1, 3)), (2, 5, 8))
        )
        np.testing.assert_allclose(numpy(attended), numpy(expected), atol=1e-5)


def test_slots_keep_the_width_of_values():
    layer = MultiHeadSelfAttention(8, 2, value_dim=5)
    cache = layer.create_cache(2, 6).for_hypotheses(3)
    assert [x.shape for x in cache] == [(2, 2, 18, 4), (2, 2, 18, 5)]
