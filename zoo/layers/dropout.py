"""Dropout. Source: Srivastava et al. 2014, "Dropout: A Simple Way to Prevent Neural Networks from
Overfitting", section 4.
"""

import keras

from zoo import kernels


@keras.saving.register_keras_serializable("zoo")
class Dropout(keras.layers.Dropout):
    """`keras.layers.Dropout`, which takes less time in training with TensorFlow on CPUs."""

    def call(self, inputs, training=False):
        return self._drop(inputs) if training and self.rate > 0 else inputs

    @kernels.accelerated_by(kernels.dropout)
    def _drop(self, inputs):
        return super().call(inputs, training=True)
