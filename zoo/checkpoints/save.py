"""`zoo.save_hf`: saves models in Hugging Face's formats."""

import json

from zoo.checkpoints.formats import hugging_face_marian, hugging_face_vit
from zoo.errors import CheckpointError, needed
from zoo.files import as_new_path
from zoo.models import ViT
from zoo.tasks.classifier import ImageClassifier
from zoo.tasks.translator import Translator


def save_hf(model, folder):
    """Saves an image classifier as transformers' ViT, or a translator as transformers' Marian.

    Args:
        model: `zoo.tasks.classifier.ImageClassifier` with a `zoo.models.ViT`, or
            `zoo.tasks.translator.Translator`.
        folder: path of a new folder for config.json, model.safetensors, and the files of the image
            processor, or of the tokenizers and the search.

    Raises:
        CheckpointError: if the folder is not empty, or a setting of the model, its tokenizers or
            its search has no counterpart in transformers.
    """
    save_file = needed("safetensors.numpy").save_file
    folder = as_new_path(folder)
    if isinstance(model, ImageClassifier) and isinstance(model.model, ViT):
        files, tensors = hugging_face_vit.contents(model)
    elif isinstance(model, Translator):
        files, tensors = hugging_face_marian.contents(model)
    else:
        raise CheckpointError(
            "save_hf writes an ImageClassifier with a zoo.models.ViT, or a Translator. "
            f"Received: {type(model).__name__}."
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CheckpointError(f"{folder} is a file or not empty. Choose a new folder.")
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        if not isinstance(content, bytes):
            content = (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()
        (folder / name).write_bytes(content)
    tensors = {name: array.copy() for name, array in tensors.items()}  # contiguous
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
