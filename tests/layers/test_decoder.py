"""The decoder block: causality, steps with a cache, and relative positions.

tests/parity compares models with the library transformers.
"""

import numpy as np
import pytest
from keras import ops

from tests.layers.test_encoder import normal, numpy, shaken
from zoo.layers import RelativePositions, TransformerDecoder, TransformerEncoder, causal_mask

# Sums of some dozen float32 numbers of the order of 10, in another order.
TOLERANCE = {"rtol": 1e-4, "atol": 1e-4}


def decoder_with_inputs(**settings):
    layer = TransformerDecoder(12, 3, 20, **settings)
    x = normal(2, 6, 12)
    memory = normal(2, 5, 8, seed=1)
    layer(x, memory)
    return shaken(layer), x, memory


@pytest.mark.parametrize("settings", [{"norm": "pre"}, {"norm": "post"}, {"attention": "linear"}])
@pytest.mark.parametrize("sizes", [(1, 1, 1, 1, 1, 1), (3, 2, 1), (6,)])
def test_steps_equal_the_whole(settings, sizes):
    """Positions may come one by one, or several at once."""
    layer, x, memory = decoder_with_inputs(**settings)
    valid = np.arange(5) < np.array([[5], [3]])
    expected = numpy(layer(x, memory, memory_mask=valid))
    cache = layer.create_cache(8, memory)
    position = 0
    for size in sizes:
        mask = ops.arange(8)[None, :] <= position + ops.arange(size)[:, None]
        part = x[:, position : position + size]
        found, cache = layer.step(part, cache, position, mask[None, None], valid)
        np.testing.assert_allclose(
            numpy(found), expected[:, position : position + size], **TOLERANCE
        )
        position += size


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_without_a_memory_it_is_a_causal_encoder(norm):
    layer = TransformerDecoder(12, 3, 20, norm=norm, cross_attention=False)
    x = normal(2, 6, 12)
    layer(x)
    shaken(layer)
    encoder = TransformerEncoder(12, 3, 20, norm=norm)
    encoder(x)
    names = ("attention", "attention_norm", "feed_forward", "feed_forward_norm")
    for name in names:
        source = getattr(layer, name.replace("attention", "self_attention"))
        getattr(encoder, name).set_weights(source.get_weights())
    expected = numpy(encoder(x, mask=causal_mask(6)))
    np.testing.assert_allclose(numpy(layer(x)), expected, **TOLERANCE)
    assert layer.count_params() == encoder.count_params()
    cache = layer.create_cache(6, batch_size=2)
    mask = np.tri(6, dtype=bool)
    for position in range(6):
        part = x[:, position : position + 1]
        found, cache = layer.step(part, cache, position, mask[None, None, position, None])
        np.testing.assert_allclose(numpy(found)[:, 0], expected[:, position], **TOLERANCE)


def test_a_memory_is_given_always_or_never():
    layer, x, memory = decoder_with_inputs()
    for call in (lambda: layer(x), lambda: layer.create_cache(6, batch_size=2)):
        with pytest.raises(ValueError, match="cross_attention=True, no memory"):
            call()
    alone = TransformerDecoder(12, 3, 20, cross_attention=False)
    alone(x)
    for call in (
        alone,
        alone.cross_attention_weights,
        lambda x, memory: alone.create_cache(6, memory),
    ):
        with pytest.raises(ValueError, match="cross_attention=False, a memory"):
            call(x, memory)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("num_buckets", range(10))
def test_relative_positions_of_few_buckets_or_short_distances(bidirectional, num_buckets):
    """Either they are refused, or every distance has a bucket, and no later one a lower bucket."""
    for max_distance in range(8):
        try:
            layer = RelativePositions(1, num_buckets, max_distance, bidirectional)
        except ValueError as error:
            exact = num_buckets // (4 if bidirectional else 2)
            assert exact < 1 or exact >= max_distance
            assert f"max_distance={max_distance}" in str(error)
            continue
        layer.build((None, None))
        layer.embeddings.assign(np.arange(num_buckets, dtype="float32")[:, None])
        for distances in (np.arange(0, -20, -1), np.arange(1, 20)):
            buckets = numpy(layer(np.array([[20]]), 20 + distances[None])).ravel()
            assert set(buckets) <= set(range(num_buckets))
            assert (np.diff(buckets) >= 0).all()


def test_relative_positions_bias_the_scores():
    layer, x, memory = decoder_with_inputs()
    none = numpy(layer(x, memory))
    far = ops.where(ops.arange(6)[None, :] == ops.arange(6)[:, None], 0.0, -1e9)[None, None]
    alone = numpy(layer(x, memory, bias=far))
    np.testing.assert_allclose(alone[:, 0], none[:, 0], **TOLERANCE)
    # each position now attends to itself alone, as a sequence of one does
    for position in range(6):
        one = numpy(layer(x[:, position : position + 1], memory))
        np.testing.assert_allclose(alone[:, position], one[:, 0], **TOLERANCE)
