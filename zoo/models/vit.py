"""The Vision Transformer. Source: Dosovitskiy et al. 2020, "An Image is Worth 16x16 Words".

Axes: B batch, H image height, W image width, C channels, N patches, E model width, L layers.
"""

from typing import NamedTuple

import keras
from keras import ops

from zoo.layers import (
    ClassToken,
    LearnedPositions,
    PatchEmbed,
    RegisterTokens,
    TransformerEncoder,
    patch_grid,
)
from zoo.layers.config import ConfigMixin


class Size(NamedTuple):
    embed_dim: int
    num_layers: int
    num_heads: int
    ff_dim: int


SIZES = {
    "Ti": Size(192, 12, 3, 768),  # Touvron et al. 2020 (DeiT), table 1
    "S": Size(384, 12, 6, 1536),  # Touvron et al. 2020 (DeiT), table 1
    "B": Size(768, 12, 12, 3072),  # Dosovitskiy et al. 2020, table 1, as are L and H
    "L": Size(1024, 24, 16, 4096),
    "H": Size(1280, 32, 16, 5120),
}
POOLS = ("cls", "mean")


def vit(size=None, *, input_shape=(224, 224, 3), num_classes=1000, patch_size=None, **settings):
    """Builds a Vision Transformer of a published size, or of any size by hand.

    ``zoo.vit("B/16", num_classes=10)`` is ViT-B with patches of 16x16 pixels. Without a size, give
    `patch_size`, `embed_dim`, `num_heads` and `num_layers`. What is given beside a size takes its
    place: ``zoo.vit("Ti/4", input_shape=(32, 32, 3), num_layers=9)``.

    Args:
        size: "Ti", "S", "B", "L" or "H", a slash and the patch size in pixels; or None.
        input_shape: (H, W, C) of the images. The model takes other sizes than H and W as well, if
            the patch size divides them: its positions are then resized.
        num_classes: number of logits.
        patch_size: in pixels; divides H and W.
        **settings: see `zoo.models.ViT`.

    Returns:
        A built `zoo.models.ViT`.

    Raises:
        ValueError: if the size is unknown or incomplete, or if the numbers do not fit together.
    """
    if size is not None:
        settings = {**_published(size, patch_size), **settings}
        patch_size = settings.pop("patch_size")
    missing = [name for name in Size._fields[:3] if name not in settings]
    missing = ["patch_size", *missing] if patch_size is None else missing
    if missing:
        raise ValueError(f"Without a size such as 'B/16', zoo.vit also needs {', '.join(missing)}.")
    model = ViT(input_shape, num_classes, patch_size, **{"name": "vit", **settings})
    model.build((None, *input_shape))
    return model


def _published(size, patch_size):
    """The settings of a size such as "B/16"."""
    name, _, pixels = str(size).partition("/")
    if name not in SIZES or not pixels.isdecimal():
        raise ValueError(
            f"Unknown size {size!r}. A size is one of {', '.join(SIZES)}, a slash and the patch "
            f"size in pixels, as in 'B/16'."
        )
    if patch_size not in (None, int(pixels)):
        raise ValueError(f"The size {size!r} says another patch size than patch_size={patch_size}.")
    return {"patch_size": int(pixels), **SIZES[name]._asdict()}


