"""The trained models that ``--weights`` of a recipe starts from."""

import pathlib

import keras

from zoo.errors import UserError
from zoo.loading import load
from zoo.models.base import copy_model
from zoo.tasks.translator import Translator
from zoo.training.fine_tuning import reset_heads


def pretrained_classifier(path, num_classes, image_size=None, random=False, **rates):
    """Loads the Vision Transformer of ``--weights`` with a new head, whose weights are zero.

    Args:
        path: see `zoo.load`.
        num_classes: number of classes.
        image_size: side of the images in pixels; that of the model by default.
        random: whether to keep the architecture and the preprocessing only, and draw all weights.
        **rates: `dropout`, `stochastic_depth` and `patch_dropout`.

    Returns:
        `zoo.tasks.classifier.ImageClassifier`.

    Raises:
        UserError: if there is no such path, or its model cannot be used.
    """
    if not path or not pathlib.Path(path).exists():
        raise UserError(
            "Pass --weights PATH: published weights of a Vision Transformer, see "
            f"docs/checkpoints.md, or a run directory. Received: {path}."
        )
    if image_size:
        rates["input_shape"] = (image_size, image_size)
    try:
        # in the precision of this run, not that of the run it was trained in
        dtype = keras.config.dtype_policy().name
        classifier = load(path, num_classes=num_classes, dtype=dtype, **rates)
    except (UserError, FileNotFoundError) as error:
        raise UserError(f"--weights: {error}") from None
    if random:
        model = classifier.model
        classifier.model = type(model).from_config(model.get_config())
        classifier.model.build((None, *model.input_shape))
    else:
        reset_heads(classifier.model)
    return classifier


def pretrained_translator(path, languages, rates, search):
    """Loads the translator of ``--weights``, in the precision that Keras is set to.

    Args:
        path: see `zoo.load`.
        languages: dict of `src_lang` and `tgt_lang`; None for those that the model does not need.
        rates: dict of `dropout` and `attention_dropout`.
        search: dict of `beam_size` and `length_penalty`; None for those of the model.

    Returns:
        `zoo.tasks.translator.Translator`.

    Raises:
        UserError: if there is no such path, or its model cannot be used.
    """
    try:
        translator = load(path, **{k: v for k, v in languages.items() if v is not None})
    except FileNotFoundError as error:
        raise UserError(f"--weights: {error}") from None
    if not isinstance(translator, Translator):
        raise UserError(f"--weights {path} is not a translation model.")
    try:
        translator.model = copy_model(translator.model, dtype=keras.config.dtype_policy(), **rates)
    except ValueError as error:
        raise UserError(str(error)) from None
    for name, value in search.items():
        if value is not None:
            setattr(translator, name, value)
    return translator
