"""Builds classifiers and encoders from the tensors and the metadata of Vision Transformers."""

import functools
import math
import re
from numbers import Integral

import numpy as np

from zoo.checkpoints.building import HEADS, create_model, head_classes
from zoo.checkpoints.mapping import assign, changed
from zoo.errors import CheckpointError
from zoo.layers import LearnedPositions, patch_grid
from zoo.models.vit import vit
from zoo.tasks.classifier import ImageClassifier
from zoo.tasks.encoder import ImageEncoder

HEAD_LAYERS = ("head", "distillation_head")
MAX_SIDE = 8192  # of images, in pixels


def vit_classifier(tensors, table, settings, preprocessing, options, names=None, ignored=()):
    """Builds a Vision Transformer and assigns its weights.

    `options` of `zoo.load` override `settings`, arguments of `zoo.vit`. `preprocessing` is that of
    the published model; `names` are the class names, by default their indices. For the others see
    `zoo.checkpoints.mapping.assign`. Returns an `ImageClassifier`, or an `ImageEncoder` if there is
    no head.
    """
    shape, kept = tensors.shapes.get(table["head/bias"].names[0]), ()
    if names is None or shape is None:
        names = [str(index) for index in range(math.prod(shape))] if shape else []
    names, is_new = head_classes(tensors, names, options)
    native = settings["input_shape"]
    if is_new:
        kept, unused = _head(tensors, table)
        ignored = (*ignored, *unused, HEADS)

    def create(input_shape, **others):
        return vit(input_shape=with_channels(input_shape, native), **others)

    model = create_model(create, {**settings, "num_classes": len(names)}, options)
    changes = adaptations(model, native, tensors.path)
    table = table | {path: changed(table[path], function) for path, function in changes.items()}
    assign(model, tensors, table, ignored, kept)
    images = preprocessing.with_shape(model.input_shape)
    return ImageClassifier(model, images, names) if names else ImageEncoder(model, images)


def with_channels(input_shape, native):
    """Validates the option `input_shape`: returns (H, W, C), with C of `native` if it is (H, W)."""
    is_shape = isinstance(input_shape, (tuple, list)) and len(input_shape) in (2, 3)
    if not is_shape or not all(isinstance(n, Integral) and 0 < n <= MAX_SIDE for n in input_shape):
        raise CheckpointError(
            f"input_shape must be (H, W) or (H, W, C), integers from 1 to {MAX_SIDE}. Received: "
            f"input_shape={input_shape!r}."
        )
    return (*map(int, input_shape), *native[len(input_shape) :])


def adaptations(model, native, name):
    """Functions that adapt weights for images of the `native` shape to a model, by variable.

    `name` is the name of the weights, for a printed line. Returns {path of a variable: function}.
    """
    functions, old, channels = {}, native[2], model.input_shape[2]
    if channels != old:
        print(f"{name}: patches, mean and deviation are adapted from {old} channels to {channels}.")
        adapt = functools.partial(_adapted, old=old, new=channels)
        functions["patch_embed/projection/kernel"] = adapt
    grid = patch_grid(native[:2], model.patch_size)
    if model.positions == "learned" and grid != model.grid(model.input_shape[:2]):
        resize = functools.partial(_resized, model=model, grid=grid)
        functions["patch_positions/embeddings"] = resize
    return functions


def _adapted(kernel, old, new):
    """Adapts the kernel of patches [P·P·C, E] from `old` to `new` channels, as timm does.

    A single channel gets the sum over the old ones. Several repeat the old ones, scaled so that the
    outputs for gray images are the same.
    """
    x = np.asarray(kernel, "float32").reshape(-1, old, kernel.shape[-1])
    if new == 1:
        x = x.sum(axis=1)
    else:
        x = np.take(x, np.arange(new) % old, axis=1) * np.float32(old / new)
    return x.astype(kernel.dtype).reshape(-1, kernel.shape[-1])


def _resized(positions, model, grid):
    """Resizes learned positions [n, E] of a grid of patches to that of the model."""
    prefix = model.num_prefix_tokens if model.prefix_positions else 0
    layer = LearnedPositions(grid, prefix, model.interpolation)
    layer.build((None, None, model.embed_dim))
    layer.embeddings.assign(positions)
    return layer.resized(model.grid(model.input_shape[:2])).numpy()


def count_blocks(shapes, block):
    """Returns the number of blocks; `block` is the beginning of their names, with ``{i}``."""
    pattern = re.compile(re.escape(block).replace(r"\{i\}", r"(\d+)"))
    return len({match[1] for match in map(pattern.match, shapes) if match})


def image_size(tensors, name, prefix, patch_size, size=()):
    """Returns the image size (H, W) of learned positions [1, n, E], and whether tokens have some.

    `prefix` is the number of class tokens, `size` the image size in the metadata, if it is known;
    otherwise, images are square.
    """
    positions = tensors.shape(name, 3)[1]
    for before in (0, prefix):
        side = math.isqrt(max(positions - before, 0)) * patch_size
        height, width = size or (side, side)
        if height * width == (positions - before) * patch_size**2:
            return (height, width), before > 0
    expected = "{} x {} pixels".format(*size) if size else "a square image"
    raise CheckpointError(
        f"{tensors.path}: {name} has {positions} positions, which do not fit {expected}."
    )


def _head(tensors, table):
    """The patterns of the variables of the head, and the names of their tensors."""
    # As in timm, a trained normalization before the head is not part of it.
    norm = table.get("head_norm/gamma")
    heads = HEAD_LAYERS if norm and norm.names[0] in tensors else (*HEAD_LAYERS, "head_norm")
    sources = [source for path, source in table.items() if path.split("/")[0] in heads]
    return [f"{layer}/.*" for layer in heads], [name for source in sources for name in source.names]
