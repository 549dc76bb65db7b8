"""Builds classifiers and encoders from the tensors and the metadata of Vision Transformers."""

import dataclasses
import functools
import math
import re
from numbers import Integral

import numpy as np

from zoo.checkpoints.building import HEADS, create_model, head_classes
from zoo.checkpoints.mapping import Source, assign, changed
from zoo.data.preprocessing import MAX_SIDE
from zoo.errors import CheckpointError
from zoo.layers import patch_grid
from zoo.models.vit import vit
from zoo.tasks.classifier import ImageClassifier
from zoo.tasks.encoder import ImageEncoder

HEAD_LAYERS = ("head", "distillation_head")
POSITIONS = {  # the variables that depend on the image size
    "learned": "patch_positions/embeddings",
    "relative_table": "encoder_{i}_positions/embeddings",
}


def vit_classifier(tensors, table, arguments, preprocessing, options, names=None, ignored=()):
    """Builds an `ImageClassifier`, or without a head an `ImageEncoder`, and assigns its weights.

    Args:
        tensors, table, ignored: see `zoo.checkpoints.mapping.assign`.
        arguments: arguments of `zoo.vit` that the published model has.
        preprocessing: `ImagePreprocessing` of the published model.
        options: options of `zoo.load`, which override `arguments`.
        names: class names; by default the indices of the classes.
    """
    shape = tensors.shapes.get(table["head/bias"].names[0])
    if shape is None:
        names = []
    elif names is None:
        names = [str(index) for index in range(math.prod(shape))]
    names, is_new_head = head_classes(tensors, names, options)
    arguments, preprocessing = _whole_patches(arguments, preprocessing)
    model = create_vit(vit, tensors, arguments, names, options)
    assign_adapted(model, tensors, table, arguments["input_shape"], is_new_head, ignored)
    images = preprocessing.with_shape(model.input_shape)
    return ImageClassifier(model, images, names) if names else ImageEncoder(model, images)


