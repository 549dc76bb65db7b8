"""Mimetic initialization."""

import numpy as np
import pytest
from keras import ops

import zoo
from zoo.layers import SinusoidalGridPositions
from zoo.training.mimetic import initialize_mimetic

SETTINGS = {"input_shape": (16, 16, 3), "num_classes": 3, "patch_size": 4, "ff_dim": 32}
WIDE = {**SETTINGS, "embed_dim": 96, "num_heads": 2, "num_layers": 2}


def products(attention):
    """Of queries and keys, for each head, and of values and output: [E, E]."""
    qkv = attention.qkv.kernel.numpy()
    output = attention.output_projection.kernel.numpy()
    queries, keys, values = np.split(qkv, [(qkv.shape[1] - len(output)) // 2, -len(output)], axis=1)
    heads = attention.num_heads
    per_head = zip(np.split(queries, heads, axis=1), np.split(keys, heads, axis=1))
    return [query @ key.T for query, key in per_head], values @ output


def test_patches_attend_to_similar_ones_and_are_subtracted():
    """The products have the diagonals and the noise of Trockman and Kolter 2023, section 4."""
    model = zoo.vit(**WIDE)
    initialize_mimetic(model)
    seen = []
    for block in model.encoder_blocks:
        query_key, value_output = products(block.attention)
        off = ~np.eye(96, dtype=bool)
        # rank 96: the product is the whole of it. Half of the rank has more than half of the trace.
        assert abs(value_output.diagonal().mean() + 0.4) < 0.02
        assert abs(value_output[off].std() - 0.4 * 96**-0.5) < 0.004
        for product in query_key:
            assert np.linalg.matrix_rank(product, tol=1e-4) == 48
            assert 0.5 * 0.7 < product.diagonal().mean() < 0.7
        seen += [*query_key, value_output]
    assert all(not np.allclose(a, b) for i, a in enumerate(seen) for b in seen[:i])


def test_learned_positions_start_as_sines_and_cosines():
    model = zoo.vit(**WIDE)
    before = model.patch_positions.embeddings.numpy()
    initialize_mimetic(model)
    embeddings = model.patch_positions.embeddings.numpy()
    grid = SinusoidalGridPositions((4, 4))(ops.zeros((1, 16, 96)))[0].numpy()
    np.testing.assert_array_equal(embeddings[1:], grid)
    np.testing.assert_array_equal(embeddings[0], before[0])  # of the class token


@pytest.mark.parametrize(
    "settings",
    [
        {"key_dim": 16, "positions": "rotary"},
        {"positions": "sinusoidal", "num_registers": 2, "layer_scale": 0.1},
    ],
)
def test_any_vision_transformer_can_start_so(settings):
    """With the same seed in the same way, and nothing but attention and positions changes."""
    first, second = (zoo.vit(**{**WIDE, **settings}) for _ in range(2))
    before = {v.path: v.numpy() for v in first.trainable_variables}
    for model in (first, second):
        initialize_mimetic(model, seed=3)
    changed = {v.path for v in first.trainable_variables if (v.numpy() != before[v.path]).any()}
    kernels = {path for path in before if "/attention/" in path and path.endswith("kernel")}
    assert changed - {"vit/patch_positions/embeddings"} == kernels
    for path in changed:
        values = [
            next(v.numpy() for v in model.trainable_variables if v.path == path)
            for model in (first, second)
        ]
        if path in kernels:
            np.testing.assert_array_equal(*values)
    images = np.random.default_rng(0).normal(size=(2, 16, 16, 3)).astype("float32")
    assert np.isfinite(first(images).numpy()).all()
