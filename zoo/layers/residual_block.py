"""The block of a residual convolutional network.

Axes: B batch, H image height, W image width, C channels of the input, F filters.
"""

import keras
from keras import ops

from zoo.errors import check_choice
from zoo.layers.channel_attention import ConvBlockAttention, SqueezeExcite
from zoo.layers.config import ConfigMixin, own_initializer

ATTENTION = {"cbam": ConvBlockAttention, "squeeze_excite": SqueezeExcite}


@keras.saving.register_keras_serializable("zoo")
class ResidualBlock(ConfigMixin, keras.layers.Layer):
    """Two convolutions of 3x3 with a parameter-free residual connection: He et al. 2015, "Deep
    Residual Learning for Image Recognition", section 3.2 and figure 3.

    The shortcut skips positions if the block has strides, and has zeros in the channels that the
    block adds: option A of section 3.3. Attention is applied to the output of the last
    normalization, before the sum: Woo et al. 2018, "CBAM", figure 3; Hu et al. 2017,
    "Squeeze-and-Excitation Networks", figure 3.

    The block normalizes groups of channels (Wu and He 2018, "Group Normalization"), where the paper
    normalizes over the batch: this does not depend on the other images, and so neither on how a
    batch is divided among devices, and it has no moving statistics, which would not fit a moving
    average of the weights.

    Args:
        filters: F, at least C.
        strides: step of the first convolution in both directions.
        attention: "cbam", `zoo.layers.ConvBlockAttention`; "squeeze_excite",
            `zoo.layers.SqueezeExcite`; or None.
        ratio: see `zoo.layers.SqueezeExcite`.
        groups: number of groups of channels; divides F.
        epsilon: added to the variance in the normalizations.
        kernel_initializer: initializer of both convolutions.

    Input: [B, H, W, C]. Output: [B, H/strides, W/strides, F], rounded up.

    Raises:
        ValueError: if `attention` is unknown; on a call, if F is smaller than C.
    """

    def __init__(
        self,
        filters,
        strides=1,
        attention=None,
        ratio=16,
        groups=8,
        epsilon=1e-5,
        kernel_initializer="he_normal",
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_choice("attention", attention, (None, *ATTENTION))
        self.store(locals())
        policy = {"dtype": self.dtype_policy}
        conv, norm = {"kernel_initializer": kernel_initializer}, {"epsilon": epsilon, **policy}
        self.first_conv = convolution(filters, strides, **conv, **policy, name="first_conv")
        self.first_norm = keras.layers.GroupNormalization(groups, **norm, name="first_norm")
        self.second_conv = convolution(filters, **conv, **policy, name="second_conv")
        self.second_norm = keras.layers.GroupNormalization(groups, **norm, name="second_norm")
        self.attention_layer = None
        if attention is not None:
            self.attention_layer = ATTENTION[attention](ratio, **policy, name="attention_layer")

    def build(self, input_shape):
        if input_shape[-1] > self.filters:
            raise ValueError(
                "filters must be at least the number of input channels. "
                f"Received: filters={self.filters}, input shape {tuple(input_shape)}."
            )
        shape = self.compute_output_shape(input_shape)
        self.first_conv.build((None, None, None, input_shape[-1]))  # it is padded in the call
        for layer in (self.first_norm, self.second_conv, self.second_norm, self.attention_layer):
            if layer is not None:
                layer.build(shape)

    def call(self, x):
        # Keras's "same" would shift a convolution with strides by a pixel.
        padded = x if self.strides == 1 else ops.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        outputs = ops.relu(self.first_norm(self.first_conv(padded)))
        outputs = self.second_norm(self.second_conv(outputs))
        if self.attention_layer is not None:
            outputs = self.attention_layer(outputs)
        return ops.relu(ops.add(self._shortcut(x), outputs))

    def compute_output_shape(self, input_shape):
        batch, *sides, _ = input_shape
        sides = [None if side is None else -(-side // self.strides) for side in sides]
        return (batch, *sides, self.filters)

    def _shortcut(self, x):
        if self.strides > 1:
            x = x[:, :: self.strides, :: self.strides]
        added = self.filters - x.shape[-1]
        return ops.pad(x, ((0, 0), (0, 0), (0, 0), (0, added))) if added else x


def convolution(filters, strides=1, *, kernel_initializer, **settings):
    """A convolution of 3x3 without a bias; with strides, its input is to be padded."""
    return keras.layers.Conv2D(
        filters,
        3,
        strides,
        padding="same" if strides == 1 else "valid",
        use_bias=False,
        data_format="channels_last",
        kernel_initializer=own_initializer(kernel_initializer),
        **settings,
    )