def _whole_patches(arguments, preprocessing):
    """Leaves out pixels at the right and the bottom that fill no patch, as a convolution does."""
    *size, channels = arguments["input_shape"]
    side = arguments["patch_size"]
    whole = tuple(pixels // side * side for pixels in size)
    if whole == tuple(size):
        return arguments, preprocessing
    images = dataclasses.replace(preprocessing, image_size=whole, crop_size=tuple(size))
    return {**arguments, "input_shape": (*whole, channels)}, images


def create_vit(create, tensors, arguments, names, options):
    """Like `create_model`, for Vision Transformers: the option `input_shape` may be (H, W)."""
    native = arguments["input_shape"]
    shape = _with_channels(options.get("input_shape", native), native)
    arguments = {**arguments, "num_classes": len(names)}
    return create_model(create, tensors, arguments, {**options, "input_shape": shape})


def registers_with_positions(token, positions, num_class_tokens, num_registers):
    """The entries of registers that have learned positions, after those of the class tokens.

    DeiT's distillation token without a head is such a register, after one class token.
    """
    start = num_class_tokens
    end = num_class_tokens + num_registers

    def registers(tokens, places):
        return tokens[0] + places[0, start:end]

    def others(places):
        return np.delete(places[0], range(start, end), 0)

    return {
        "registers/tokens": Source((token, positions), registers),
        "patch_positions/embeddings": Source((positions,), others),
    }


def assign_adapted(model, tensors, table, native, is_new_head, ignored=()):
    """Assigns weights that were trained on images of the shape `native`, (H, W, C), to a model.

    Learned positions are resized, and patches adapted to the number of channels. A new head keeps
    its initial values. For the other arguments see `vit_classifier`.
    """
    kept = ()
    if is_new_head:
        kept, unused = _head(model, tensors, table)
        ignored = (*ignored, *unused, HEADS)
    old_channels = native[2]
    channels = model.input_shape[2]
    if channels != old_channels:
        print(
            f"{tensors.path}: patches, mean and deviation are adapted from {old_channels} channels "
            f"to {channels}."
        )
        path = "patch_embed/projection/kernel"
        adapt = functools.partial(_adapted, old=old_channels, new=channels)
        table = {**table, path: changed(table[path], adapt)}
    grid = patch_grid(native[:2], model.patch_size)
    path = POSITIONS.get(model.positions)
    if path is not None and grid != model.grid(model.input_shape[:2]):
        layer = model.position_tables[0] if model.position_tables else model.patch_positions
        resize = functools.partial(_resized, layer=layer, grid=grid)
        table = {**table, path: changed(table[path], resize)}
    assign(model, tensors, table, ignored, kept)


def _with_channels(input_shape, native):
    """Checks the option `input_shape`, and adds the channels of `native` to (H, W): (H, W, C)."""
    is_shape = isinstance(input_shape, (tuple, list)) and len(input_shape) in (2, 3)
    if not is_shape or not all(isinstance(n, Integral) and 0 < n <= MAX_SIDE for n in input_shape):
        raise CheckpointError(
            f"input_shape must be (H, W) or (H, W, C), integers from 1 to {MAX_SIDE}. Received: "
            f"input_shape={input_shape!r}."
        )
    return (*map(int, input_shape), *native[len(input_shape) :])


def _adapted(kernel, old, new):
    """Adapts the kernel of patches [P·P·C, E] from `old` to `new` channels, as timm does.

    A single channel has the sum of the old ones. Several repeat the old ones, scaled so that gray
    images have the same outputs.
    """
    x = np.asarray(kernel, "float32").reshape(-1, old, kernel.shape[-1])
    if new == 1:
        x = x.sum(axis=1)
    else:
        x = np.take(x, np.arange(new) % old, axis=1) * np.float32(old / new)
    return x.astype(kernel.dtype).reshape(-1, kernel.shape[-1])


def _resized(positions, layer, grid):
    """Resizes the learned positions [n, E] of a layer from another grid of patches to its own."""
    config = {**layer.get_config(), "shape": grid, "dtype": "float32"}
    other = type(layer).from_config(config)
    other.build((None, None, positions.shape[-1]))
    other.embeddings.assign(positions)
    return other.resized(layer.shape).numpy()


def count_blocks(shapes, block):
    """Returns the number of blocks, whose tensors have names that begin with `block`."""
    pattern = re.compile(re.escape(block).replace(r"\{i\}", r"(\d+)"))
    return len({match[1] for match in map(pattern.match, shapes) if match})


def image_size(tensors, name, prefix, patch_size, size=(), registers=0):
    """Returns the image size that learned positions are for, and how many are not of patches.

    Args:
        tensors, name: `Tensors`, and the name of the positions [1, n, E].
        prefix: number of class tokens that may have positions; 0 if none has.
        registers: number of registers that may have positions if class tokens have.
        patch_size: side of a patch in pixels.
        size: (H, W) in the metadata; without it, images are square.
    """
    positions = tensors.shape(name, 3)[1]
    for before in (0, prefix, prefix + registers):
        side = math.isqrt(max(positions - before, 0)) * patch_size
        height, width = size or (side, side)
        if (height // patch_size) * (width // patch_size) == positions - before > 0:
            return (height, width), before
    raise _misfit(tensors, name, positions, size)


def table_size(tensors, name, patch_size, size=()):
    """Returns the image size that a table of biases [n, H] is for; see `image_size`."""
    biases, _ = tensors.shape(name, 2)
    side = (math.isqrt(biases - 3) + 1) // 2 * patch_size if biases > 3 else 0
    height, width = size or (side, side)
    rows = height // patch_size
    columns = width // patch_size
    is_whole = (rows * patch_size, columns * patch_size) == (height, width)
    if not is_whole or (2 * rows - 1) * (2 * columns - 1) + 3 != biases:
        raise _misfit(tensors, name, biases, size)
    return height, width


def _misfit(tensors, name, positions, size):
    expected = "{} x {} pixels".format(*size) if size else "a square image"
    return CheckpointError(
        f"{tensors.path}: {name} has {positions} positions, which do not fit {expected}."
    )


def _head(model, tensors, table):
    """The patterns of the variables of the head, and the names of tensors that it replaces."""
    layers = HEAD_LAYERS
    norm = table.get("head_norm/gamma")
    # As in timm, a trained normalization before the head is not part of it.
    if norm is None or norm.names[0] not in tensors:
        layers = (*HEAD_LAYERS, "head_norm")
    patterns = [f"{layer}/.*" for layer in layers]
    if model.encoder_norm is None:  # but in the file, as where MAE gets another normalization
        layers = (*layers, "encoder_norm")
    sources = [source for path, source in table.items() if path.split("/")[0] in layers]
    return patterns, [name for source in sources for name in source.names]