@keras.saving.register_keras_serializable("zoo")
class ViT(ConfigMixin, keras.Model):
    """A Vision Transformer that classifies images: patches, positions, encoder blocks, head.

    Args:
        input_shape: (H, W, C) of the images it is trained on.
        num_classes: number of logits.
        patch_size: in pixels; divides H and W.
        embed_dim: E.
        num_heads: attention heads; they divide E.
        num_layers: L, the number of encoder blocks.
        ff_dim: hidden width of the feed-forward networks; ``4 * embed_dim`` by default.
        dropout: rate in [0, 1) after the positions and in the blocks (Dosovitskiy et al. 2020,
            appendix B.1).
        attention_dropout: rate in [0, 1) on attention weights.
        pool: what the head sees: "cls", the class token, or "mean", the mean of the patches; a
            model that takes the mean has no class token (Zhai et al. 2021).
        norm: "pre" or "post", where the blocks normalize; a pre-norm model also normalizes the last
            block's output.
        stochastic_depth: rate in [0, 1) of the last block; it grows linearly from 0 at the first
            (Huang et al. 2016, section 3).
        layer_scale: start of the learned scale in each residual branch; none by default (Touvron et
            al. 2021).
        num_registers: register tokens that the model computes with (Darcet et al. 2023).
        interpolation: "bilinear" or "bicubic", how positions are resized to another image size.

    Input: images [B, H, W, C], floating point, already normalised.

    Output: logits [B, num_classes].

    Raises:
        ValueError: if the numbers do not fit together, or `pool` or `norm` is unknown.
    """

    def __init__(
        self,
        input_shape,
        num_classes,
        patch_size,
        embed_dim,
        num_heads,
        num_layers,
        ff_dim=None,
        dropout=0.0,
        attention_dropout=0.0,
        pool="cls",
        norm="pre",
        stochastic_depth=0.0,
        layer_scale=None,
        num_registers=0,
        interpolation="bicubic",
        **kwargs,
    ):
        super().__init__(**kwargs)
        if pool not in POOLS:
            raise ValueError(f"pool must be one of {POOLS}. Received: pool={pool!r}.")
        if num_layers < 1 or num_classes < 1:
            raise ValueError(
                "num_layers and num_classes must be at least 1. "
                f"Received: num_layers={num_layers}, num_classes={num_classes}."
            )
        self.input_shape = tuple(input_shape)
        self.num_classes = num_classes
        self.patch_size = patch_size
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.num_layers = num_layers
        self.ff_dim = ff_dim
        self.dropout = dropout
        self.attention_dropout = attention_dropout
        self.pool = pool
        self.norm = norm
        self.stochastic_depth = stochastic_depth
        self.layer_scale = layer_scale
        self.num_registers = num_registers
        self.interpolation = interpolation

        policy = self.dtype_policy
        self.patch_embed = PatchEmbed(embed_dim, patch_size, dtype=policy, name="patch_embed")
        if pool == "cls":
            self.class_token = ClassToken(dtype=policy, name="class_token")
        self.positions = LearnedPositions(
            patch_grid(input_shape[:2], patch_size),
            num_prefix_tokens=self._num_prefix_tokens,
            interpolation=interpolation,
            dtype=policy,
            name="positions",
        )
        self._dropout = keras.layers.Dropout(dropout, dtype=policy)
        if num_registers:
            self.registers = RegisterTokens(num_registers, dtype=policy, name="registers")
        self.blocks = [self._block(index) for index in range(num_layers)]
        if norm == "pre":
            self.normalization = keras.layers.LayerNormalization(
                epsilon=1e-6, dtype=policy, name="normalization"
            )
        self.head = keras.layers.Dense(
            num_classes,
            kernel_initializer=keras.initializers.TruncatedNormal(stddev=0.02),
            dtype=policy.variable_dtype,  # logits of a mixed precision model are in full precision
            name="head",
        )

    def build(self, input_shape):
        stack = [self.patch_embed, self.positions, self._dropout, *self.blocks]
        if self.pool == "cls":
            stack.insert(1, self.class_token)
        if self.num_registers:
            stack.insert(-self.num_layers, self.registers)
        shape = input_shape
        for layer in stack:
            layer.build(shape)
            shape = layer.compute_output_shape(shape)
        if self.norm == "pre":
            self.normalization.build(shape)
        self.head.build((None, self.embed_dim))

    def call(self, images, training=None):
        # `training` reaches the layers by itself, but Keras sets it only for a model that takes it
        if self.pool == "mean":
            return self.head(ops.mean(self.features(images), axis=1))
        x = self._tokens(images)
        for block in self.blocks[:-1]:
            x = block(x)
        # The head reads CLS alone, so the last block need not compute the other tokens.
        x = self.blocks[-1](x, num_queries=1)
        return self.head(self._normalized(x)[:, 0])

    def features(self, images):
        """The last block's tokens, normalized: [B, 1 + N, E], CLS first; [B, N, E] without CLS."""
        x = self._tokens(images)
        for block in self.blocks:
            x = block(x)
        x = self._normalized(x)
        return x[:, : -self.num_registers] if self.num_registers else x

    def attention_maps(self, images):
        """What each token takes from each other one, in every layer and head.

        Returns:
            [B, L, heads, T, T] with T = 1 + N + registers (no 1 without CLS), in this order.
        """
        x = self._tokens(images)
        maps = []
        for block in self.blocks:
            maps.append(block.attention_weights(x))
            x = block(x)
        return ops.stack(maps, axis=1)

    def attention_rollout(self, images):
        """How much of each patch reaches the output: [B, rows, columns]; see `rollout`."""
        grid = patch_grid(images.shape[1:3], self.patch_size)
        return rollout(self.attention_maps(images), grid, self.pool == "cls")

    def _tokens(self, images):
        """What the first block sees."""
        if None in images.shape[1:3]:
            raise ValueError(
                "The height and the width of the images must be known when a graph is made of the "
                f"model, for instance {self.input_shape}. Received: images of {images.shape}."
            )
        grid = patch_grid(images.shape[1:3], self.patch_size)
        x = self.patch_embed(images)
        if self.pool == "cls":
            x = self.class_token(x)
        x = self._dropout(self.positions(x, grid=grid))
        return self.registers(x) if self.num_registers else x

    def _normalized(self, x):
        return self.normalization(x) if self.norm == "pre" else x

    @property
    def _num_prefix_tokens(self):
        return 1 if self.pool == "cls" else 0

    def _block(self, index):
        return TransformerEncoder(
            self.embed_dim,
            self.num_heads,
            self.ff_dim,
            self.dropout,
            self.attention_dropout,
            self.norm,
            self.stochastic_depth * index / max(1, self.num_layers - 1),
            self.layer_scale,
            dtype=self.dtype_policy,
            name=f"block_{index}",
        )


def rollout(maps, grid, has_class_token):
    """How much of each patch reaches the output, attention being followed through all layers.

    Source: Abnar and Zuidema 2020, "Quantifying Attention Flow in Transformers", section 3.

    Args:
        maps: [B, L, heads, T, T], from `ViT.attention_maps`.
        grid: (rows, columns) of the patches.
        has_class_token: whether the first token is the one the head reads; else it reads the mean.

    Returns:
        float32 [B, rows, columns].
    """
    layers = ops.mean(ops.cast(maps, "float32"), axis=2)
    layers = 0.5 * layers + 0.5 * ops.eye(layers.shape[-1], dtype="float32")
    flow = layers[:, 0]
    for layer in range(1, layers.shape[1]):
        flow = ops.matmul(layers[:, layer], flow)
    first = 1 if has_class_token else 0
    patches = slice(first, first + grid[0] * grid[1])
    if has_class_token:
        reaching = flow[:, 0, patches]
    else:
        reaching = ops.mean(flow[:, patches, patches], axis=1)
    return ops.reshape(reaching, (-1, *grid))
