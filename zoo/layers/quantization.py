"""Layers whose weights are quantized."""

from zoo import compat
from zoo.errors import UserError


def quantization_mode(layer):
    """The mode of the quantized layers within a layer, such as "int8"; None without any."""
    for part in compat.all_layers(layer):
        mode = getattr(part, "quantization_mode", None)
        if mode is not None:
            return mode  # Keras quantizes in one mode
    return None


def check_not_quantized(layer):
    """Raises UserError if a layer, or one within it, is quantized."""
    if quantization_mode(layer):
        raise UserError(
            "A model with quantized weights can be exported as a SavedModel, but not saved or "
            'converted. Load it without dtype="int8", or save it before you call `quantize`.'
        )
