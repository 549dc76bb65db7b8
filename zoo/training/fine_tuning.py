"""Fine-tuning: loading ``--weights``, new heads, layer-wise learning rates, freezing, LoRA."""

import keras
import numpy as np

from zoo.errors import UserError
from zoo.loading import load
from zoo.models.base import copy_model
from zoo.tasks.translator import Translator


def pretrained_classifier(path, num_classes, image_size=None, random=False, **rates):
    """Loads the Vision Transformer of ``--weights`` with a new head, whose weights are zero.

    Args:
        path: see `zoo.load`.
        num_classes: number of classes.
        image_size: side of the images in pixels; by default that of the model.
        random: whether to initialize all weights at random, to use only the architecture and the
            preprocessing.
        **rates: `dropout`, `stochastic_depth` and `patch_dropout`.

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
    if image_size:
        rates["input_shape"] = (image_size, image_size)
    # the precision of this run, not of the run in which it was trained
    classifier = _load(
        path, num_classes=num_classes, dtype=keras.config.dtype_policy().name, **rates
    )
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
    translator = _load(path, **{k: v for k, v in languages.items() if v is not None})
    if not isinstance(translator, Translator):
        raise UserError(f"--weights {path} is not a translation model.")
    translator.model = copy_model(translator.model, dtype=keras.config.dtype_policy(), **rates)
    for name, value in search.items():
        if value is not None:
            setattr(translator, name, value)
    return translator


def _load(path, **options):
    try:
        return load(path, **options)
    except (UserError, FileNotFoundError) as error:
        raise UserError(f"--weights: {error}") from None


def heads(model):
    """Returns the heads of a `zoo.models.ViT`: one, or two with a distillation token."""
    return [head for head in (model.head, model.distillation_head) if head is not None]


def reset_heads(model):
    """Sets the weights of the heads to zero, from which fine-tuning starts.

    Source: Dosovitskiy et al. 2020, section 3.2.
    """
    for head in heads(model):
        for variable in head.weights:
            variable.assign(np.zeros(variable.shape, "float32"))


def layer_rates(model, decay):
    """Returns factors of the learning rate that decrease with the distance from the head.

    They are 1 for the heads, the representation layer and the last normalizations; `decay` for the
    last block, ``decay**2`` for the block below it, and so on; ``decay**(num_layers + 1)`` for
    patches, tokens and positions. Sources: Bao et al. 2021, "BEiT", appendix; He et al. 2021,
    "Masked Autoencoders Are Scalable Vision Learners", appendix A.2 and util/lr_decay.py.

    Args:
        model: built `zoo.models.ViT`.
        decay: in (0, 1].

    Returns:
        A list of floats, one for each of ``model.trainable_variables``; see
        `zoo.training.optimizers.RateFactors`.
    """
    last = (model.encoder_norm, model.head_norm, model.representation, *heads(model))
    groups = [(layer, 0) for layer in last if layer is not None]
    groups += [(block, i + 1) for i, block in enumerate(reversed(model.encoder_blocks))]
    distance = {id(v): steps for layer, steps in groups for v in layer.weights}
    lowest = model.num_layers + 1
    return [decay ** distance.get(id(v), lowest) for v in model.trainable_variables]


def freeze(model):
    """Freezes everything but the heads: a linear probe."""
    learning = {id(v) for head in heads(model) for v in head.weights}
    for variable in model.weights:
        variable.trainable = id(variable) in learning


def enable_lora(model, rank):
    """Freezes everything but the heads, and adds LoRA to the dense layers of the blocks.

    The matrix of queries, keys and values gets one update of this rank. Biases are frozen, and the
    scale is 1, the default of `keras.layers.Dense.enable_lora`. Source: Hu et al. 2021, "LoRA",
    section 4.1.

    Args:
        model: built `zoo.models.ViT`.
        rank: rank of the updates.
    """
    freeze(model)
    for block in model.encoder_blocks:
        block.attention.qkv.enable_lora(rank)
        block.attention.output_projection.enable_lora(rank)
        block.feed_forward.hidden.enable_lora(rank)
        block.feed_forward.output_projection.enable_lora(rank)
