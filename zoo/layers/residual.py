"""What encoder and decoder blocks share: their settings, and the residual connection."""

import keras
from keras import ops

from zoo.layers.config import ConfigMixin
from zoo.layers.feed_forward import FeedForward
from zoo.layers.masks import carried_mask
from zoo.layers.training import passed_on


class TransformerBlock(ConfigMixin, keras.layers.Layer):
    """Base of a block whose parts, such as attention, have a residual connection each.

    The arguments are described in `zoo.layers.TransformerEncoder`. A subclass creates its attention
    layers in `create_attention` and names all its `parts`; the norm of a part ``attention`` is
    ``attention_norm``, its layer scale ``attention_scale``.
    """

    parts = ("feed_forward",)

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
        **kwargs,
    ):
        super().__init__(**kwargs)
        if norm not in ("pre", "post"):
            raise ValueError(f'norm must be "pre" or "post". Received: norm={norm!r}.')
        self.store(locals())
        self.supports_masking = True
        policy = self.dtype_policy
        for name in (f"{part}_norm" for part in self.parts):
            norm_layer = keras.layers.LayerNormalization(epsilon=epsilon, dtype=policy, name=name)
            setattr(self, name, norm_layer)
        self.create_attention(
            {
                "embed_dim": embed_dim,
                "num_heads": num_heads,
                "key_dim": key_dim,
                "dropout": attention_dropout,
                "qkv_bias": qkv_bias,
                "dtype": policy,
            }
        )
        self.feed_forward = FeedForward(
            embed_dim, ff_dim, activation, dropout, dtype=policy, name="feed_forward"
        )
        self._dropout = keras.layers.Dropout(dropout, dtype=policy)
        self._stochastic_depth = keras.layers.Dropout(
            stochastic_depth, noise_shape=(None, 1, 1), dtype=policy
        )

    def create_attention(self, settings):
        """Creates the attention layers of the block.

        Args:
            settings: their arguments, a dict.
        """
        raise NotImplementedError

    def build(self, input_shape):
        for part in self.parts:
            getattr(self, f"{part}_norm").build(input_shape)
            if self.layer_scale is not None:
                name, start = f"{part}_scale", keras.initializers.Constant(self.layer_scale)
                setattr(self, name, self.add_weight((input_shape[-1],), start, name=name))
        self.feed_forward.build(input_shape)

    def residual(self, part, x, function, shortcut=None, training=None):
        """The residual connection around a part of the block.

        ``pre``:  x + dropout(function(norm(x))), Dosovitskiy et al. 2020, section 3.1.
        ``post``: norm(x + dropout(function(x))), Vaswani et al. 2017, sections 3.1 and 5.4.

        Args:
            part: one of `parts`.
            x: [B, T, E].
            function: computes the part: [B, T, E] -> [B, T, E].
            shortcut: added to its output in place of `x`, if given.
            training: whether dropout acts; as in the surrounding call by default.

        Returns:
            [B, T, E].
        """
        outputs, _ = self.residual_step(part, x, lambda x: (function(x), None), shortcut, training)
        return outputs

    def residual_step(self, part, x, function, shortcut=None, training=None):
        """`residual` for a `function` that returns (outputs, cache): (outputs, cache)."""
        norm, scale = getattr(self, f"{part}_norm"), getattr(self, f"{part}_scale", None)
        outputs, cache = function(norm(x) if self.norm == "pre" else x)
        if scale is not None:
            outputs = outputs * ops.cast(scale, outputs.dtype)
        for dropout in (self._dropout, self._stochastic_depth):
            outputs = dropout(outputs, **passed_on(training))
        outputs = ops.add(x if shortcut is None else shortcut, outputs)
        return (outputs if self.norm == "pre" else norm(outputs)), cache

    def compute_mask(self, inputs, previous_mask):
        return carried_mask(inputs)  # not the mask of the call, which may be causal

    def compute_output_shape(self, input_shape):
        return input_shape
