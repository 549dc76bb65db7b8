"""Mimetic initialization: Vision Transformers that start like trained ones.

Axes: E model width, H heads, D head width.
"""

import numpy as np
from keras import ops

from zoo.layers.positions import LearnedPositions, SinusoidalGridPositions

QUERY_KEY = (0.7, 0.7)  # Trockman and Kolter 2023, section 4: weights of noise and of the identity
VALUE_OUTPUT = (0.4, -0.4)


def initialize_mimetic(model, seed=0):
    """Initializes attention and positions of a Vision Transformer like those of trained ones.

    In each head, the product of the query and key projections is close to the identity, so that a
    patch attends to similar patches; the product of the value and output projections is close to
    its negative. Learned positions start as sines and cosines, so that nearby patches are similar.
    Source: Trockman and Kolter 2023, "Mimetic Initialization of Self-Attention Layers", sections 3
    and 4.

    Args:
        model: built `zoo.models.ViT`.
        seed: seed of the noise.
    """
    random = np.random.default_rng(seed)
    for block in model.encoder_blocks:
        _initialize_attention(block.attention, random)
    positions = getattr(model, "patch_positions", None)
    if isinstance(positions, LearnedPositions):
        _start_sinusoidal(positions)


def _initialize_attention(attention, random):
    width, heads = attention.embed_dim, attention.num_heads
    qkv = ops.convert_to_numpy(attention.qkv.kernel)
    values = attention.output_projection.kernel.shape[0]
    keys = (qkv.shape[1] - values) // 2
    query_key = [_factors(width, keys // heads, *QUERY_KEY, random) for _ in range(heads)]
    query, key = (np.concatenate(side, axis=1) for side in zip(*query_key))
    value, output = _factors(width, values, *VALUE_OUTPUT, random)
    attention.qkv.kernel.assign(np.concatenate([query, key, value], axis=1))
    attention.output_projection.kernel.assign(output.T)


def _factors(width, rank, noise, identity, random):
    """Two matrices A and B, [E, rank], with A·Bᵀ close to noise · N(0, 1/E) + identity · I."""
    target = random.normal(scale=noise * width**-0.5, size=(width, width))
    left, sizes, right = np.linalg.svd(target + identity * np.eye(width))
    root = np.sqrt(sizes[:rank])
    return left[:, :rank] * root, right[:rank].T * root


def _start_sinusoidal(positions):
    table = positions.embeddings
    patches = table.shape[-2] - positions.num_prefix_tokens
    sinusoidal = SinusoidalGridPositions(positions.shape)
    grid = sinusoidal(ops.zeros((1, patches, table.shape[-1])))[0]
    start = ops.convert_to_numpy(table).copy()
    start[..., positions.num_prefix_tokens :, :] = ops.convert_to_numpy(grid)
    table.assign(start)
