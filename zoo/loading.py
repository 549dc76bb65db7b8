"""`zoo.load`: a trained model with all that it takes to use it."""

import pathlib

from zoo.classifier import DESCRIPTION_FILE, MODEL_FILE, ImageClassifier


def load(folder):
    """Loads what a recipe left in a run folder.

    Args:
        folder: a run folder, such as "runs/vit_cifar10".

    Returns:
        `zoo.classifier.ImageClassifier`.

    Raises:
        FileNotFoundError: if there is no such folder or no finished run in it.
    """
    folder = pathlib.Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"There is no run folder {folder}.")
    missing = [name for name in (MODEL_FILE, DESCRIPTION_FILE) if not (folder / name).is_file()]
    if missing:
        raise FileNotFoundError(
            f"{folder} holds no finished run: there is no {' and no '.join(missing)} in it. "
            "If its training was interrupted, run the same command again with --resume."
        )
    return ImageClassifier.load(folder)
