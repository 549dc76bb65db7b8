"""The residual connection around every part of a Transformer block: pre-norm or post-norm."""

import keras
from keras import ops

from zoo.layers.config import ConfigMixin


@keras.saving.register_keras_serializable("zoo")
class Residual(ConfigMixin, keras.layers.Layer):
    """Norm, dropout and the residual sum around a layer, written once for every block.

    ``pre``:  x + dropout(layer(norm(x))), Dosovitskiy et al. 2020, section 3.1.
    ``post``: norm(x + dropout(layer(x))), Vaswani et al. 2017, section 3.1 and 5.4.

    Args:
        layer: the layer; its output is of the shape of its input.
        norm: "pre" or "post".
        dropout: rate in [0, 1) at which single outputs of `layer` are dropped in training.
        stochastic_depth: rate in [0, 1) at which, in training, `layer` is left out for a whole
            example, its output being scaled up otherwise. Source: Huang et al. 2016.
        layer_scale: if given, the output of `layer` is multiplied by a learned vector that starts
            at this value. Source: Touvron et al. 2021, "Going deeper with Image
            Transformers", section 2.
        epsilon: added to the variance in the layer normalization.

    Inputs: `x` [B, T, E]; keyword arguments go to `layer` as they are. `num_queries`: only that
    many positions, the first, are computed, by a `layer` that takes this argument too.

    Output: [B, T, E]; [B, num_queries, E] with `num_queries`.

    Raises:
        ValueError: if `norm` is neither "pre" nor "post".
    """

    def __init__(
        self,
        layer,
        norm="pre",
        dropout=0.0,
        stochastic_depth=0.0,
        layer_scale=None,
        epsilon=1e-6,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if norm not in ("pre", "post"):
            raise ValueError(f'norm must be "pre" or "post". Received: norm={norm!r}.')
        self.layer = layer
        self.norm = norm
        self.dropout = dropout
        self.stochastic_depth = stochastic_depth
        self.layer_scale = layer_scale
        self.epsilon = epsilon
        self.supports_masking = True
        self.normalization = keras.layers.LayerNormalization(
            epsilon=epsilon, dtype=self.dtype_policy, name="normalization"
        )
        self._dropout = keras.layers.Dropout(dropout, dtype=self.dtype_policy)
        self._stochastic_depth = keras.layers.Dropout(
            stochastic_depth, noise_shape=(None, 1, 1), dtype=self.dtype_policy
        )

    def build(self, input_shape):
        self.normalization.build(input_shape)
        if not self.layer.built:
            self.layer.build(input_shape)
        if self.layer_scale is not None:
            self.scale = self.add_weight(
                shape=input_shape[-1:],
                initializer=keras.initializers.Constant(self.layer_scale),
                name="scale",
            )

    def call(self, x, num_queries=None, **kwargs):
        if num_queries is None:
            change = self.layer(self.layer_input(x), **kwargs)
        else:
            change = self.layer(self.layer_input(x), num_queries=num_queries, **kwargs)
            x = x[:, :num_queries]
        return self.connect(x, change)

    def layer_input(self, x):
        """What `layer` is given for the input `x`: normalized in a pre-norm block."""
        return self.normalization(x) if self.norm == "pre" else x

    def connect(self, x, change):
        """Adds to `x` what `layer` made of its input: the output."""
        if self.layer_scale is not None:
            change = change * ops.cast(self.scale, change.dtype)
        x = x + self._stochastic_depth(self._dropout(change))
        return self.normalization(x) if self.norm == "post" else x

    def compute_mask(self, inputs, previous_mask):
        return getattr(inputs, "_keras_mask", None)

    def compute_output_shape(self, input_shape):
        return input_shape
