"""`zoo.save_hf`: writes models in Hugging Face's layout."""

import json
import pathlib

from zoo.checkpoints import save_marian, save_vit
from zoo.errors import CheckpointError, needed
from zoo.models import ViT
from zoo.tasks.classifier import ImageClassifier
from zoo.tasks.translator import Translator


def save_hf(model, folder):
    """Writes a classifier as transformers' ViT, or a translator as transformers' Marian.

    Args:
        model: `zoo.tasks.classifier.ImageClassifier` with a `zoo.models.ViT`, or
            `zoo.tasks.translator.Translator`, such as a published one after fine-tuning.
        folder: path of a new folder: config.json, model.safetensors and the files of the image
            processor, or of the tokenizers and the search.

    Raises:
        CheckpointError: if transformers' model does not have a setting of the model, its tokenizers
            or its search, or the folder is not empty.
    """
    save_file = needed("safetensors.numpy").save_file
    folder = pathlib.Path(folder)
    if isinstance(model, ImageClassifier) and isinstance(model.model, ViT):
        files, tensors = save_vit.contents(model)
    elif isinstance(model, Translator):
        files, tensors = save_marian.contents(model)
    else:
        raise CheckpointError(
            "save_hf writes an ImageClassifier with a zoo.models.ViT, or a Translator."
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CheckpointError(f"{folder} is not empty, or no folder. Choose a new one.")
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        if not isinstance(content, bytes):
            content = (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()
        (folder / name).write_bytes(content)
    tensors = {name: array.copy() for name, array in tensors.items()}  # contiguous
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
