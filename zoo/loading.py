"""`zoo.load`: loads a trained model with its preprocessing or tokenizers."""

import pathlib

from zoo import classifier, generator, translator


def load(folder):
    """Loads the trained model of a run.

    Args:
        folder: run directory, such as "runs/vit_cifar10".

    Returns:
        `zoo.classifier.ImageClassifier`, `zoo.classifier.TextClassifier`,
        `zoo.translator.Translator` or `zoo.generator.TextGenerator`.

    Raises:
        FileNotFoundError: if the directory does not exist or contains no finished run.
    """
    folder = pathlib.Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"There is no run folder {folder}.")
    classes = {
        classifier.DESCRIPTION_FILE: classifier.ImageClassifier,
        classifier.TEXT_DESCRIPTION_FILE: classifier.TextClassifier,
        translator.DESCRIPTION_FILE: translator.Translator,
        generator.DESCRIPTION_FILE: generator.TextGenerator,
    }
    for description, model_class in classes.items():
        if all((folder / name).is_file() for name in (description, classifier.MODEL_FILE)):
            return model_class.load(folder)
    raise FileNotFoundError(
        f"{folder} contains no finished run: there must be a {classifier.MODEL_FILE} and a "
        f"{' or '.join(classes)} in it. "
        "If training was interrupted, run the same command with --resume."
    )
