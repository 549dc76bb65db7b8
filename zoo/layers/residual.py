"""What encoder and decoder blocks share: their settings, and the residual connection."""

import keras
from keras import ops

from zoo.layers.config import ConfigMixin
from zoo.layers.dropout import Dropout
from zoo.layers.feed_forward import FeedForward
from zoo.layers.masks import carried_mask
from zoo.layers.normalization import LayerNormalization
from zoo.layers.training import training_argument


@keras.saving.register_keras_serializable("zoo")
class LayerScale(ConfigMixin, keras.layers.Layer):
    """Multiplies [B, T, E] by a learned vector [E] that starts at `initial_value`.

    Source: Touvron et al. 2021, "Going deeper with Image Transformers", section 2.
    """

    def __init__(self, initial_value, **kwargs):
        super().__init__(**kwargs)
        self.store(locals())
        self.supports_masking = True

    def build(self, input_shape):
        start = keras.initializers.Constant(self.initial_value)
        self.gamma = self.add_weight((input_shape[-1],), start, name="gamma")

    def call(self, x):
        return x * ops.cast(self.gamma, x.dtype)

    def compute_output_shape(self, input_shape):
        return input_shape


class TransformerBlock(ConfigMixin, keras.layers.Layer):
    """Base of a block of attention and feed-forward layers with a residual connection each.

    The arguments are described in `zoo.layers.TransformerEncoder`. A subclass gives the names and
    classes of its `attention_layers`. The norm of ``attention`` is ``attention_norm``, its layer
    scale ``attention_scale``. A pre-norm stack needs one more layer normalization after its last
    block, which belongs to the model.
    """

    attention_layers = {}

    def __init__(
        self,
        embed_dim,
        num_heads,
        ff_dim=None,
        dropout=0.0,
        attention_dropout=0.0,
        norm="pre",
        activation="gelu",
        stochastic_depth=0.0,
        layer_scale=None,
        key_dim=None,
        qkv_bias=True,
        epsilon=1e-6,
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(**kwargs)
        if norm not in ("pre", "post"):
            raise ValueError(f'norm must be "pre" or "post". Received: norm={norm!r}.')
        self.store(locals())
        self.supports_masking = True
        self.input_spec = keras.layers.InputSpec(ndim=3)
        policy = self.dtype_policy
        for sublayer in (*self.attention_layers, "feed_forward"):
            name = f"{sublayer}_norm"
            setattr(self, name, LayerNormalization(epsilon=epsilon, dtype=policy, name=name))
            if layer_scale is not None:
                name = f"{sublayer}_scale"
                setattr(self, name, LayerScale(layer_scale, dtype=policy, name=name))
        shared = {"kernel_initializer": kernel_initializer, "dtype": policy}
        settings = {"dropout": attention_dropout, "qkv_bias": qkv_bias, **shared}
        for name, kind in self.attention_layers.items():
            setattr(self, name, kind(embed_dim, num_heads, key_dim, **settings, name=name))
        self.feed_forward = FeedForward(
            embed_dim, ff_dim, activation, dropout, **shared, name="feed_forward"
        )
        self._dropout = Dropout(dropout, dtype=policy)
        self._stochastic_depth = Dropout(stochastic_depth, noise_shape=(None, 1, 1), dtype=policy)

    def build_residuals(self, names, input_shape):
        """Builds the feed-forward network, and what `residual` needs for the sub-layers `names`."""
        for name in names:
            getattr(self, f"{name}_norm").build(input_shape)
            if self.layer_scale is not None:
                getattr(self, f"{name}_scale").build(input_shape)
        self.feed_forward.build(input_shape)

    def residual(self, name, x, *args, training=None, **kwargs):
        """A sub-layer with its residual connection.

        ``pre``:  x + dropout(sublayer(norm(x))), Dosovitskiy et al. 2020, section 3.1.
        ``post``: norm(x + dropout(sublayer(x))), Vaswani et al. 2017, sections 3.1 and 5.4.

        Args:
            name: "feed_forward", or one of `attention_layers`.
            x: [B, T, E].
            *args, **kwargs: further arguments of the sub-layer.

        Returns:
            [B, T, E].
        """
        kwargs.update(training_argument(training))
        outputs = getattr(self, name)(self.sublayer_input(name, x), *args, **kwargs)
        return self.add_residual(name, x, outputs, training)

    def sublayer_input(self, name, x):
        """`x`, normalized in a pre-norm block."""
        return getattr(self, f"{name}_norm")(x) if self.norm == "pre" else x

    def add_residual(self, name, x, outputs, training=None):
        """The sum of `x` and the outputs of a sub-layer, normalized in a post-norm block."""
        if self.layer_scale is not None:
            outputs = getattr(self, f"{name}_scale")(outputs)
        for dropout in (self._dropout, self._stochastic_depth):
            outputs = dropout(outputs, **training_argument(training))
        x = ops.add(x, outputs)
        return getattr(self, f"{name}_norm")(x) if self.norm == "post" else x

    def compute_mask(self, inputs, previous_mask):
        return carried_mask(inputs)  # not the mask of the call, which may be causal

    def compute_output_shape(self, input_shape):
        return input_shape
