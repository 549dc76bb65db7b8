"""Serialization of layers: a constructor's arguments are its config."""

import inspect

import keras


class ConfigMixin:
    """Gives a Keras layer or model ``get_config`` and ``from_config``.

    The config of an object is what its constructor was called with: every argument is stored by the
    constructor as an attribute of the same name, unchanged, and nothing derived enters the config.
    List the mixin before the Keras class: ``class MyLayer(ConfigMixin, keras.layers.Layer)``.
    """

    def get_config(self):
        """Returns the constructor's arguments as a JSON-serializable dict."""
        config = super().get_config()
        for name in _constructor_arguments(type(self)):
            config[name] = keras.saving.serialize_keras_object(getattr(self, name))
        return config

    @classmethod
    def from_config(cls, config, custom_objects=None):
        """Builds the object that `config` describes."""
        return cls(
            **{
                name: keras.saving.deserialize_keras_object(value, custom_objects)
                if isinstance(value, dict)
                else value
                for name, value in config.items()
            }
        )


def _constructor_arguments(cls):
    if cls.__init__ is keras.layers.Layer.__init__:
        return []
    parameters = inspect.signature(cls.__init__).parameters.values()
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [p.name for p in parameters if p.kind in named and p.name != "self"]
