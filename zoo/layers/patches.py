"""Images to sequences of patches.

Axes: B batch, H image height, W image width, C channels, P patch size, N = H·W/P² patches, E model
width.
"""

import keras
from keras import ops

from zoo.layers.config import ConfigMixin


@keras.saving.register_keras_serializable("zoo")
class PatchExtract(ConfigMixin, keras.layers.Layer):
    """Cuts an image into square patches, row by row.

    Source: Dosovitskiy et al. 2020, section 3.1.

    Args:
        patch_size: P, in pixels.

    Input: [B, H, W, C]; H and W are multiples of P.
    Output: [B, N, P·P·C]; in a patch the pixels run row by row, their channels last.

    Raises:
        ValueError: if `patch_size` is not positive; on a call, if it does not divide H and W.
    """

    def __init__(self, patch_size, **kwargs):
        super().__init__(**kwargs)
        if patch_size < 1:
            raise ValueError(f"patch_size must be positive. Received: patch_size={patch_size}.")
        self.store(locals())

    def call(self, images):
        patch_grid(images.shape[1:3], self.patch_size)
        batch, height, width, channels = ops.shape(images)
        if isinstance(height, int) and isinstance(width, int):
            batch = -1  # otherwise a wrong size would become more examples
        size = self.patch_size
        rows, columns = height // size, width // size
        x = ops.reshape(images, (batch, rows, size, columns, size, channels))
        x = ops.transpose(x, (0, 1, 3, 2, 4, 5))
        return ops.reshape(x, (batch, rows * columns, size * size * channels))

    def compute_output_shape(self, input_shape):
        batch, *image_size, channels = input_shape
        rows, columns = patch_grid(image_size, self.patch_size)
        patches = None if rows is None or columns is None else rows * columns
        return (batch, patches, self.patch_size**2 * channels)


@keras.saving.register_keras_serializable("zoo")
class PatchEmbed(PatchExtract):
    """Cuts an image into patches and projects each linearly to the model width.

    Source: Dosovitskiy et al. 2020, section 3.1, equation 1. The same as a convolution whose
    stride is its size; the kernel is [P·P·C, E], a convolution's [P, P, C, E] reshaped.

    Args:
        embed_dim: E.
        patch_size: P, in pixels.
        kernel_initializer: initializer of the projection's matrix.

    Input, Raises: see `PatchExtract`. Output: [B, N, E].
    """

    def __init__(self, embed_dim, patch_size, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(patch_size, **kwargs)
        self.store(locals())
        self.projection = keras.layers.Dense(
            embed_dim,
            kernel_initializer=kernel_initializer,
            dtype=self.dtype_policy,
            name="projection",
        )

    def build(self, input_shape):
        self.projection.build(super().compute_output_shape(input_shape))

    def call(self, images):
        return self.projection(super().call(images))

    def compute_output_shape(self, input_shape):
        return (*super().compute_output_shape(input_shape)[:2], self.embed_dim)


def patch_grid(image_size, patch_size):
    """(rows, columns) of patches in an image, None where unknown.

    Args:
        image_size: (height, width) in pixels; None where unknown.
        patch_size: P, in pixels.

    Raises:
        ValueError: if the patch size does not divide both.
    """
    if any(side is not None and side % patch_size for side in image_size):
        height, width = image_size
        raise ValueError(
            f"patch_size must divide the height and the width of the images. Received: images of "
            f"{height}x{width} pixels, patch_size={patch_size}. Resize or crop the images to a "
            f"multiple of {patch_size}, or change patch_size."
        )
    return tuple(None if side is None else side // patch_size for side in image_size)
