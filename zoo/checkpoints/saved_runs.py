"""Loads run directories, and those of Vision Transformers with other arguments of the model."""

import json
import operator
import re
import zipfile

import h5py

from zoo.checkpoints.building import create_model, head_classes
from zoo.checkpoints.other_programs import advice
from zoo.checkpoints.tensors import Tensors
from zoo.checkpoints.vision_transformer import HEAD_LAYERS, adaptations, with_channels
from zoo.errors import CheckpointError, UserError
from zoo.models import ViT
from zoo.tasks.classifier import ImageClassifier, TextClassifier
from zoo.tasks.encoder import ImageEncoder, TextEncoder
from zoo.tasks.generator import TextGenerator
from zoo.tasks.task import MODEL_FILE, read_config
from zoo.tasks.translator import Translator

WEIGHTS = "model.weights.h5"  # in a `MODEL_FILE`
_TASKS = (ImageClassifier, TextClassifier, ImageEncoder, TextEncoder, Translator, TextGenerator)


def load(folder, options):
    """Loads the task that was saved in a run directory."""
    task = _task(folder)
    if options.keys() <= {"dtype"}:
        return task.load(folder, **options)
    config = read_config(folder / MODEL_FILE)
    if config["class_name"] != ViT.__name__:
        raise UserError(
            f"{folder} is a run without a Vision Transformer, which takes no options other than "
            f"dtype. Received: {', '.join(options.keys() - {'dtype'})}."
        )
    description = json.loads((folder / task.description_file).read_text())
    return _changed_vit(folder, config["config"], description, options)


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
        "interrupted, run the same command again. The folder contains: "
        f"{', '.join(files[:5]) or 'nothing'}.{advice(files)}"
    )


def _changed_vit(folder, config, description, options):
    """Loads the classifier or encoder of a run with a Vision Transformer, with other arguments."""
    native = config["input_shape"]
    nothing = Tensors(folder, {})
    names, is_new = head_classes(nothing, description.get("class_names", []), options)

    def create(input_shape, **others):
        shape = with_channels(input_shape, native)
        model = ViT.from_config({"input_shape": shape, **others})
        model.build((None, *shape))
        return model

    settings = {**config, "num_classes": len(names)}
    model = create_model(create, settings, options)
    _check_count(folder, model)
    readers = {}
    for path, function in adaptations(model, native, folder).items():
        layer = operator.attrgetter(path.rpartition("/")[0].replace("/", "."))(model)
        readers[layer] = _reader(layer, function)
    heads = [model.head, model.distillation_head] if is_new else []
    readers |= dict.fromkeys(filter(None, heads), lambda arrays: None)
    for layer, reader in readers.items():  # in place of Keras's method
        layer.load_own_variables = reader
    try:
        model.load_weights(folder / MODEL_FILE)
    except ValueError as error:  # shapes differ
        raise CheckpointError(f"{folder} does not fit the options: {error}") from None
    for layer in readers:
        del layer.load_own_variables
    task = ImageClassifier if names else ImageEncoder
    changed = task.from_description({**description, "class_names": names}, model)
    changed.preprocessing = changed.preprocessing.with_shape(model.input_shape)
    return changed


def _reader(layer, function):
    """Like `load_own_variables` of a layer, with a function of its first array."""

    def load_own_variables(arrays):
        first, *others = (arrays[name] for name in sorted(arrays.keys()))
        layer.set_weights([function(first), *others])

    return load_own_variables


def _check_count(folder, model):
    """Raises `CheckpointError` if Keras would leave out arrays of the file."""
    stored = []
    with zipfile.ZipFile(folder / MODEL_FILE) as archive, archive.open(WEIGHTS) as data:
        h5py.File(data).visit(stored.append)
    stored = [path for path in stored if re.search(r"(?<!seed_generator)/vars/\d+$", path)]
    named = (stored, [weight.path.split("/", 1)[1] for weight in model.weights])
    theirs, ours = (sum(not path.startswith(HEAD_LAYERS) for path in names) for names in named)
    if theirs != ours:
        raise CheckpointError(
            f"{folder} has {theirs} arrays, the model with these options {ours} weights."
        )
