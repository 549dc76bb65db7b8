"""What the models share."""

import keras
import numpy as np

from zoo.errors import UserError
from zoo.layers.config import ConfigMixin
from zoo.layers.normalization import LayerNormalization

_BLOCK_ARGUMENTS = (
    "embed_dim num_heads ff_dim dropout attention_dropout norm activation layer_scale key_dim "
    "qkv_bias epsilon kernel_initializer"
).split()


class ZooModel(ConfigMixin, keras.Model):
    """Base class of the models; it makes `export` independent of a previous call."""

    def input_signature(self):
        """The shape and dtype of the inputs: `keras.layers.InputSpec`, or a dict of them."""
        raise NotImplementedError

    def export(
        self, filepath, format="tf_saved_model", verbose=None, input_signature=None, **kwargs
    ):
        """As `keras.Model.export`; `input_signature` is that of the model by default."""
        if input_signature is None:
            input_signature = [self.input_signature()]
        return super().export(filepath, format, verbose, input_signature, **kwargs)

    def save(self, filepath, overwrite=True, zipped=None, **kwargs):
        """As `keras.Model.save`."""
        _check_not_quantized(self)
        super().save(filepath, overwrite, zipped, **kwargs)

    def compute_output_spec(self, *args, **kwargs):
        spec = super().compute_output_spec(*args, **kwargs)
        return keras.KerasTensor(spec.shape, self.variable_dtype)  # logits are in full precision

    def layer(self, kind, name, *arguments, **settings):
        """A layer with the dtype policy of the model."""
        return kind(*arguments, **settings, dtype=self.dtype_policy, name=name)

    def block(self, kind, name, **settings):
        """A block with the model's arguments of the same names; `settings` override them."""
        shared = {name: getattr(self, name) for name in _BLOCK_ARGUMENTS if hasattr(self, name)}
        return self.layer(kind, name, **{**shared, **settings})

    def norm_layer(self, name, exists):
        """A layer normalization if it `exists`, or None."""
        return self.layer(LayerNormalization, name, epsilon=self.epsilon) if exists else None


def dtype_name(model):
    """The name of the model's dtype policy; of quantized weight matrices, such as "int8"."""
    modes = {getattr(layer, "quantization_mode", None) for layer in model._flatten_layers()}
    return min(modes - {None}, default=model.dtype_policy.name)


def _check_not_quantized(model):
    if dtype_name(model) != model.dtype_policy.name:
        raise UserError(
            "A model whose weights are quantized can be exported as a SavedModel, but not saved or "
            'converted. For that, load it without dtype="int8".'
        )


def copy_model(model, **arguments):
    """A model with the same weights, and with other `arguments`, such as `dtype`.

    The updates of LoRA are added to the matrices.

    Raises:
        UserError: if the weights are quantized.
    """
    _check_not_quantized(model)
    copy = type(model).from_config({**model.get_config(), **arguments})
    copy.build_from_config(model.get_build_config())
    for mine, value in zip(copy.weights, merged_weights(model), strict=True):
        mine.assign(value)
    return copy


def merged_weights(model):
    """The weights of the same model without LoRA, as arrays: its updates are added to the matrices.

    Keras's own merge, when it saves a model, rounds the sums to the compute dtype, such as
    bfloat16.
    """
    changes = {}
    for layer in model._flatten_layers():
        if getattr(layer, "lora_enabled", False):
            name = "kernel" if hasattr(layer, "lora_kernel_a") else "embeddings"
            a, b = (np.asarray(getattr(layer, f"lora_{name}_{side}")) for side in "ab")
            matrix = getattr(layer, f"_{name}")
            changes[id(matrix)] = layer.lora_alpha / layer.lora_rank * (a @ b)
    return [
        np.asarray(v) + changes[id(v)] if id(v) in changes else np.asarray(v)
        for v in model.weights
        if not v.name.startswith("lora_")
    ]
