"""Fine-tuning of Vision Transformers: a new head, layer-wise rates, a frozen backbone, LoRA."""

import keras
import numpy as np

from zoo import compat
from zoo.models.base import merged_weights


def heads(model):
    """The layers of a `zoo.models.ViT` that make logits: one, or two with a distillation token."""
    return [head for head in (model.head, model.distillation_head) if head is not None]


def reset_heads(model):
    """Sets the weights of the heads to zero, from which fine-tuning starts.

    Source: Dosovitskiy et al. 2020, section 3.2.
    """
    for head in heads(model):
        for variable in head.weights:
            variable.assign(np.zeros(variable.shape, "float32"))


def layer_rates(model, decay):
    """Layer-wise learning rate decay: factors that fall with the distance from the head.

    1 for the heads, the representation layer and the last normalizations; `decay` for the last
    block, ``decay**2`` for the block below it, and so on; ``decay**(num_layers + 1)`` for patches,
    tokens and positions. Source: Bao et al. 2021, "BEiT", appendix; He et al. 2021, "Masked
    Autoencoders Are Scalable Vision Learners", appendix A.2 and util/lr_decay.py of its code.

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

    Queries, keys and values have one matrix, which gets one update of this rank. The biases are
    frozen, and the scale is 1, the default of `keras.layers.Dense.enable_lora`. Source: Hu et al.
    2021, "LoRA", section 4.1.

    Args:
        model: built `zoo.models.ViT`.
        rank: of the updates.
    """
    freeze(model)
    for block in model.encoder_blocks:
        attention, feed_forward = block.attention, block.feed_forward
        for dense in (
            *(attention.qkv, attention.output_projection),
            *(feed_forward.hidden, feed_forward.output_projection),
        ):
            dense.enable_lora(rank)


def has_lora(model):
    """Whether LoRA is enabled in a layer of a model."""
    return any(getattr(layer, "lora_enabled", False) for layer in compat.all_layers(model))


def without_lora(model):
    """A copy of any Keras model in which the updates of LoRA are added to the matrices."""
    config = _without_lora_arguments(keras.saving.serialize_keras_object(model))
    config.pop("compile_config", None)
    # Own classes and functions need not be registered.
    classes = {type(layer).__name__: type(layer) for layer in compat.all_layers(model)}
    copy = keras.saving.deserialize_keras_object(config, classes, safe_mode=False)
    copy.set_weights(merged_weights(model))
    return copy


def _without_lora_arguments(config):
    if isinstance(config, dict):
        names = config.keys() - {"lora_rank", "lora_alpha"}
        return {k: _without_lora_arguments(v) for k, v in config.items() if k in names}
    if isinstance(config, (list, tuple)):
        return type(config)(map(_without_lora_arguments, config))
    return config
