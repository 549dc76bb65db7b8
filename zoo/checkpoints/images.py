"""From the tensors and the metadata of a Vision Transformer to a classifier."""

import zoo
from zoo.checkpoints.errors import CheckpointError
from zoo.checkpoints.mapping import assign, changed, same
from zoo.checkpoints.tensors import Tensors
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
        options: what the caller asks for instead: arguments of `zoo.vit`; an `input_shape` (H, W)
            keeps the number of channels.

    Returns:
        `zoo.classifier.ImageClassifier`.

    Raises:
        CheckpointError: if there is no head and no `num_classes`, or the tensors do not fit.
    """
    num_classes = options.pop("num_classes", len(class_names))
    if not num_classes:
        raise CheckpointError(
            f"{tensors.path} has no classification head. Pass num_classes=..., for a new one."
        )
    native, kept = settings["input_shape"], ()
    settings = {**settings, **options}
    height, width, *channels = settings["input_shape"]
    settings["input_shape"] = (height, width, *(channels or native[2:]))
    if num_classes != len(class_names):
        kept = [f"{layer}/.*" for layer in HEADS]
        class_names = [str(index) for index in range(num_classes)]
        sources = [source for path, source in table.items() if path.split("/")[0] in HEADS]
        ignored = (*ignored, *(name for source in sources for name in source.names))
        print(f"{tensors.path}: the classification head is new, with {num_classes} classes.")
    try:
        model = zoo.vit(**settings, num_classes=num_classes)
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{tensors.path}: {error}") from None
    assign(model, tensors, _resized(table, model, native), ignored, kept)
    size = tuple(model.input_shape[:2])
    return ImageClassifier(model, preprocessing.with_size(size), class_names)


def changed_vit(classifier, path, options):
    """A trained `ImageClassifier` with a Vision Transformer, with other arguments.

    Args:
        classifier: `zoo.classifier.ImageClassifier` with a `zoo.models.ViT`.
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
    return vit_classifier(
        tensors,
        {name: same(name) for name in own},
        settings,
        classifier.preprocessing,
        classifier.class_names,
        (),
        options,
    )


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
