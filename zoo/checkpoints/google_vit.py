"""Google's NumPy archives of ViT: those of vision_transformer (augreg) and of big_vision."""

import functools
import math
import re

import numpy as np

from zoo.checkpoints.errors import CheckpointError
from zoo.checkpoints.images import vit_classifier
from zoo.checkpoints.mapping import Source, changed, heads, joined, merged_dense, same, stacked
from zoo.checkpoints.tensors import Tensors
from zoo.data.preprocessing import ImagePreprocessing

PREFIXES = ("opt/target/", "params/img/", "params/")
SCANNED = "Transformer/encoderblock/"
BLOCK = "Transformer/encoderblock_{i}/"


def norm(path, name):
    return {f"{path}/gamma": same(f"{name}/scale"), f"{path}/beta": same(f"{name}/bias")}


def table(is_new):
    """The table of vision_transformer, or that of big_vision, which `is_new`."""
    attention = f"{BLOCK}MultiHeadDotProductAttention_{0 if is_new else 1}"
    mlp, second = ("MlpBlock_0", "LayerNorm_1") if is_new else ("MlpBlock_3", "LayerNorm_2")
    qkv = [f"{attention}/{name}" for name in ("query", "key", "value")]
    positions = "pos_embedding" if is_new else "Transformer/posembed_input/pos_embedding"
    return {
        **merged_dense("patch_embed/projection", "embedding"),
        "class_token/tokens": stacked("cls"),
        "patch_positions/embeddings": stacked(positions),
        **norm("encoder_{i}/attention_norm", f"{BLOCK}LayerNorm_0"),
        "encoder_{i}/attention/qkv/kernel": heads(*(f"{name}/kernel" for name in qkv)),
        "encoder_{i}/attention/qkv/bias": changed(
            joined(*(f"{name}/bias" for name in qkv)), np.ravel
        ),
        **merged_dense("encoder_{i}/attention/output_projection", f"{attention}/out"),
        **norm("encoder_{i}/feed_forward_norm", BLOCK + second),
        **merged_dense("encoder_{i}/feed_forward/hidden", f"{BLOCK}{mlp}/Dense_0"),
        **merged_dense("encoder_{i}/feed_forward/output_projection", f"{BLOCK}{mlp}/Dense_1"),
        **norm("encoder_norm", "Transformer/encoder_norm"),
        **merged_dense("representation", "pre_logits"),
        **merged_dense("head", "head"),
    }


def load(tensors, options):
    """The classifier of an archive, see `zoo.load`."""
    tensors = _by_block(tensors.without_prefix(*PREFIXES))
    shapes, is_new = tensors.shapes, any("/MlpBlock_0/" in name for name in tensors)
    try:
        patch_size, _, channels, embed_dim = shapes["embedding/kernel"]
        query = table(is_new)["encoder_{i}/attention/qkv/kernel"].names[0].replace("{i}", "0")
        num_heads = shapes[query][1]
    except KeyError as name:
        raise CheckpointError(f"{tensors.path} is no ViT of Google: it has no {name}.") from None
    entries, prefix = table(is_new), int("cls" in tensors)
    [position_name] = entries["patch_positions/embeddings"].names
    if position_name in tensors:
        positions = shapes[position_name][1]
        has_prefix = math.isqrt(positions) ** 2 != positions
        side = math.isqrt(positions - prefix * has_prefix)
    else:
        side, has_prefix = options.get("input_shape", (224,))[0] // patch_size, False
        entries["patch_positions/embeddings"] = Source((), lambda: sincos_2d(side, embed_dim))
    size = side * patch_size
    hidden = entries["encoder_{i}/feed_forward/hidden/bias"].names[0].replace("{i}", "0")
    settings = {
        "input_shape": (size, size, channels),
        "patch_size": patch_size,
        "embed_dim": embed_dim,
        "num_heads": num_heads,
        "num_layers": len({m[1] for m in map(re.compile(r".*block_(\d+)/").match, shapes) if m}),
        "ff_dim": shapes[hidden][0],
        "pool": "cls" if prefix else "mean",
        "prefix_positions": has_prefix,
        "representation_dim": shapes.get("pre_logits/bias", (None,))[0],
    }
    names = [str(index) for index in range(shapes.get("head/bias", (0,))[0])]
    images = ImagePreprocessing((size, size), channels, *[(0.5,) * channels] * 2, (size, size))
    return vit_classifier(tensors, entries, settings, images, names, (), options)


def _by_block(tensors):
    """Tensors [L, ..] of all blocks at once, as big_vision's scan makes them, block by block."""
    readers, shapes = {}, {}
    for name, (length, *shape) in tensors.shapes.items():
        if not name.startswith(SCANNED):
            readers[name], shapes[name] = (
                functools.partial(tensors.__getitem__, name),
                (length, *shape),
            )
            continue
        read = functools.cache(functools.partial(tensors.__getitem__, name))
        for index in range(length):
            one = name.replace(SCANNED, BLOCK.replace("{i}", str(index)))
            readers[one], shapes[one] = functools.partial(_item, read, index), tuple(shape)
    return Tensors(tensors.path, readers, shapes)


def _item(read, index):
    return read()[index]


def sincos_2d(side, width):
    """The fixed positions of big_vision (Beyer et al. 2022): sines and cosines of x, then of y."""
    y, x = (axis.reshape(-1, 1) for axis in np.mgrid[:side, :side])
    frequencies = 10000.0 ** (-np.arange(width // 4) / (width // 4 - 1))
    waves = (f(axis * frequencies) for axis in (x, y) for f in (np.sin, np.cos))
    return np.concatenate([*waves], axis=1)
