"""Base classes of the models, arguments of published sizes, and copies of a model."""

import inspect

import keras
from keras import ops

from zoo import compat
from zoo.errors import as_number
from zoo.layers.config import ConfigMixin, build_layers, check_not_quantized, quantization_mode
from zoo.models.remat import recomputed


class ZooModel(ConfigMixin, keras.Model):
    """Base class of the models.

    Keras passes `training` of a call on to all layers, so that ``call(inputs, training=None)`` has
    nothing to do with it. On JAX, `fit` looks for it in the signature of `call`.
    """

    def save(self, filepath, overwrite=True, zipped=None, **kwargs):
        """As `keras.Model.save`."""
        check_not_quantized(self)
        super().save(filepath, overwrite, zipped, **kwargs)

    def save_weights(self, *args, **kwargs):
        """As `keras.Model.save_weights`."""
        check_not_quantized(self)
        super().save_weights(*args, **kwargs)

    def export(
        self, filepath, format="tf_saved_model", verbose=None, input_signature=None, **kwargs
    ):
        """As `keras.Model.export`, also before the first call; see `input_signature`."""
        if input_signature is None:
            input_signature = [self.input_signature()]
        super().export(filepath, format, verbose, input_signature, **kwargs)

    def input_signature(self):
        """The inputs of an exported model, by default: `keras.InputSpec`, or a dict of them."""
        raise NotImplementedError

    def compute_output_spec(self, *args, **kwargs):
        spec = super().compute_output_spec(*args, **kwargs)
        return keras.KerasTensor(spec.shape, self.variable_dtype)  # logits are in full precision

    def compute_output_shape(self, input_shape):
        return (input_shape[0], self.num_classes or self.num_features)

    @property
    def num_features(self):
        """The width of the input of the head."""
        return self.embed_dim

    def head_layer(self, name):
        """The layer from features to logits, in full precision; without classes the identity."""
        if as_number("num_classes", self.num_classes, int, 0) == 0:
            return keras.layers.Identity(dtype=self.variable_dtype, name=name)
        return keras.layers.Dense(
            self.num_classes,
            kernel_initializer=keras.initializers.TruncatedNormal(stddev=0.02),
            dtype=self.variable_dtype,
            name=name,
        )


class TransformerModel(ZooModel):
    """Base class of models made of Transformer blocks of width `embed_dim`."""

    _remat = False

    @property
    def remat(self):
        """Whether training recomputes each block for its gradient. It may be set at any time."""
        return self._remat

    @remat.setter
    def remat(self, value):
        self._remat = value
        self.given_arguments.named["remat"] = value

    def build(self, input_shape=None):
        """Builds all layers that are not built yet, for features [B, T, E]."""
        build_layers(self, (None, None, self.embed_dim))

    def apply_block(self, block, *inputs, **arguments):
        """``block(*inputs, **arguments)``; with `remat`, recomputed for the gradient."""
        if self.remat and compat.call_training():
            return recomputed(block, *inputs, **arguments)
        return block(*inputs, **arguments)


def arguments_of_size(
    function, size, sizes, arguments, required=("embed_dim", "num_layers", "num_heads")
):
    """Returns the arguments of a model: those of a published size, overridden by `arguments`.

    Args:
        function: name of the function that builds the model, and by default that of the model.
        size: a key of `sizes`, or None.
        sizes: {size: {argument: value}}.
        arguments: {argument: value}.
        required: names of the arguments that must be given without a size.

    Raises:
        ValueError: if the size is unknown or a required argument is missing.
    """
    of_size = {}
    if size is not None:
        if size not in sizes:
            raise ValueError(f"Unknown size {size!r}. A size is one of {', '.join(sizes)}.")
        of_size = sizes[size]
    arguments = {"name": function, **of_size, **arguments}
    missing = [name for name in required if name not in arguments]
    if missing:
        example = next(iter(sizes))
        raise ValueError(
            f"Without a size such as {example!r}, zoo.{function} also needs {', '.join(missing)}."
        )
    return arguments


def unsupported_settings(model, required):
    """Lists the settings with which a model cannot be written in a format of another library.

    Args:
        model: a model of this package.
        required: {name: value} of the settings that have only one value in the format. That the
            model has layer normalization need not be said.

    Returns:
        list of str, such as ``["norm='post'"]``.
    """
    required = {"norm_type": "layer", **required}
    values = {name: getattr(model, name) for name in required}
    return [f"{name}={value!r}" for name, value in values.items() if value != required[name]]


def describes_arguments_of(model_class):
    """Decorator of a function that builds a model: adds the model's arguments to its docstring."""

    def decorate(function):
        if function.__doc__ is not None:  # it is None with `python -OO`
            arguments = inspect.getdoc(model_class).partition("Args:\n")[2].partition("\n\n")[0]
            title = f"Arguments of `zoo.models.{model_class.__name__}`:"
            function.__doc__ = f"{inspect.getdoc(function)}\n\n{title}\n{arguments}\n"
        return function

    return decorate


def dtype_name(model):
    """The name of the model's dtype policy; with quantized weights their mode, such as "int8"."""
    return quantization_mode(model) or model.dtype_policy.name


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
