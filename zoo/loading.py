"""`zoo.load`: loads a trained model with its preprocessing or tokenizers."""

import pathlib

from zoo import classifier, generator, translator


def load(folder):
    """Loads the trained model of a run.

    Args:
        folder: run directory, such as "runs/vit_cifar10".

    Returns:
        `zoo.classifier.ImageClassifier`, `zoo.translator.Translator` or
        `zoo.generator.TextGenerator`.

    Raises:
        FileNotFoundError: if the directory does not exist or contains no finished run.
    """
    folder = pathlib.Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"There is no run folder {folder}.")
    for module, model_class in (
        (classifier, classifier.ImageClassifier),
        (translator, translator.Translator),
        (generator, generator.TextGenerator),
    ):
        if all((folder / name).is_file() for name in (module.DESCRIPTION_FILE, module.MODEL_FILE)):
            return model_class.load(folder)
    raise FileNotFoundError(
        f"{folder} contains no finished run: there must be a {classifier.MODEL_FILE} and a "
        f"{classifier.DESCRIPTION_FILE}, {translator.DESCRIPTION_FILE} or "
        f"{generator.DESCRIPTION_FILE} in it. "
        "If training was interrupted, run the same command with --resume."
    )
