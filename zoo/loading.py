"""`zoo.load`: a trained model with all that it takes to use it."""

import pathlib

from zoo import classifier, translator


def load(folder):
    """Loads what a recipe left in a run folder.

    Args:
        folder: a run folder, such as "runs/vit_cifar10".

    Returns:
        `zoo.classifier.ImageClassifier` or `zoo.translator.Translator`, as the run trained it.

    Raises:
        FileNotFoundError: if there is no such folder or no finished run in it.
    """
    folder = pathlib.Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"There is no run folder {folder}.")
    for home, kind in (
        (classifier, classifier.ImageClassifier),
        (translator, translator.Translator),
    ):
        if (folder / home.DESCRIPTION_FILE).is_file() and (folder / home.MODEL_FILE).is_file():
            return kind.load(folder)
    raise FileNotFoundError(
        f"{folder} holds no finished run: there is no {classifier.MODEL_FILE} with a "
        f"{classifier.DESCRIPTION_FILE} or {translator.DESCRIPTION_FILE} in it. "
        "If its training was interrupted, run the same command again with --resume."
    )
