"""Loads run directories; a Vision Transformer also with other arguments."""

import h5py

from zoo.checkpoints import keras_file
from zoo.checkpoints.building import head_classes
from zoo.checkpoints.other_programs import advice
from zoo.checkpoints.tensors import Tensors
from zoo.checkpoints.vision_transformer import assign_adapted, create_vit
from zoo.data.preprocessing import ImagePreprocessing
from zoo.errors import UserError
from zoo.files import read_json, stored_config
from zoo.models import ViT
from zoo.tasks.classifier import ImageClassifier, TextClassifier
from zoo.tasks.encoder import ImageEncoder, TextEncoder
from zoo.tasks.generator import TextGenerator
from zoo.tasks.task import MODEL_FILE, read_config, unpacked_weights
from zoo.tasks.text_to_text import TextToTextGenerator
from zoo.tasks.translator import Translator
from zoo.tasks.weight_names import SEEDS

_TASKS = (
    ImageClassifier,
    TextClassifier,
    ImageEncoder,
    TextEncoder,
    Translator,
    TextToTextGenerator,
    TextGenerator,
)


def load(folder, options):
    """Loads the task that was saved in a run directory."""
    task = _task(folder)
    if options.keys() <= {"dtype"}:
        return task.load(folder, **options)
    config = read_config(folder / MODEL_FILE)
    if config["class_name"] != ViT.__name__:
        taken = "dtype"
        if task in (ImageClassifier, Translator, TextToTextGenerator):
            taken = "dtype and engine"
        raise UserError(
            f"{folder} is a run of the model {config['class_name']}, for which zoo.load takes no "
            f"options other than {taken}. Others are for Vision Transformers and published "
            f"weights. Received: {', '.join(sorted(options.keys() - {'dtype'}))}."
        )
    description = read_json(folder / task.description_file)
    return _changed_vit(folder, config["config"], description, options)


def saved_task(folder):
    """The class of the task that was saved in a folder, or None; published weights may be there."""
    for task in _TASKS:
        if (folder / task.description_file).is_file() and (folder / MODEL_FILE).is_file():
            return task
    return None


def _task(folder):
    """The class of the task that was saved in a folder; an error if there is none."""
    task = saved_task(folder)
    if task is not None:
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
    nothing = Tensors(folder, {})  # a run has no tensors besides those of its model
    names, is_new_head = head_classes(nothing, description.get("class_names", []), options)
    with unpacked_weights(folder / MODEL_FILE) as path, h5py.File(path) as file:
        tensors = keras_file.read(folder, file)
        model = create_vit(_built_vit, tensors, config, names, options)
        table = keras_file.table(model)
        native = config["input_shape"]
        assign_adapted(model, tensors, table, native, is_new_head, (SEEDS,))
    task = ImageClassifier if names else ImageEncoder
    preprocessing = ImagePreprocessing.from_dict(description["preprocessing"])
    preprocessing = preprocessing.with_shape(model.input_shape)
    changes = {"class_names": names, "preprocessing": preprocessing.to_dict()}
    changed = task.from_description({**description, **changes}, model)
    changed.settings = description.get("settings") or stored_config(folder)
    return changed


def _built_vit(input_shape, **config):
    model = ViT.from_config({"input_shape": input_shape, **config})
    model.build((None, *input_shape))
    return model
