"""From the tensors and the metadata of a Vision Transformer to a classifier."""

import functools
import math

import numpy as np

import zoo
from zoo.checkpoints.building import create_model, head_classes
from zoo.checkpoints.errors import CheckpointError
from zoo.checkpoints.mapping import assign, changed, pattern, same
from zoo.checkpoints.tensors import Tensors
from zoo.layers import LearnedPositions, patch_grid
from zoo.tasks.classifier import ImageClassifier

HEADS = ("head", "distillation_head")


def vit_classifier(tensors, table, settings, preprocessing, options, names=None, ignored=()):
    """Builds a Vision Transformer and assigns its weights.

    Args:
        tensors: `zoo.checkpoints.tensors.Tensors`.
        table: see `zoo.checkpoints.mapping`.
        settings: arguments of `zoo.vit`, without `num_classes`.
        preprocessing: `zoo.data.preprocessing.ImagePreprocessing` of the published model.
        options: of `zoo.load`: arguments of `zoo.vit` that replace `settings`; an `input_shape`
            (H, W) keeps the number of channels.
        names: of the classes; by default their indices.
        ignored: see `zoo.checkpoints.mapping.assign`.

    Returns:
        `zoo.tasks.classifier.ImageClassifier`.

    Raises:
        CheckpointError: if there is no head and no `num_classes`, or the tensors do not fit.
    """
    head = table["head/bias"].names[0]
    if head not in tensors:
        names = []
    elif names is None:
        names = [str(index) for index in range(math.prod(tensors.shapes[head]))]
    names, is_new = head_classes(tensors, names, options)
    native, kept = settings["input_shape"], ()
    if is_new:
        kept, unused = _of_head(tensors, table)
        ignored = (*ignored, *unused)

    def create(input_shape, **others):
        if not isinstance(input_shape, (tuple, list)) or len(input_shape) not in (2, 3):
            raise ValueError(f"input_shape must be (H, W, C). Received: {input_shape!r}")
        height, width, *channels = input_shape
        return zoo.vit(input_shape=(height, width, *(channels or native[2:])), **others)

    settings = {**settings, **options, "num_classes": len(names)}
    model = create_model(create, tensors, settings)
    assign(model, tensors, _resized(table, model, native), ignored, kept)
    size = tuple(model.input_shape[:2])
    return ImageClassifier(model, preprocessing.with_size(size), names)


def changed_vit(classifier, path, options):
    """A trained `ImageClassifier` with a Vision Transformer, with other arguments.

    Args:
        classifier: `zoo.tasks.classifier.ImageClassifier` with a `zoo.models.ViT`.
        path: where it is from, for messages.
        options: see `vit_classifier`.
    """
    model = classifier.model
    own = {variable.path.split("/", 1)[1]: variable for variable in model.weights}
    readers = {name: variable.numpy for name, variable in own.items()}
    tensors = Tensors(path, readers, {name: tuple(v.shape) for name, v in own.items()})
    settings = {
        name: getattr(model, name)
        for name in model.get_config().keys() - {"name", "dtype", "trainable", "num_classes"}
    }
    settings["dtype"] = model.dtype_policy
    return vit_classifier(
        tensors,
        {name: same(name) for name in own},
        settings,
        classifier.preprocessing,
        options,
        classifier.class_names,
    )


def count_blocks(shapes, block):
    """The number of blocks; `block` is the beginning of their names, with ``{i}``."""
    return len({match[1] for match in map(pattern(block).match, shapes) if match})


def image_size(tensors, name, prefix, patch_size, size=()):
    """The image size (H, W) of learned positions [1, n, E], and whether class tokens have some.

    `prefix` is the number of class tokens, `size` that of the metadata, by default a square.
    """
    positions = tensors.shape(name, 3)[1]
    for of_prefix in (0, prefix):
        side = math.isqrt(max(positions - of_prefix, 0)) * patch_size
        height, width = size or (side, side)
        if height * width == (positions - of_prefix) * patch_size**2:
            return (height, width), of_prefix > 0
    expected = "{} x {} pixels".format(*size) if size else "a square image"
    raise CheckpointError(
        f"{tensors.path}: {name} has {positions} positions, which are not those of {expected}."
    )


def channels(tensors, name, expected):
    """The number of channels of the images, from the patch projection [E, C, P, P]."""
    found = tensors.shape(name, 4)[1]
    if found != expected:
        raise CheckpointError(
            f"{tensors.path}: patches have {found} channels, not num_channels={expected!r}."
        )
    return found


def first_head_alone(table):
    """The entries of both heads of a model with a distillation token, if only the first counts.

    Our logits are the mean of both heads: here of twice the first one and of zeros.
    """
    return {
        f"{layer}/{name}": changed(table[f"head/{name}"], functools.partial(np.multiply, factor))
        for layer, factor in (("head", 2), ("distillation_head", 0))
        for name in ("kernel", "bias")
    }


def _of_head(tensors, table):
    """The variables of the head, as patterns, and the tensors that they would be made of."""
    # A trained normalization before the head is no part of it, as in timm.
    norm = table.get("head_norm/gamma")
    heads = HEADS if norm and norm.names[0] in tensors else (*HEADS, "head_norm")
    sources = [source for path, source in table.items() if path.split("/")[0] in heads]
    return [f"{layer}/.*" for layer in heads], [name for source in sources for name in source.names]


def _resized(table, model, native):
    """The table, with learned positions of another image size resized."""
    grids = [patch_grid(shape[:2], model.patch_size) for shape in (native, model.input_shape)]
    path = "patch_positions/embeddings"
    if grids[0] == grids[1] or path not in table:
        return table
    prefix = model.num_prefix_tokens if model.prefix_positions else 0

    def resize(positions):
        layer = LearnedPositions(grids[0], prefix, model.interpolation)
        layer.build((None, None, model.embed_dim))
        layer.embeddings.assign(positions)
        return layer.resized(grids[1]).numpy()

    return {**table, path: changed(table[path], resize)}
