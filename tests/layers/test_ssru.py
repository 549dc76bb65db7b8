"""The SSRU: parity with its equations one after the other, steps, causality, gradients."""

import keras
import numpy as np
import pytest

from tests.layers.test_attention import gradients, normal, numpy
from zoo.layers import SSRU
from zoo.layers.ssru import CHUNK_SIZE

# float32 sums of at most a thousand terms, each smaller than the one before, in another order
TOLERANCE = 1e-6


def layer_of(width=8, **settings):
    keras.utils.set_random_seed(0)
    layer = SSRU(width, **settings)
    layer.build((None, None, width))
    layer.forget_gate.bias.assign(normal(width, seed=3))
    return layer


def one_by_one(layer, x, mask=None):
    """The equations of the paper in float64."""
    gate, bias, candidate = (np.asarray(numpy(w), "float64") for w in layer.weights)
    cell = np.zeros((len(x), layer.embed_dim))
    cells = []
    for t in range(x.shape[1]):
        forget = 1.0 / (1.0 + np.exp(-(x[:, t] @ gate + bias)))
        new = forget * cell + (1.0 - forget) * (x[:, t] @ candidate)
        cell = new if mask is None else np.where(mask[:, t, None], new, cell)
        cells.append(cell)
    return np.maximum(np.stack(cells, 1), 0.0)


@pytest.mark.parametrize("length", [1, CHUNK_SIZE, CHUNK_SIZE + 1, CHUNK_SIZE**2 + 3])
def test_the_scan_equals_the_equations_and_the_steps(length):
    layer = layer_of()
    x = normal(2, length, 8)
    found = numpy(layer(x))
    np.testing.assert_allclose(found, one_by_one(layer, x), atol=TOLERANCE)
    cache = layer.create_cache(2, length)
    for t in range(min(length, 50)):
        y, cache = layer.step(x[:, t : t + 1], cache, t, None)
        np.testing.assert_allclose(numpy(y)[:, 0], found[:, t], atol=TOLERANCE)


def test_batches_without_rows():
    assert layer_of()(np.zeros((0, CHUNK_SIZE + 1, 8), "float32")).shape == (0, CHUNK_SIZE + 1, 8)


def test_a_mask_skips_tokens():
    layer = layer_of()
    x = normal(2, 7, 8)
    mask = np.array([[1, 0, 1, 1, 0, 1, 1], [0, 0, 1, 1, 1, 0, 0]], bool)
    found = numpy(layer(x, mask=mask))
    np.testing.assert_allclose(found, one_by_one(layer, x, mask), atol=TOLERANCE)
    with pytest.raises(ValueError, match="may not depend on the query"):
        layer(x, mask=np.tril(np.ones((1, 7, 7), bool)))
    with pytest.raises(ValueError, match="no attention scores"):
        layer(x, bias=normal(1, 1, 7, 7))


def test_no_position_depends_on_later_ones():
    layer = layer_of()
    x = normal(2, CHUNK_SIZE + 9, 8)
    for position in (CHUNK_SIZE - 1, CHUNK_SIZE):
        [gradient] = gradients(lambda x, p=position: layer(x)[:, p], [x])
        assert np.abs(gradient[:, : position + 1]).max() > 0
        assert (gradient[:, position + 1 :] == 0).all()


def test_gradients_by_finite_differences():
    """Along the inputs; central differences of the equations in float64 have an error of 1e-9."""
    layer = layer_of(4)
    x = normal(2, CHUNK_SIZE + 3, 4)
    along = normal(*x.shape, seed=1).astype("float64")
    [gradient] = gradients(layer, [x])  # of the sum of sines
    after, before = (np.sin(one_by_one(layer, x + s * along)).sum() for s in (1e-6, -1e-6))
    # a float32 gradient
    np.testing.assert_allclose(np.sum(gradient * along), (after - before) / 2e-6, rtol=1e-4)


def test_the_length_may_be_unknown_when_a_graph_is_traced():
    if keras.backend.backend() != "tensorflow":
        pytest.skip("graphs of TensorFlow")
    import tensorflow as tf

    layer = layer_of()
    x = normal(2, CHUNK_SIZE + 5, 8)
    for jit_compile in (False, True):
        traced = tf.function(
            layer, input_signature=[tf.TensorSpec((None, None, 8))], jit_compile=jit_compile
        )
        np.testing.assert_allclose(traced(x), one_by_one(layer, x), atol=TOLERANCE)
