"""Serialization of layers: a constructor's arguments are its config."""

import inspect

import keras

from zoo import compat
from zoo.errors import UserError


class ConfigMixin:
    """Gives a Keras layer or model, and all of its subclasses, ``get_config`` and ``from_config``.

    The config is what the constructor was given, and what Keras adds. List the mixin first:
    ``class MyLayer(ConfigMixin, keras.layers.Layer)``.
    """

    def __new__(cls, *args, **kwargs):
        layer = super().__new__(cls, *args, **kwargs)
        layer.given_arguments = GivenArguments(cls.__init__, args, kwargs)
        return layer

    def get_config(self):
        """Returns the constructor's arguments as a JSON-serializable dict.

        Raises:
            NotImplementedError: if the constructor of a subclass was given arguments without names,
                by ``*args`` for example.
        """
        if self.given_arguments.unnamed and type(self).get_config is ConfigMixin.get_config:
            raise NotImplementedError(
                f"The constructor of {type(self).__name__} was given positional arguments that "
                "have no names, so that they cannot be stored in a config. Give them by name, or "
                "replace *args by the names of the arguments."
            )
        arguments = keras.saving.serialize_keras_object(self.given_arguments.named)
        config = {**arguments, **super().get_config()}
        parameters = inspect.signature(type(self).__init__).parameters
        if any(parameter.kind == parameter.VAR_KEYWORD for parameter in parameters.values()):
            return config
        # Keras adds `name`, `trainable` and `dtype`, which not every constructor takes.
        return {name: value for name, value in config.items() if name in parameters}

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
        arguments = {**config, **keras.saving.deserialize_keras_object(serialized, custom_objects)}
        return cls(**arguments)


class GivenArguments:
    """The arguments that a constructor was given, and the defaults of the others.

    It is not a dict, as Keras would search one for layers and save their weights a second time.

    Attributes:
        named: {name: value}; those in ``**kwargs`` have names as well.
        unnamed: list of the values of ``*args`` and of positional-only arguments.
    """

    def __init__(self, constructor, args, kwargs):
        self.named = {}
        self.unnamed = []
        signature = inspect.signature(constructor)
        try:
            bound = signature.bind(None, *args, **kwargs)
        except TypeError:  # the constructor raises it as well; `copy.copy` does not call it
            return
        bound.apply_defaults()
        for name, value in list(bound.arguments.items())[1:]:  # without `self`
            kind = signature.parameters[name].kind
            if kind == inspect.Parameter.VAR_KEYWORD:
                self.named.update(value)
            elif kind == inspect.Parameter.VAR_POSITIONAL:
                self.unnamed.extend(value)
            elif kind == inspect.Parameter.POSITIONAL_ONLY:
                self.unnamed.append(value)
            else:
                self.named[name] = value


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


class SameShapeLayer(ConfigMixin, keras.layers.Layer):
    """A layer whose output has the mask and the shape of its first input.

    If it has an attribute `embed_dim`, this is the width of the output.
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def compute_output_shape(self, input_shape=None, *others, **named):
        if input_shape is None:  # shapes of several inputs are named as in `build`
            input_shape = next(iter(named.values()))
        *shape, width = input_shape
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
    if is_random and isinstance(initializer.seed, int):
        return initializer.clone()
    return initializer
