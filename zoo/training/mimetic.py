"""Mimetic initialization: Vision Transformers that start like trained ones.

Axes: E model width, H heads, D head width.
"""

import numpy as np
from keras import ops

from zoo.layers.positions import LearnedPositions, SinusoidalGridPositions

QUERY_KEY = (0.7, 0.7)  # Trockman and Kolter 2023, section 4: weights of noise and of the identity
VALUE_OUTPUT = (0.4, -0.4)


def initialize_mimetic(model, seed=0):
    """Initializes attention and positions of a Vision Transformer as in trained models.

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
    width = attention.embed_dim
    value_width = attention.output_projection.kernel.shape[0]  # H·D of values
    key_width = (attention.qkv.kernel.shape[1] - value_width) // 2  # H·D of queries and of keys
    queries = []
    keys = []
    for _ in range(attention.num_heads):
        query, key = _factors(width, key_width // attention.num_heads, *QUERY_KEY, random)
        queries.append(query)  # [E, D]
        keys.append(key)  # [E, D]
    value, output = _factors(width, value_width, *VALUE_OUTPUT, random)  # [E, H·D] each
    attention.qkv.kernel.assign(np.concatenate([*queries, *keys, value], axis=1))
    attention.output_projection.kernel.assign(output.T)


def _factors(width, rank, noise, identity, random):
    """Two matrices A and B, [E, rank], with A·Bᵀ close to noise · N(0, 1/E) + identity · I."""
    target = random.normal(scale=noise * width**-0.5, size=(width, width))
    left, sizes, right = np.linalg.svd(target + identity * np.eye(width))
    root = np.sqrt(sizes[:rank])
    a = left[:, :rank] * root
    b = right[:rank].T * root
    return a, b


def _start_sinusoidal(positions):
    table = ops.convert_to_numpy(positions.embeddings).copy()  # [..., prefix tokens + patches, E]
    prefix = positions.num_prefix_tokens
    num_patches = table.shape[-2] - prefix
    sinusoidal = SinusoidalGridPositions(positions.shape, dtype=positions.variable_dtype)
    grid = sinusoidal(ops.zeros((1, num_patches, table.shape[-1])))[0]  # [patches, E]
    table[..., prefix:, :] = ops.convert_to_numpy(grid)
    positions.embeddings.assign(table)
