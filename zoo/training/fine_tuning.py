"""Fine-tuning: loading ``--weights``, new heads, layer-wise learning rates, freezing, LoRA."""

import pathlib

import keras
import numpy as np

from zoo.errors import UserError
from zoo.loading import load
from zoo.models.copying import copy_model
from zoo.tasks.translator import Translator
from zoo.training.settings import flags


def pretrained_classifier(
    path,
    num_classes,
    *,
    image_size=None,
    random=False,
    dropout=0.0,
    stochastic_depth=0.0,
    patch_dropout=0.0,
):
    """Loads the Vision Transformer of ``--weights`` with a new head, whose weights are zero.

    Args:
        path: see `zoo.load`.
        num_classes: number of classes.
        image_size: side of the images in pixels; by default, the model's own.
        random: whether to initialize all weights at random, to use only the architecture and the
            preprocessing.
        dropout, stochastic_depth, patch_dropout: rates for fine-tuning, which replace the rates of
            the published model.

    Returns:
        `zoo.tasks.classifier.ImageClassifier`.

    Raises:
        UserError: if there is no such path, or its model cannot be used.
    """
    if not path:
        raise UserError(
            "Pass --weights with published weights of a Vision Transformer (a path, or a name such "
            "as hf://owner/name, see docs/checkpoints.md) or a run directory."
        )
    options = {
        "num_classes": num_classes,
        "dropout": dropout,
        "stochastic_depth": stochastic_depth,
        "patch_dropout": patch_dropout,
        # the precision of this run, not of the run in which it was trained
        "dtype": keras.config.dtype_policy().name,
    }
    if image_size is not None:
        options["input_shape"] = (image_size, image_size)
    classifier = load_model_of_flag("--weights", path, **options)
    if random:
        model = classifier.model
        classifier.model = type(model).from_config(model.get_config())
        classifier.model.build((None, *model.input_shape))
    else:
        reset_heads(classifier.model)
    return classifier


def pretrained_translator(
    path,
    *,
    src_lang=None,
    tgt_lang=None,
    dropout=0.1,
    attention_dropout=0.0,
    beam_size=None,
    length_penalty=None,
):
    """Loads the translator of ``--weights``, in the precision that Keras is set to.

    Args:
        path: see `zoo.load`.
        src_lang, tgt_lang: languages, for a model of several languages.
        dropout, attention_dropout: rates for fine-tuning, which replace the rates of the model.
        beam_size, length_penalty: search options; by default, the model's own.

    Returns:
        `zoo.tasks.translator.Translator`.

    Raises:
        UserError: if there is no such path, or its model cannot be used.
    """
    translator = load_translator("--weights", path, (src_lang, tgt_lang))
    translator.model = copy_model(
        translator.model,
        dtype=keras.config.dtype_policy(),
        dropout=dropout,
        attention_dropout=attention_dropout,
    )
    if beam_size is not None:
        translator.beam_size = beam_size
    if length_penalty is not None:
        translator.length_penalty = length_penalty
    return translator


def load_translator(flag, path, languages=(None, None)):
    """Loads the translator that a flag names.

    Args:
        flag: name of the flag, for errors.
        path: see `zoo.load`.
        languages: (source, target); None for models that do not choose among languages.

    Raises:
        UserError: if there is no such model, or it is not a translator.
    """
    translator = load_model_of_flag(flag, path, src_lang=languages[0], tgt_lang=languages[1])
    if not isinstance(translator, Translator):
        raise UserError(f"{flag} must be a translator. {path} is: {type(translator).__name__}.")
    return translator


def load_model_of_flag(flag, path, **options):
    """Calls `zoo.load` without the options that are None.

    Raises:
        UserError: if the model cannot be loaded; the message begins with the flag.
    """
    options = {name: value for name, value in options.items() if value is not None}
    try:
        return load(path, **options)
    except (UserError, FileNotFoundError) as error:
        raise UserError(f"{flag}: {error}") from None


def other_split(flag, path, model, settings, names):
    """Says whether the run of a model may have held out other data than a new run.

    Args:
        flag, path: the flag that names the model, and its value.
        model: task that `zoo.load` returned, such as `zoo.tasks.translator.Translator`.
        settings: those of the new run.
        names: of the settings that decide which data are held out: numbers, names of data sets, or
            paths, of which the last parts are compared, as folders differ between machines.

    Returns:
        A tuple of lines: one, or none.
    """
    if model.settings is None:
        return ()
    different = []
    for name in names:
        of_model = _compared(name, model.settings.get(name))
        of_run = _compared(name, getattr(settings, name, None))
        if of_model != of_run:
            different.append(name)
    if not different:
        return ()
    given = " and ".join(flags(name) for name in different)
    return (
        f"{flag} {path} may have been trained on data that are held out here, as its run had "
        f"another {given}.",
    )


def _compared(name, value):
    """The value of a setting; of a path its last part."""
    if isinstance(value, str) and name != "dataset":
        return pathlib.PurePath(value).name
    return value


def head_layers(model):
    """Returns the heads of a `zoo.models.ViT`: one, or two with a distillation token."""
    return [head for head in (model.head, model.distillation_head) if head is not None]


def reset_heads(model):
    """Sets the weights of the heads to zero, from which fine-tuning starts.

    Source: Dosovitskiy et al. 2020, section 3.2.
    """
    for head in head_layers(model):
        for variable in head.weights:
            variable.assign(np.zeros(variable.shape, "float32"))


def layer_rates(model, decay):
    """Returns factors of the learning rate that decrease with the distance from the head.

    They are 1 for the heads and what is between them and the last block; `decay` for the last
    block, ``decay**2`` for the block below it, and so on; ``decay**(num_layers + 1)`` for patches,
    tokens and positions. Sources: Bao et al. 2021, "BEiT", appendix; He et al. 2021,
    "Masked Autoencoders Are Scalable Vision Learners", appendix A.2 and util/lr_decay.py.

    Args:
        model: built `zoo.models.ViT`.
        decay: in (0, 1].

    Returns:
        A list of floats, one for each of ``model.trainable_variables``; see
        `zoo.training.optimizers.RateFactors`.
    """
    distance = {}  # of a variable, by its id
    above = (model.encoder_norm, model.attention_pool, model.head_norm, model.representation)
    for layer in (*above, *head_layers(model)):
        if layer is not None:
            distance |= {id(variable): 0 for variable in layer.weights}
    for layers in (model.encoder_blocks, model.position_tables):
        for blocks_above, layer in enumerate(reversed(layers)):
            distance |= {id(variable): blocks_above + 1 for variable in layer.weights}
    lowest = model.num_layers + 1
    return [decay ** distance.get(id(v), lowest) for v in model.trainable_variables]


def freeze(model):
    """Freezes everything but the heads: a linear probe."""
    for variable in model.weights:
        variable.trainable = False
    for head in head_layers(model):
        for variable in head.weights:
            variable.trainable = True


def enable_lora(model, rank):
    """Freezes everything but the heads, and adds LoRA to the dense layers of the blocks.

    The matrix of queries, keys and values gets one update of this rank. Biases are frozen, and the
    scale is 1, the default of `keras.layers.Dense.enable_lora`. Source: Hu et al. 2021, "LoRA",
    section 4.1.
    """
    freeze(model)
    for block in model.encoder_blocks:
        block.attention.qkv.enable_lora(rank)
        block.attention.output_projection.enable_lora(rank)
        block.feed_forward.hidden.enable_lora(rank)
        block.feed_forward.output_projection.enable_lora(rank)
