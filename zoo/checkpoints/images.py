"""From the tensors and the metadata of a Vision Transformer to a classifier."""

import math

import zoo
from zoo.checkpoints.errors import CheckpointError
from zoo.checkpoints.mapping import assign, changed, pattern
from zoo.classifier import ImageClassifier
from zoo.layers import LearnedPositions, patch_grid

HEADS = ("head", "distillation_head", "head_norm")


def vit_classifier(tensors, table, settings, preprocessing, options, names=None, ignored=()):
    """Builds a Vision Transformer and assigns its weights.

    Args:
        tensors: `zoo.checkpoints.tensors.Tensors`.
        table: see `zoo.checkpoints.mapping`.
        settings: arguments of `zoo.vit`, without `num_classes`.
        preprocessing: `zoo.data.preprocessing.ImagePreprocessing` of the published model.
        options: what the caller asks for instead: arguments of `zoo.vit`.
        names: of the classes; by default their indices.
        ignored: see `zoo.checkpoints.mapping.assign`.

    Returns:
        `zoo.classifier.ImageClassifier`.

    Raises:
        CheckpointError: if there is no head and no `num_classes`, or the tensors do not fit.
    """
    head = table["head/bias"].names[0]
    if head not in tensors:
        names = []
    elif names is None:
        names = [str(index) for index in range(math.prod(tensors.shapes[head]))]
    num_classes = options.pop("num_classes", len(names))
    if not num_classes:
        raise CheckpointError(
            f"{tensors.path} has no classification head. Pass num_classes=..., for a new one."
        )
    native, kept = settings["input_shape"], ()
    settings = {**settings, **options}
    if num_classes != len(names):
        kept = [f"{layer}/.*" for layer in HEADS]
        names = [str(index) for index in range(num_classes)]
        sources = [source for path, source in table.items() if path.split("/")[0] in HEADS]
        ignored = (*ignored, *(name for source in sources for name in source.names))
        print(f"{tensors.path}: the classification head is new, with {num_classes} classes.")
    try:
        model = zoo.vit(**settings, num_classes=num_classes)
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{tensors.path}: {error}") from None
    assign(model, tensors, _resized(table, model, native), ignored, kept)
    size = tuple(model.input_shape[:2])
    return ImageClassifier(model, preprocessing.with_size(size), names)


def count_blocks(shapes, block):
    """The number of blocks; `block` is the beginning of their names, with ``{i}``."""
    return len({match[1] for match in map(pattern(block).match, shapes) if match})


def position_grid(tensors, name, prefix, grid=()):
    """The grid of learned positions (rows, columns), and whether class tokens have some, too.

    Args:
        tensors: `zoo.checkpoints.tensors.Tensors`.
        name: of the positions [1, n, E].
        prefix: number of class tokens.
        grid: what the metadata says; a square by default.
    """
    positions = tensors.shapes[name][1]
    for of_prefix in (0, prefix):
        side = math.isqrt(max(positions - of_prefix, 0))
        rows, columns = grid or (side, side)
        if rows * columns == positions - of_prefix:
            return (rows, columns), of_prefix > 0
    expected = "{} x {} patches".format(*grid) if grid else "a square image"
    raise CheckpointError(
        f"{tensors.path}: {name} has {positions} positions, which are not those of {expected}."
    )


def first_head_alone(table):
    """The entries of both heads of a model with a distillation token, if only the first counts.

    Our logits are the mean of both heads: here of twice the first one and of zeros.
    """
    entries = {}
    for name in ("kernel", "bias"):
        source = table[f"head/{name}"]
        entries[f"head/{name}"] = changed(source, lambda x: 2 * x)
        entries[f"distillation_head/{name}"] = changed(source, lambda x: 0 * x)
    return entries


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
