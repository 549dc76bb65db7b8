"""From the tensors and the metadata of a Vision Transformer to a classifier."""

import zoo
from zoo.checkpoints.building import head_classes
from zoo.checkpoints.errors import CheckpointError
from zoo.checkpoints.mapping import assign, changed
from zoo.classifier import ImageClassifier
from zoo.layers import LearnedPositions, patch_grid

HEADS = ("head", "distillation_head", "head_norm")


def vit_classifier(tensors, table, settings, preprocessing, class_names, ignored, options):
    """Builds a Vision Transformer and assigns its weights.

    Args:
        tensors: `zoo.checkpoints.tensors.Tensors`.
        table: see `zoo.checkpoints.mapping`.
        settings: arguments of `zoo.vit`, without `num_classes`.
        preprocessing: `zoo.data.preprocessing.ImagePreprocessing` of the published model.
        class_names: those of the head in the file; empty if there is none.
        ignored: see `zoo.checkpoints.mapping.assign`.
        options: what the caller asks for instead: arguments of `zoo.vit`.

    Returns:
        `zoo.classifier.ImageClassifier`.

    Raises:
        CheckpointError: if there is no head and no `num_classes`, or the tensors do not fit.
    """
    class_names, is_new = head_classes(tensors, class_names, options)
    native, kept = settings["input_shape"], ()
    settings = {**settings, **options}
    if is_new:
        kept = [f"{layer}/.*" for layer in HEADS]
        sources = [source for path, source in table.items() if path.split("/")[0] in HEADS]
        ignored = (*ignored, *(name for source in sources for name in source.names))
    try:
        model = zoo.vit(**settings, num_classes=len(class_names))
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{tensors.path}: {error}") from None
    assign(model, tensors, _resized(table, model, native), ignored, kept)
    size = tuple(model.input_shape[:2])
    return ImageClassifier(model, preprocessing.with_size(size), class_names)


def first_head_alone(head):
    """The entries of both heads of a model with a distillation token, if only the first counts.

    Our logits are the mean of both heads: here of twice the first one and of zeros.
    """
    second = {path.replace("head/", "distillation_head/"): source for path, source in head.items()}
    return {
        **{path: changed(source, lambda x: 2 * x) for path, source in head.items()},
        **{path: changed(source, lambda x: 0 * x) for path, source in second.items()},
    }


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
