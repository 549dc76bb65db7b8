"""What the models share."""

import keras

from zoo.layers.config import ConfigMixin


class ZooModel(ConfigMixin, keras.Model):
    """A Keras model that knows its inputs, and can be exported before it was ever called."""

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
