"""A residual convolutional network for small images, with attention to channels and positions.

Source: He et al. 2015, "Deep Residual Learning for Image Recognition", section 4.2.

Axes: B batch, H image height, W image width, C channels, F filters of the last stage.
"""

import keras
from keras import ops

from zoo.errors import check_at_least_1
from zoo.layers.residual_block import ResidualBlock, convolution
from zoo.models.base import ZooModel, check_image_shape, default_arguments

_STAGES = 3


def resnet(*, input_shape=(32, 32, 3), num_classes=10, **settings):
    """Builds a `zoo.models.ResNet`; ResNet-20 for CIFAR by default.

    Args:
        input_shape, num_classes, **settings: see `zoo.models.ResNet`.

    Returns:
        A built `zoo.models.ResNet`.
    """
    model = ResNet(input_shape, num_classes, **{"name": "resnet", **settings})
    model.build((None, *input_shape))
    return model


@keras.saving.register_keras_serializable("zoo")
class ResNet(ZooModel):
    """A residual network of 6n+2 layers that classifies small images.

    A convolution, three stages of n blocks and a linear layer on the mean of all positions. The
    second and third stage halve the sides of the image and double the filters. See
    `zoo.layers.ResidualBlock` for the differences from the paper.

    Args:
        input_shape: (H, W, C) of the images it is trained on. It takes other sizes as well.
        num_classes: number of logits.
        blocks_per_stage: n; the paper has networks with 3, 5, 7, 9 and 18.
        width: filters of the first stage.
        **kwargs: `attention`, `ratio`, `groups`, `epsilon` and `kernel_initializer`, which
            `zoo.layers.ResidualBlock` describes.

    Input: images [B, H, W, C], floating point, already normalized.

    Output: logits [B, num_classes].

    Raises:
        ValueError: if a number is not positive, `groups` does not divide `width`, or `attention` is
            unknown.
    """

    block_defaults = default_arguments(ResidualBlock, without=("filters", "strides"))

    def __init__(self, input_shape, num_classes, blocks_per_stage=3, width=16, **kwargs):
        super().__init__(**kwargs)
        self.store(locals())
        self.input_shape = tuple(input_shape)
        self._check()
        initializer = {"kernel_initializer": self.kernel_initializer}
        self.stem_conv = self.layer(convolution, "stem_conv", self.width, **initializer)
        self.stem_norm = self.layer(
            keras.layers.GroupNormalization, "stem_norm", self.groups, epsilon=self.epsilon
        )
        self.residual_blocks = [
            self.block(
                ResidualBlock,
                f"residual_{index}",
                filters=width * 2 ** (index // blocks_per_stage),
                strides=2 if index and index % blocks_per_stage == 0 else 1,
            )
            for index in range(_STAGES * blocks_per_stage)
        ]
        self.head = keras.layers.Dense(self.num_classes, dtype=self.variable_dtype, name="head")

    def build(self, input_shape):
        shape = input_shape
        for layer in (self.stem_conv, self.stem_norm, *self.residual_blocks):
            layer.build(shape)
            shape = layer.compute_output_shape(shape)
        self.head.build((None, shape[-1]))

    def call(self, images, training=None):
        return self.head(self.pooled_features(images))

    def pooled_features(self, images):
        """The input of the head: [B, F]."""
        x = ops.relu(self.stem_norm(self.stem_conv(images)))
        for block in self.residual_blocks:
            x = block(x)
        return ops.mean(ops.cast(x, self.variable_dtype), axis=(1, 2))

    def _check(self):
        check_image_shape(self.input_shape)
        check_at_least_1(
            num_classes=self.num_classes,
            blocks_per_stage=self.blocks_per_stage,
            width=self.width,
            groups=self.groups,
        )
        if self.width % self.groups:
            raise ValueError(
                f"groups must divide width. Received: groups={self.groups}, width={self.width}."
            )
