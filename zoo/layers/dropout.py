"""Dropout. Source: Srivastava et al. 2014, "Dropout: A Simple Way to Prevent Neural Networks from
Overfitting", section 4.
"""

import keras

from zoo import compat, kernels


@keras.saving.register_keras_serializable("zoo")
class Dropout(keras.layers.Dropout):
    """A `keras.layers.Dropout` that is faster in training with TensorFlow on CPUs."""

    def call(self, inputs, training=False):
        if not training or self.rate == 0:
            return inputs
        return self._drop(inputs)

    @kernels.accelerated_by(kernels.dropout)
    def _drop(self, inputs):
        return compat.dropout(inputs, self.rate, self.noise_shape, self.seed_generator)
