"""Tensors, images and tokens drawn alike everywhere, so that goldens hold outputs only."""

import zlib

import numpy as np

RECORDED = 24  # the largest number of outputs of an image, or of a token, in goldens


def tensors(shapes):
    """{name: float32 array}: weights that matter, whatever their order."""
    return {name: _tensor(name, shape) for name, shape in shapes.items()}


def images(height, width, channels=3):
    """Two normalized images: float32 [2, H, W, C]."""
    random = np.random.default_rng([height, width, channels])
    return random.normal(size=(2, height, width, channels)).astype("float32")


def tokens(vocab_size):
    """Two rows of token ids: int64 [2, T]."""
    return np.random.default_rng(vocab_size).integers(5, vocab_size, (2, 6))


def _tensor(name, shape):
    random = np.random.default_rng(zlib.crc32(name.encode()))
    values = random.normal(0.0, 0.3, shape)
    is_norm = "norm" in name.lower() and name.endswith(("weight", "scale"))
    return (values + 1.0 if is_norm else values).astype("float32")
