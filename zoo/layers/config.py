"""Serialization of layers: a constructor's arguments are its config."""

import functools
import inspect

import keras

from zoo import compat
from zoo.errors import check_bool
from zoo.layers.quantization import check_not_quantized


class ConfigMixin:
    """Gives a Keras layer or model, and all of its subclasses, ``get_config`` and ``from_config``.

    The config is what the constructor was given, and what Keras adds. Keras's own record of the
    arguments is for plain values only, not for initializers or layers. List the mixin first:
    ``class MyLayer(ConfigMixin, keras.layers.Layer)``.
    """

    def __new__(cls, *args, **kwargs):
        layer = super().__new__(cls, *args, **kwargs)
        layer.given_arguments = GivenArguments(cls.__init__, args, kwargs)
        layer.build = _build_frozen(layer, layer.build)
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
        # Keras adds `name`, `trainable` and `dtype`, which not every constructor takes.
        parameters = inspect.signature(type(self).__init__).parameters
        if any(parameter.kind == parameter.VAR_KEYWORD for parameter in parameters.values()):
            return config
        return {name: value for name, value in config.items() if name in parameters}

    def stateless_call(self, *args, training=None, **kwargs):
        """Calls the layer without side effects, as `fit` does on JAX.

        Unlike the method of `keras.layers.Layer`, it passes `training` to nested layers.
        """
        if "training" in inspect.signature(self.call).parameters:
            kwargs["training"] = training
        with compat.call_context(training):
            return super().stateless_call(*args, **kwargs)

    def save_own_variables(self, store):
        check_not_quantized(self)  # the config does not say it, so Keras could not load the weights
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
        unnamed: list of the values that were given for ``*args`` and for positional-only arguments.
    """

    def __init__(self, constructor, args, kwargs):
        self.named = {}
        self.unnamed = []
        signature = inspect.signature(constructor)
        try:
            bound = signature.bind(None, *args, **kwargs)
        except TypeError:  # the constructor raises it as well; `copy.copy` does not call it
            return
        given = set(bound.arguments)
        bound.apply_defaults()
        for name, value in list(bound.arguments.items())[1:]:  # without `self`
            kind = signature.parameters[name].kind
            if kind == inspect.Parameter.VAR_KEYWORD:
                self.named.update(_copied(value))
            elif kind == inspect.Parameter.VAR_POSITIONAL:
                self.unnamed.extend(value)
            elif kind != inspect.Parameter.POSITIONAL_ONLY:
                self.named[name] = _copied(value)
            elif name in given:
                self.unnamed.append(value)
            default = signature.parameters[name].default
            if isinstance(default, bool) and constructor.__module__.startswith("zoo."):
                check_bool(name, value)  # of our own only


def _copied(argument):
    """The argument, in which lists and dicts are copies, as constructors may change theirs."""
    return keras.tree.map_structure(lambda value: value, argument)


class SameShapeLayer(ConfigMixin, keras.layers.Layer):
    """Base class of layers whose output has the shape and the mask of their first input."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def compute_output_shape(self, input_shape=None, *others, **named):
        if input_shape is None:  # Keras passes several shapes by name, as to `build`
            input_shape = next(iter(named.values()))
        return tuple(input_shape)

    def compute_mask(self, inputs, previous_mask):
        return compat.get_keras_mask(inputs)  # not the mask of the call, which may be causal


class SameLengthLayer(SameShapeLayer):
    """Base class of layers whose output is like their first input, but of width `embed_dim`."""

    def compute_output_shape(self, input_shape=None, *others, **named):
        shape = super().compute_output_shape(input_shape, *others, **named)
        return (*shape[:-1], self.embed_dim)


def _build_frozen(layer, build):
    """The method `build` of a layer that, as in Keras, may have been frozen before.

    Keras then freezes the variables of the layer alone, not those of its sublayers.
    """

    @functools.wraps(build)
    def build_frozen(*args, **kwargs):
        build(*args, **kwargs)
        if not layer.trainable:
            for part in compat.outermost_layers(layer):
                part.trainable = False

    return build_frozen


def build_layers(layer, shape):
    """Builds all sublayers that are not built yet, for inputs of this shape."""
    for part in compat.outermost_layers(layer):
        if not part.built:
            part.build(shape)


def own_initializer(initializer):
    """Returns an initializer that does not draw the numbers another layer has drawn from it.

    A random initializer of Keras draws the same numbers at every call, unless its seed is a
    `keras.random.SeedGenerator`. A copy draws others, unless the user gave an integer as the seed.
    """
    is_random = isinstance(initializer, compat.RandomInitializer)
    if is_random and isinstance(initializer.seed, int):
        return initializer.clone()
    return initializer
