"""Images to sequences of patches, and learned tokens beside them.

Axes: B batch, H image height, W image width, C channels, P patch size, N = H·W/P² patches, E model
width.
"""

from numbers import Integral

import keras
from keras import ops

from zoo.errors import check_at_least_1
from zoo.layers.config import ConfigMixin
from zoo.layers.shapes import shape_for_reshape


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
        check_at_least_1(patch_size=patch_size)
        self.patch_size = patch_size

    def call(self, images):
        patch_grid(images.shape[1:3], self.patch_size)
        batch, height, width, channels = shape_for_reshape(images)
        size = self.patch_size
        rows = height // size
        columns = width // size
        x = ops.reshape(images, (batch, rows, size, columns, size, channels))
        x = ops.transpose(x, (0, 1, 3, 2, 4, 5))  # [B, rows, columns, P, P, C]
        return ops.reshape(x, (batch, rows * columns, size * size * channels))  # [B, N, P·P·C]

    def compute_output_shape(self, input_shape):
        batch, *image_size, channels = input_shape
        rows, columns = patch_grid(image_size, self.patch_size)
        patches = None
        if rows is not None and columns is not None:
            patches = rows * columns
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
        self.embed_dim = embed_dim
        self.kernel_initializer = kernel_initializer
        self.projection = keras.layers.Dense(
            embed_dim,
            kernel_initializer=kernel_initializer,
            dtype=self.dtype_policy,
            name="projection",
        )

    def build(self, input_shape):
        self.projection.build(super().compute_output_shape(input_shape))

    def call(self, images):
        patches = super().call(images)  # [B, N, P·P·C]
        return self.projection(patches)  # [B, N, E]

    def compute_output_shape(self, input_shape):
        batch, patches, _ = super().compute_output_shape(input_shape)
        return (batch, patches, self.embed_dim)


@keras.saving.register_keras_serializable("zoo")
class PatchDropout(ConfigMixin, keras.layers.Layer):
    """Drops random patches of each image in training, for faster steps.

    Source: Liu et al. 2022, "PatchDropout: Economizing Vision Transformers Using Patch Dropout",
    section 3. Patches are removed after their positions are added, and nothing is scaled.

    Args:
        rate: share of the patches to remove, in [0, 1); the same number for every image, and at
            least one patch stays.
        num_prefix_tokens: number of tokens, such as CLS, before the patches; they all stay.
        seed: seed of the random numbers.

    Input: [B, prefix tokens + N, E].
    Output: the input; in training [B, prefix tokens + kept patches, E], in random order.

    Raises:
        ValueError: if `rate` is not in [0, 1); on a call in training, if the number of patches is
            unknown.
    """

    def __init__(self, rate, num_prefix_tokens=0, seed=None, **kwargs):
        super().__init__(**kwargs)
        if not 0 <= rate < 1:
            raise ValueError(f"rate must be at least 0 and less than 1. Received: rate={rate}.")
        self.rate = rate
        self.num_prefix_tokens = num_prefix_tokens
        self.seed = seed
        if rate > 0:
            self.seed_generator = keras.random.SeedGenerator(seed)

    def call(self, x, training=False):
        if not training or self.rate == 0:
            return x
        prefix = self.num_prefix_tokens
        _, length, width = x.shape
        if length is None:
            raise ValueError(
                "PatchDropout needs a known number of patches in training. Received: tokens of "
                f"shape {tuple(x.shape)}, num_prefix_tokens={prefix}."
            )
        patches = length - prefix
        if patches <= 0:
            return x
        batch = ops.shape(x)[0]
        count = max(1, round((1 - self.rate) * patches))
        scores = keras.random.uniform((batch, patches), seed=self.seed_generator)
        _, kept = ops.top_k(scores, count, sorted=False)  # [B, count]
        rows = ops.reshape(x, (-1, width))  # [B·T, E]
        first_row = ops.arange(batch, dtype="int32")[:, None] * length  # of each example
        kept = ops.take(rows, first_row + prefix + kept, axis=0)  # [B, count, E]
        if prefix == 0:
            return kept
        return ops.concatenate([x[:, :prefix], kept], axis=1)

    def compute_output_shape(self, input_shape):
        return input_shape


@keras.saving.register_keras_serializable("zoo")
class ClassToken(ConfigMixin, keras.layers.Layer):
    """Prepends a learned token, CLS, whose output represents the whole sequence.

    Sources: Devlin et al. 2018, section 3; Dosovitskiy et al. 2020, section 3.1, equation 1. It
    starts at zero, as in the latter's code.

    Args:
        num_tokens: R; 2 for a class and a distillation token (Touvron et al. 2020, section 4).
        initializer: initializer of the tokens.

    Input: [B, T, E]. Output: [B, R + T, E].
    """

    num_prefix_tokens = 0  # how many tokens stay before these

    def __init__(self, num_tokens=1, initializer="zeros", **kwargs):
        super().__init__(**kwargs)
        self.num_tokens = num_tokens
        self.initializer = initializer

    def build(self, input_shape):
        shape = (self.num_tokens, input_shape[-1])
        self.tokens = self.add_weight(shape, self.initializer, name="tokens")

    def call(self, x):
        batch = ops.shape(x)[0]
        tokens = ops.cast(self.tokens, x.dtype)
        tokens = ops.broadcast_to(tokens, (batch, *tokens.shape))  # [B, R, E]
        prefix = self.num_prefix_tokens
        if prefix == 0:
            return ops.concatenate([tokens, x], axis=1)
        return ops.concatenate([x[:, :prefix], tokens, x[:, prefix:]], axis=1)

    def compute_output_shape(self, input_shape):
        batch, length, width = input_shape
        if length is not None:
            length += self.num_tokens
        return (batch, length, width)


@keras.saving.register_keras_serializable("zoo")
class RegisterTokens(ClassToken):
    """Inserts learned tokens that a model computes with, and whose outputs are discarded.

    They have no positions. Source: Darcet et al. 2023, "Vision Transformers Need Registers",
    section 2.2.

    Args:
        num_tokens: R.
        num_prefix_tokens: number of tokens, such as CLS, that stay before the registers.
        initializer: initializer of the tokens; a truncated normal distribution by default.

    Input: [B, T, E]. Output: [B, T + R, E].
    """

    def __init__(self, num_tokens, num_prefix_tokens=0, initializer=None, **kwargs):
        if initializer is None:
            initializer = keras.initializers.TruncatedNormal(stddev=0.02)
        super().__init__(num_tokens, initializer, **kwargs)
        self.num_prefix_tokens = num_prefix_tokens


def image_size(images):
    """Returns (height, width) of images [B, H, W, C].

    They are ints, or scalar tensors if they are known only when a graph runs.
    """
    size = tuple(images.shape[1:3])
    if None in size:
        return ops.shape(images)[1:3]
    return size


def patch_grid(image_size, patch_size):
    """(rows, columns) of patches in an image, None where unknown.

    Args:
        image_size: (height, width) in pixels, see `image_size`; None where unknown.
        patch_size: P, in pixels.

    Raises:
        ValueError: if the patch size does not divide a known side.
    """
    if any(isinstance(side, Integral) and side % patch_size for side in image_size):
        height, width = image_size
        raise ValueError(
            "patch_size must divide the height and the width of the images. Received: images of "
            f"{height}x{width} pixels, patch_size={patch_size}. Resize or crop the images to a "
            f"multiple of {patch_size}, or change patch_size."
        )
    return tuple(None if side is None else side // patch_size for side in image_size)
