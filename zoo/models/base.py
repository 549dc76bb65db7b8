"""Base classes of the models, their settings of blocks, tables of sizes, and copies of a model."""

import inspect

import keras
from keras import ops

from zoo import compat
from zoo.errors import as_number
from zoo.layers.blocks import TransformerEncoder
from zoo.layers.config import ConfigMixin, build_layers, check_not_quantized, quantization_mode
from zoo.layers.normalization import normalization_layer
from zoo.models.remat import recomputed

POSITIONS_IN_ATTENTION = ("relative", "rotary")  # others are added to the embeddings
_UNSUPPORTED = {"linear": ("relative",), "ssru": POSITIONS_IN_ATTENTION}  # by kinds of attention


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

    def layer(self, layer_class, name, *arguments, **settings):
        """A layer with the dtype policy of the model."""
        return layer_class(*arguments, **settings, dtype=self.dtype_policy, name=name)

    def head_layer(self, name):
        """The layer from features to logits, in full precision; without classes the identity."""
        if not as_number("num_classes", self.num_classes, int, 0):
            return keras.layers.Identity(dtype=self.variable_dtype, name=name)
        return keras.layers.Dense(
            self.num_classes,
            kernel_initializer=keras.initializers.TruncatedNormal(stddev=0.02),
            dtype=self.variable_dtype,
            name=name,
        )


class TransformerModel(ZooModel):
    """Base class of models made of Transformer blocks.

    Args:
        remat: whether training keeps only the inputs of each block in memory and recomputes the
            block for its gradient; see docs/long_sequences.md.
        **kwargs: the arguments of the blocks that `block_defaults` names; see
            `zoo.layers.TransformerEncoder`. They are attributes, and part of the config.
    """

    block_defaults = {  # a default may be empty
        name: parameter.default
        for name, parameter in inspect.signature(TransformerEncoder.__init__).parameters.items()
        if name not in ("self", "kwargs", "stochastic_depth", "layer_scale", "attention")
    }

    def __init__(self, remat=False, **kwargs):
        settings = {name: kwargs.pop(name, value) for name, value in self.block_defaults.items()}
        missing = [name for name, x in settings.items() if x is inspect.Parameter.empty]
        if missing:
            raise TypeError(f"{type(self).__name__} also needs {', '.join(missing)}.")
        super().__init__(**kwargs)
        self._remat = remat
        self.store(settings)

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

    def apply_block(self, block, *inputs, **settings):
        """``block(*inputs, **settings)``; with `remat`, recomputed for the gradient."""
        if self.remat and compat.call_training():
            return recomputed(block, *inputs, **settings)
        return block(*inputs, **settings)

    def block(self, block_class, name, **settings):
        """A block with the arguments of the model, unless `settings` override them."""
        settings = {**{name: getattr(self, name) for name in self.block_defaults}, **settings}
        kind, positions = settings.get("attention"), getattr(self, "positions", None)
        if positions in _UNSUPPORTED.get(kind, ()):
            raise ValueError(f"Blocks with attention={kind!r} do not support {positions=}.")
        return self.layer(block_class, name, **settings)

    def blocks(self, block_class, name, count, **settings):
        return [self.block(block_class, f"{name}_{index}", **settings) for index in range(count)]

    def tanh_layer(self, name, width):
        """A dense layer with tanh, which comes before a head, or None without a width."""
        if not width:
            return None
        initializer = {"kernel_initializer": self.kernel_initializer}
        return self.layer(keras.layers.Dense, name, width, "tanh", **initializer)

    def norm_layer(self, name, exists):
        """A normalization if it `exists`, or None."""
        if not exists:
            return None
        return normalization_layer(self.norm_type, self.epsilon, dtype=self.dtype_policy, name=name)


def apply_optional(layer, x):
    """``layer(x)``, or `x` in a model without this layer."""
    return x if layer is None else layer(x)


def arguments_of_size(
    function, size, sizes, settings, required=("embed_dim", "num_layers", "num_heads")
):
    """The arguments of a model of a published size, overridden by `settings`.

    `function` is the name of the function that builds the model, and by default that of the model;
    `required` names arguments that must be given without a size.
    """
    if size is not None and size not in sizes:
        raise ValueError(f"Unknown size {size!r}. A size is one of {', '.join(sizes)}.")
    settings = {"name": function, **sizes.get(size, {}), **settings}
    missing = [name for name in required if name not in settings]
    if missing:
        raise ValueError(
            f"Without a size such as {next(iter(sizes))!r}, zoo.{function} also needs "
            f"{', '.join(missing)}."
        )
    return settings


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
    # Own classes and functions need not be registered.
    classes = {type(layer).__name__: type(layer) for layer in compat.all_layers(model)}
    copy = keras.saving.deserialize_keras_object(config, classes, safe_mode=False)
    copy.set_weights(_merged_weights(model))
    return copy


def _without_lora(config):
    if isinstance(config, dict):
        names = config.keys() - {"lora_rank", "lora_alpha"}
        return {k: _without_lora(v) for k, v in config.items() if k in names}
    if isinstance(config, (list, tuple)):
        return type(config)(map(_without_lora, config))
    return config


def _merged_weights(model):
    """The weights of the same model without LoRA, as arrays: its updates are added to the matrices.

    Keras's own merge, when it saves a model, rounds the sums to the compute dtype, such as
    bfloat16.
    """
    numpy, updates = ops.convert_to_numpy, {}
    for layer in compat.all_layers(model):
        if getattr(layer, "lora_enabled", False):
            name = "kernel" if hasattr(layer, "lora_kernel_a") else "embeddings"
            a, b = (numpy(getattr(layer, f"lora_{name}_{side}")) for side in "ab")
            updates[id(compat.stored_matrix(layer))] = layer.lora_alpha / layer.lora_rank * (a @ b)
    weights = [weight for weight in model.weights if not weight.name.startswith("lora_")]
    return [numpy(w) + updates[id(w)] if id(w) in updates else numpy(w) for w in weights]
