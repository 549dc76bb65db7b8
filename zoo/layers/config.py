"""Serialization of layers: a constructor's arguments are its config."""

import inspect

import keras

from zoo import compat
from zoo.errors import UserError


class ConfigMixin:
    """Gives a Keras layer or model ``get_config`` and ``from_config``.

    The config is what the constructors of a class and of its bases passed to `store`, and what
    Keras adds; a subclass may also store its arguments as attributes of the same names. List it
    first: ``class MyLayer(ConfigMixin, keras.layers.Layer)``.
    """

    renamed = {}  # {argument: attribute}, where the name of the argument is that of a layer
    _stored = ()

    def store(self, arguments):
        """Stores a constructor's arguments, its ``locals()``, as attributes, see `renamed`."""
        names = [name for name in arguments if name not in ("self", "kwargs", "__class__")]
        for name in names:
            setattr(self, self.renamed.get(name, name), arguments[name])
        self._stored = (*self._stored, *names)

    def get_config(self):
        """Returns the constructor's arguments as a JSON-serializable dict.

        Raises:
            NotImplementedError: if an argument of a subclass is neither stored nor added by a
                `get_config` of its own.
        """
        own = inspect.signature(type(self).__init__).parameters
        names = {name: self.renamed.get(name, name) for name in (*self._stored, *own)}
        values = {name: getattr(self, x) for name, x in names.items() if hasattr(self, x)}
        config = {**keras.saving.serialize_keras_object(values), **super().get_config()}
        missing = sorted(own.keys() - config.keys() - {"self", "args", "kwargs"})
        if missing and type(self).get_config is ConfigMixin.get_config:
            raise NotImplementedError(f"{type(self).__name__} must store its arguments {missing}.")
        return config

    def stateless_call(self, *args, training=None, **kwargs):
        """As `keras.layers.Layer.stateless_call`, with `training` for nested layers as well.

        With it, `fit` runs models on JAX. Keras opens no context of a call there, from which nested
        layers learn whether they are in training.
        """
        if "training" in inspect.signature(self.call).parameters:
            kwargs["training"] = training
        with compat.call_context(training):
            return super().stateless_call(*args, **kwargs)

    def save_own_variables(self, store):
        check_not_quantized(self)  # Keras could not load the weights: the config does not say so
        super().save_own_variables(store)

    @classmethod
    def from_config(cls, config, custom_objects=None):
        """Builds the object that `config` describes."""
        serialized = {name: x for name, x in config.items() if isinstance(x, (dict, list))}
        objects = keras.saving.deserialize_keras_object(serialized, custom_objects)
        return cls(**{**config, **objects})


def quantization_mode(layer):
    """The mode of the quantized layers within a layer, such as "int8"; None without any."""
    modes = (getattr(part, "quantization_mode", None) for part in compat.all_layers(layer))
    return next(filter(None, modes), None)  # Keras quantizes in one mode


def check_not_quantized(layer):
    """Raises UserError if a layer, or one within it, is quantized."""
    if quantization_mode(layer):
        raise UserError(
            "A model with quantized weights can be exported as a SavedModel, but not saved or "
            'converted. Load it without dtype="int8", or save it before you call `quantize`.'
        )


class SameShapeLayer(ConfigMixin, keras.layers.Layer):
    """A layer whose output has the mask and the shape of its first input.

    If it has an attribute `embed_dim`, this is the width of the output.
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def compute_output_shape(self, input_shape=None, *others, **named):
        *shape, width = input_shape or next(iter(named.values()))  # named as in `build`
        return (*shape, getattr(self, "embed_dim", width))

    def compute_mask(self, inputs, previous_mask):
        return compat.get_keras_mask(inputs)  # not the mask of the call, which may be causal


def build_layers(layer, shape):
    """Builds all sublayers that are not built yet, for inputs of this shape."""
    for part in compat.outermost_layers(layer):
        if not part.built:
            part.build(shape)


def own_initializer(initializer):
    """A copy of an initializer, if it is an object of Keras that draws from a fixed seed.

    Such an object draws the same numbers at every call; its copies draw others, unless an integer
    was given as its seed. One with a `keras.random.SeedGenerator` draws others at every call.
    """
    is_random = isinstance(initializer, compat.RandomInitializer)
    return initializer.clone() if is_random and isinstance(initializer.seed, int) else initializer
