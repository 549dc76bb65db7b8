"""The layers against attention, an encoder block and cross-attention calculated by hand.

`tests/worked_examples.json` holds the numbers, to ten digits, from float64: float32 agrees to 1e-5.
"""

import json
import pathlib

import numpy as np
import pytest
from keras import ops

from zoo.layers import (
    MultiHeadAttention,
    MultiHeadSelfAttention,
    SinusoidalPositions,
    TransformerEncoder,
)

EXAMPLES = json.loads((pathlib.Path(__file__).parents[1] / "worked_examples.json").read_text())


NO_BIAS = {"qkv_bias": False, "output_bias": False}


def array(numbers):
    return np.asarray(numbers, "float32")


def assert_close(found, expected, tolerance=1e-5):
    np.testing.assert_allclose(
        ops.convert_to_numpy(found), expected, atol=tolerance, rtol=tolerance
    )


def side_by_side(*names, example):
    """Matrices of each head [H, E, D] -> one matrix [E, all heads of the first name, ...]."""
    return np.concatenate([np.concatenate(array(example[name]), axis=1) for name in names], axis=1)


def test_sinusoidal_positions():
    example = EXAMPLES["sinusoidal_positions"]
    zeros = np.zeros((1, example["length"], example["width"]), "float32")
    assert_close(SinusoidalPositions()(zeros)[0], example["expected"])


@pytest.fixture
def self_attention():
    example = EXAMPLES["encoder_block"]
    layer = MultiHeadSelfAttention(embed_dim=4, num_heads=2, key_dim=3, **NO_BIAS)
    layer.build((1, 2, 4))
    layer.qkv.set_weights([side_by_side("wq", "wk", "wv", example=example)])
    layer.output_projection.set_weights([array(example["wo"])])
    return layer


def test_self_attention(self_attention):
    example = EXAMPLES["encoder_block"]
    expected = example["expected"]
    x = array([example["x"]])
    assert_close(self_attention.attention_weights(x)[0], expected["attention_weights"])
    assert_close(self_attention(x)[0], expected["attention_output"])
    assert_close(self_attention(x)[0], example["published"]["attention_output"], tolerance=2e-3)


@pytest.fixture
def block():
    """A post-norm block, for its feed-forward network and its residual connections."""
    layer = TransformerEncoder(4, 2, 8, norm="post", activation="relu", epsilon=0.0)
    layer.build((1, 2, 4))
    return layer


def test_encoder_block(self_attention, block):
    """By hand, the first residual sum is of the attention's output with itself."""
    example = EXAMPLES["encoder_block"]
    expected = example["expected"]
    attended = self_attention(array([example["x"]]))
    norm1 = block.attention_norm(attended + attended)
    assert_close(norm1[0], expected["norm1"])
    network = block.feed_forward
    network.set_weights([array(example[name]) for name in ("w1", "b1", "w2", "b2")])
    assert_close(network(attended)[0], expected["feed_forward_of_attention_output"])
    output = block.feed_forward_norm(norm1 + network(norm1))
    assert_close(output[0], expected["block_output"])
    assert_close(output[0], example["published"]["block_output"], tolerance=2e-3)


def test_cross_attention(block):
    example = EXAMPLES["cross_attention"]
    expected = example["expected"]
    query = array([example["query"]])
    memory = array([example["memory"]])
    layer = MultiHeadAttention(embed_dim=4, num_heads=2, key_dim=3, **NO_BIAS)
    layer.build(query.shape, memory.shape)
    layer.query.set_weights([side_by_side("wq", example=example)])
    layer.key_value.set_weights([side_by_side("wk", "wv", example=example)])
    layer.output_projection.set_weights([array(example["wo"])])
    assert_close(layer(query, memory)[0], expected["attention_output"])
    output = block.attention_norm(ops.add(query, layer(query, memory)))
    assert_close(output[0], expected["norm"])
    assert_close(output[0], example["published"]["norm"], tolerance=2e-3)


def test_heads_are_joined_before_the_output_projection():
    example = EXAMPLES["sequence_after_head_concat"]
    layer = MultiHeadSelfAttention(embed_dim=3, num_heads=2, key_dim=3, **NO_BIAS)
    layer.build((1, 3, 6))
    # Each position attends to itself alone, and values are the input: so are the heads' outputs.
    kernel = np.zeros((6, 18), "float32")
    kernel[:, 12:] = np.eye(6)
    layer.qkv.set_weights([kernel])
    layer.output_projection.set_weights([array(example["wo"])])
    heads = np.concatenate(array(example["heads"]), axis=1)[None]
    only_itself = np.eye(3, dtype=bool)[None, None]
    assert_close(layer(heads, mask=only_itself)[0], example["expected"])
