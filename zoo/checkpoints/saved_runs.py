"""Loads run directories, and those of Vision Transformers with other arguments of the model."""

import functools
import json
import operator
import tempfile
import zipfile

import h5py
import numpy as np

from zoo.checkpoints.building import create_model, head_classes
from zoo.checkpoints.other_programs import advice
from zoo.checkpoints.tensors import Tensors
from zoo.checkpoints.vision_transformer import HEAD_LAYERS, adaptations, with_channels
from zoo.errors import CheckpointError, TaskError, UserError
from zoo.models import ViT
from zoo.tasks.classifier import ImageClassifier, TextClassifier
from zoo.tasks.encoder import ImageEncoder, TextEncoder
from zoo.tasks.generator import TextGenerator
from zoo.tasks.task import MODEL_FILE, read_config
from zoo.tasks.translator import Translator

_TASKS = (ImageClassifier, TextClassifier, ImageEncoder, TextEncoder, Translator, TextGenerator)
# By the paths of `adaptations`: the layer, and a part of the names of its arrays in the file.
_ADAPTED = {
    "patch_embed/projection/kernel": ("patch_embed.projection", "/patch_embed/projection/vars/"),
    "patch_positions/embeddings": ("patch_positions", "positions/vars/"),
}


def load(folder, options):
    """Loads the task that was saved in a run directory; its files need not be trusted."""
    task = _task(folder)
    try:
        config = read_config(folder / MODEL_FILE)
        if options.keys() <= {"dtype"}:
            return task.load(folder, **options)
        if config["class_name"] == ViT.__name__:
            description = json.loads((folder / task.description_file).read_text())
            return _changed_vit(folder, config, description, options)
    except TaskError as error:  # the files do not fit each other
        raise UserError(f"{folder} cannot be loaded: {error}") from None
    except UserError:
        raise
    except (AttributeError, KeyError, OSError, TypeError, ValueError, zipfile.BadZipFile) as error:
        reason = next(iter(str(error).splitlines()), "")
        raise UserError(
            f"{folder} cannot be loaded: {task.description_file} or {MODEL_FILE} is damaged "
            f"({type(error).__name__}: {reason})."
        ) from None
    raise UserError(
        f"{folder} is a run without a Vision Transformer, which takes no options other than "
        f"dtype. Received: {', '.join(options.keys() - {'dtype'})}."
    )


def _task(folder):
    """The class of what was saved in a folder."""
    for task in _TASKS:
        if all((folder / name).is_file() for name in (task.description_file, MODEL_FILE)):
            return task
    names = " or ".join(task.description_file for task in _TASKS)
    files = sorted(path.name for path in folder.iterdir())
    raise FileNotFoundError(
        f"{folder} contains no finished run, which has a {MODEL_FILE} and a {names}, and no "
        "published weights, which have a config.json with a model_type. If training was "
        "interrupted, run the same command with --resume. The folder contains: "
        f"{', '.join(files[:5]) or 'nothing'}.{advice(files)}"
    )


def _changed_vit(folder, config, description, options):
    """Loads the classifier or encoder of a run with a Vision Transformer, with other arguments."""
    native, options = config["config"]["input_shape"], dict(options)
    with (
        tempfile.TemporaryDirectory() as files,
        zipfile.ZipFile(folder / MODEL_FILE) as archive,
        h5py.File(archive.extract("model.weights.h5", files)) as file,
    ):
        stored = _tensors(folder, file)
        names, is_new = head_classes(stored, description.get("class_names", []), options)

        def create(input_shape, **others):
            shape = with_channels(input_shape, native)
            model = ViT.from_config({"input_shape": shape, **others})
            model.build((None, *shape))
            return model

        settings = {**config["config"], "num_classes": len(names)}
        model = create_model(create, stored, settings, options)
        changes = adaptations(model, native, folder)
        layers = {path: operator.attrgetter(_ADAPTED[path][0])(model) for path in changes}
        heads = [model.head, model.distillation_head] if is_new else []
        _assign(model, stored, file.filename, [*heads, *layers.values()])
        for path, function in changes.items():
            first, *others = [stored[name] for name in stored if _ADAPTED[path][1] in name]
            layers[path].set_weights([function(first), *others])
    task = ImageClassifier if names else ImageEncoder
    changed = task.from_description({**description, "class_names": names}, model)
    changed.preprocessing = changed.preprocessing.with_shape(model.input_shape)
    return changed


def _tensors(folder, file):
    """The arrays of a Keras file of weights, by their paths in it."""
    entries = {}

    def visit(path, item):
        if isinstance(item, h5py.Dataset) and "seed_generator" not in path:
            dtype = item.attrs.get("dtype", item.dtype)  # Keras stores "bfloat16" as an attribute
            entries[path] = item.shape, functools.partial(np.array, item, dtype)

    file.visititems(visit)
    return Tensors(folder, entries)


def _assign(model, stored, weights, replaced):
    """Assigns the weights of all layers except those that are `replaced`."""
    paths = stored, [weight.path.split("/", 1)[1] for weight in model.weights]
    theirs, ours = (sum(path.split("/")[0] not in HEAD_LAYERS for path in names) for names in paths)
    if theirs != ours:
        raise CheckpointError(
            f"{stored.path} has {theirs} arrays, the model with these options {ours} weights."
        )
    try:
        model.load_weights(weights, objects_to_skip=replaced)
    except ValueError as error:  # shapes differ
        raise CheckpointError(f"{stored.path} does not fit the options: {error}") from None
