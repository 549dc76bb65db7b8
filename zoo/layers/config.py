"""Serialization of layers: a constructor's arguments are its config."""

import inspect

import keras

from zoo import compat


class ConfigMixin:
    """Gives a Keras layer or model ``get_config`` and ``from_config``.

    The config is what the constructor was called with: every argument is stored as an attribute of
    the same name, unchanged. The config of a subclass has the arguments of its own constructor and
    of those of its bases. List it first: ``class MyLayer(ConfigMixin, keras.layers.Layer)``.
    """

    def store(self, arguments):
        """Stores the arguments of a constructor, its ``locals()``, as attributes."""
        for name, value in arguments.items():
            if name not in ("self", "kwargs", "__class__"):
                setattr(self, name, value)

    def get_config(self):
        """Returns the constructor's arguments as a JSON-serializable dict.

        Raises:
            NotImplementedError: if an argument of a subclass is not stored under its name, and the
                subclass has no `get_config` of its own that adds it.
        """
        config = super().get_config()
        for name in _constructor_arguments(type(self)):
            if name in config:  # such as "dtype", which Keras adds
                continue
            if hasattr(self, name):
                config[name] = keras.saving.serialize_keras_object(getattr(self, name))
            elif type(self).get_config is ConfigMixin.get_config:
                raise NotImplementedError(
                    f"{type(self).__name__} must store its constructor's argument {name!r} as "
                    f"`self.{name}`, or override get_config to add it."
                )
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

    @classmethod
    def keyword_arguments(cls):
        """Names of arguments that the constructor takes, but only its `**kwargs` stand for."""
        return ()

    @classmethod
    def from_config(cls, config, custom_objects=None):
        """Builds the object that `config` describes."""
        return cls(
            **{
                name: keras.saving.deserialize_keras_object(value, custom_objects)
                if isinstance(value, (dict, list))
                else value
                for name, value in config.items()
            }
        )


class SameShapeLayer(ConfigMixin, keras.layers.Layer):
    """A layer whose output has the shape and the mask of its first input."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def compute_output_shape(self, input_shape, *other_shapes):
        return input_shape


def own_initializer(initializer):
    """A copy of an initializer, if it is an object of Keras that draws from a fixed seed.

    Such an object draws the same numbers at every call; its copies draw others, unless an integer
    was given as its seed. One with a `keras.random.SeedGenerator` draws others at every call.
    """
    is_random = isinstance(initializer, compat.RandomInitializer)
    return initializer.clone() if is_random and isinstance(initializer.seed, int) else initializer


def _constructor_arguments(cls):
    """Names of the arguments of the constructors of `cls` and its bases, as keys of a dict."""
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    names = {}
    for base in cls.__mro__[: cls.__mro__.index(ConfigMixin)]:
        if "__init__" in vars(base):
            parameters = list(inspect.signature(base.__init__).parameters.values())[1:]
            names.update({p.name: None for p in parameters if p.kind in named})
            if all(p.kind != inspect.Parameter.VAR_KEYWORD for p in parameters):
                break  # arguments of the bases cannot be passed to it
    else:
        names.update(dict.fromkeys(cls.keyword_arguments()))
    return names.keys()
