"""Tensors, images and tokens drawn alike everywhere, so that goldens hold outputs only."""

import zlib

import numpy as np

TORCH_SHAPES = {  # of the recorded files of PyTorch, see tests/parity/record_torch.py
    "half": (3, 4),
    "bfloat16": (2, 3),
    "whole": (5,),
    "parameter": (2, 2),
    "transposed": (4, 3),
    "scalar": (),
    "empty": (0, 3),
}
RECORDED = 24  # the largest number of outputs of an image, or of a token, in goldens


def tensors(shapes):
    """{name: float32 array}: weights that matter, whatever their order."""
    return {name: _tensor(name, shape) for name, shape in shapes.items()}


def images(height, width, channels=3):
    """Two normalized images: float32 [2, H, W, C]."""
    random = np.random.default_rng([height, width, channels])
    return random.normal(size=(2, height, width, channels)).astype("float32")


def scanned(tensors):
    """Google's tensors with one for all blocks, as big_vision writes them."""
    found = {}
    for name, value in tensors.items():
        if "encoderblock_" not in name:
            found[name] = value
        elif "encoderblock_0" in name:
            blocks = [tensors[name.replace("_0/", f"_{index}/", 1)] for index in range(2)]
            found[name.replace("encoderblock_0", "encoderblock")] = np.stack(blocks)
    return found


def tokens(vocab_size):
    """Two rows of token ids: int64 [2, T]."""
    return np.random.default_rng(vocab_size).integers(5, vocab_size, (2, 6))


def _tensor(name, shape):
    random = np.random.default_rng(zlib.crc32(name.encode()))
    values = np.asarray(random.normal(0.0, 0.3, shape))
    is_norm = "norm" in name.lower() and name.endswith(("weight", "scale"))
    return (values + 1.0 if is_norm else values).astype("float32")
