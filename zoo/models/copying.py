"""Copies of Keras models."""

import keras
from keras import ops

from zoo import compat
from zoo.layers.quantization import check_not_quantized


def copy_model(model, **arguments):
    """Copies a Keras model, with its weights but not compiled.

    `arguments` of the constructor, such as `dtype`, override its own. The updates of LoRA are added
    to the matrices.

    Raises:
        UserError: if the weights are quantized.
    """
    check_not_quantized(model)
    config = _without_lora(keras.saving.serialize_keras_object(model))
    config.pop("compile_config", None)
    config["config"].update(arguments)
    # Classes and functions of users need not be registered.
    classes = {type(layer).__name__: type(layer) for layer in compat.all_layers(model)}
    copy = keras.saving.deserialize_keras_object(config, classes, safe_mode=False)
    copy.set_weights(_merged_weights(model))
    return copy


def _without_lora(config):
    """The config of a model without the entries of LoRA in those of its layers."""
    if isinstance(config, dict):
        return {
            name: _without_lora(value)
            for name, value in config.items()
            if name not in ("lora_rank", "lora_alpha")
        }
    if isinstance(config, (list, tuple)):
        return type(config)(_without_lora(value) for value in config)
    return config


def _merged_weights(model):
    """The weights of the same model without LoRA, as arrays: its updates are added to the matrices.

    Keras's own merge, when it saves a model, rounds the sums to the compute dtype, such as
    bfloat16.
    """
    updates = {}  # of the matrices, by id
    for layer in compat.all_layers(model):
        if not getattr(layer, "lora_enabled", False):
            continue
        if hasattr(layer, "lora_kernel_a"):
            a, b = layer.lora_kernel_a, layer.lora_kernel_b
        else:
            a, b = layer.lora_embeddings_a, layer.lora_embeddings_b
        update = ops.convert_to_numpy(a) @ ops.convert_to_numpy(b)
        matrix = compat.stored_matrix(layer)
        updates[id(matrix)] = layer.lora_alpha / layer.lora_rank * update
    arrays = []
    for weight in model.weights:
        if weight.name.startswith("lora_"):
            continue
        array = ops.convert_to_numpy(weight)
        if id(weight) in updates:
            array = array + updates[id(weight)]
        arrays.append(array)
    return arrays
