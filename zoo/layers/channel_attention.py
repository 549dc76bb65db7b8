"""Attention of convolutional networks to channels and to positions.

Axes: B batch, H image height, W image width, C channels.
"""

import keras
from keras import ops

from zoo.compat import maximum
from zoo.errors import check_at_least_1
from zoo.layers.config import SameShapeLayer


@keras.saving.register_keras_serializable("zoo")
class SqueezeExcite(SameShapeLayer):
    """Multiplies each channel by a weight in (0, 1), computed from the means of all channels.

    Source: Hu et al. 2017, "Squeeze-and-Excitation Networks", section 3. Without biases, as in the
    paper, it has 2·C²/ratio parameters.

    Args:
        ratio: the hidden layer has ``C // ratio`` units, at least one.
        use_bias: whether the linear layers have biases, as in most published weights.

    Input: [B, H, W, C]. Output: the same shape.

    Raises:
        ValueError: if `ratio` is not positive.
    """

    pools = (ops.mean,)  # functions that pool over all positions

    def __init__(self, ratio=16, use_bias=False, **kwargs):
        super().__init__(**kwargs)
        check_at_least_1(ratio=ratio)
        self.ratio = ratio
        self.use_bias = use_bias
        self.input_spec = keras.layers.InputSpec(ndim=4)

    def build(self, input_shape):
        channels = input_shape[-1]
        units = max(1, channels // self.ratio)
        self.hidden = keras.layers.Dense(
            units, "relu", use_bias=self.use_bias, dtype=self.dtype_policy, name="hidden"
        )
        self.hidden.build((None, channels))
        self.output_projection = keras.layers.Dense(
            channels, use_bias=self.use_bias, dtype=self.dtype_policy, name="output_projection"
        )
        self.output_projection.build((None, units))

    def call(self, x):
        return x * self.channel_weights(x)[:, None, None]

    def channel_weights(self, x):
        """The weight of each channel: [B, C]."""
        scores = 0.0
        for pool in self.pools:
            pooled = pool(x, axis=(1, 2))  # [B, C]
            scores += self.output_projection(self.hidden(pooled))
        return ops.sigmoid(scores)


@keras.saving.register_keras_serializable("zoo")
class ConvBlockAttention(SqueezeExcite):
    """CBAM: multiplies each channel, and then each position, by a weight in (0, 1).

    The weights of channels are computed from the mean and the maximum of each channel, by the same
    two linear layers. The weights of positions are computed by a convolution, from the mean and the
    maximum over the channels. Without biases, as in the paper, it has
    2·C²/ratio + 2·kernel_size² parameters.
    Source: Woo et al. 2018, "CBAM: Convolutional Block Attention Module", section 3.

    Args:
        ratio: see `SqueezeExcite`.
        kernel_size: side of the convolution's kernel.
        use_bias: whether the linear layers and the convolution have biases.

    Input: [B, H, W, C]. Output: the same shape.

    Raises:
        ValueError: if `ratio` or `kernel_size` is not positive.
    """

    pools = (ops.mean, maximum)

    def __init__(self, ratio=16, kernel_size=7, use_bias=False, **kwargs):
        super().__init__(ratio, use_bias, **kwargs)
        check_at_least_1(kernel_size=kernel_size)
        self.kernel_size = kernel_size

    def build(self, input_shape):
        super().build(input_shape)
        self.spatial = keras.layers.Conv2D(
            1,
            self.kernel_size,
            padding="same",
            use_bias=self.use_bias,
            data_format="channels_last",
            dtype=self.dtype_policy,
            name="spatial",
        )
        self.spatial.build((*input_shape[:-1], 2))

    def call(self, x):
        x = super().call(x)
        return x * self.spatial_weights(x)

    def spatial_weights(self, x):
        """The weight of each position of images whose channels are weighted: [B, H, W, 1]."""
        pooled = [pool(x, axis=-1, keepdims=True) for pool in self.pools]
        scores = self.spatial(ops.concatenate(pooled, axis=-1))
        # For an empty batch, TensorFlow's convolution returns the channels of its input.
        return ops.sigmoid(scores[..., :1])
