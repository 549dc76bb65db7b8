"""The Vision Transformer. Source: Dosovitskiy et al. 2020, "An Image is Worth 16x16 Words".

Axes: B batch, H image height, W image width, C channels, N patches, E model width, L layers.
"""

from typing import NamedTuple

import keras
from keras import ops

from zoo.layers.long_sequences import ENCODERS, check_attention
from zoo.layers.training import training_argument
from zoo.models.patches import ADDED, POSITIONS, PatchModel, apply


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
POOLS = ("cls", "mean", "cls+mean")


def vit(size=None, *, input_shape=(224, 224, 3), num_classes=1000, patch_size=None, **settings):
    """Builds a Vision Transformer of a published size, or of any size by hand.

    ``zoo.vit("B/16", num_classes=10)`` is ViT-B with patches of 16x16 pixels. Without a size, give
    `patch_size`, `embed_dim`, `num_heads` and `num_layers`. Other arguments override those of
    the size: ``zoo.vit("Ti/4", input_shape=(32, 32, 3), num_layers=9)``.

    Args:
        size: "Ti", "S", "B", "L" or "H", a slash and the patch size in pixels; or None.
        input_shape, num_classes, patch_size, **settings: see `zoo.models.ViT`.

    Returns:
        A built `zoo.models.ViT`.

    Raises:
        ValueError: if the size is unknown or incomplete, or if the numbers do not fit together.
    """
    if patch_size is not None:
        settings["patch_size"] = patch_size
    if size is not None:
        settings = {**_published(size, **settings), **settings}
    missing = [name for name in ("patch_size", *Size._fields[:3]) if name not in settings]
    if missing:
        raise ValueError(f"Without a size such as 'B/16', zoo.vit also needs {', '.join(missing)}.")
    model = ViT(input_shape, num_classes, **{"name": "vit", **settings})
    model.build((None, *input_shape))
    return model


def _published(size, patch_size=None, **_):
    """The settings of a size such as "B/16"."""
    name, _, pixels = str(size).partition("/")
    if name not in SIZES or not pixels.isdecimal():
        raise ValueError(
            f"Unknown size {size!r}. A size is one of {', '.join(SIZES)}, a slash and the patch "
            "size in pixels, as in 'B/16'."
        )
    if patch_size not in (None, int(pixels)):
        raise ValueError(f"The size {size!r} conflicts with patch_size={patch_size}.")
    return {"patch_size": int(pixels), **SIZES[name]._asdict()}


@keras.saving.register_keras_serializable("zoo")
class ViT(PatchModel):
    """A Vision Transformer that classifies images: patches, positions, encoder blocks, head.

    docs/published_models.md lists which published models set which of the options.

    Args:
        input_shape: (H, W, C) of the images it is trained on. It takes other sizes as well, if the
            patch size divides them: learned positions are then resized.
        num_classes: number of logits.
        patch_size: in pixels; divides H and W.
        num_layers: L, the number of encoder blocks.
        embed_dim, num_heads, ff_dim, attention_dropout, layer_scale, activation, key_dim, qkv_bias,
            epsilon: see `zoo.layers.TransformerEncoder`.
        kernel_initializer: initializer of the matrices of blocks and of the patch projection.
        dropout: rate in [0, 1) after the positions and in the blocks (Dosovitskiy et al. 2020,
            appendix B.1).
        patch_dropout: share of the patches, in [0, 1), that training leaves out of each image after
            adding the positions (Liu et al. 2022), to take less time; with learned or sinusoidal
            positions.
        pool: input of the head: "cls", the class token; "mean", the mean of the patches (Beyer et
            al. 2022); or "cls+mean", both side by side (Oquab et al. 2023, DINOv2).
        norm: "pre" or "post", where the blocks normalize; a pre-norm model also normalizes the last
            block's output, unless `normalize_pooled`.
        stochastic_depth: rate in [0, 1) of the last block; it grows linearly from 0 at the first
            (Huang et al. 2016, section 3).
        num_class_tokens: 1 by default, 0 with ``pool="mean"``. The second is a distillation token,
            which has a head of its own: with ``pool="cls"`` the logits are the mean of both heads
            (Touvron et al. 2020, DeiT, section 4).
        num_registers: register tokens (Darcet et al. 2023).
        positions: "learned"; "sinusoidal", fixed ones of rows and columns (Beyer et al. 2022);
            "relative", a learned bias on the scores of two patches for their distance in rows and
            one in columns (Raffel et al. 2019, section 2.1); or "rotary", of rows and columns (Heo
            et al. 2024, section 3.2). The last three do not concern class and register tokens.
        prefix_positions: whether class tokens have learned positions.
        interpolation: "bilinear" or "bicubic", how learned positions are resized to another image
            size.
        normalize_embeddings: whether to normalize before the first block (Radford et al. 2021).
        normalize_pooled: whether a pre-norm model normalizes the input of its head in place of the
            last block's output (He et al. 2021, MAE, fine-tuned).
        attention: "softmax"; "blockwise", which computes the same in less memory; or "linear",
            which excludes relative positions: see `zoo.layers.BlockwiseSelfAttention` and
            `zoo.layers.LinearSelfAttention`.
        representation_dim: if given, the width of a layer with tanh before the head, as in
            pre-training (Dosovitskiy et al. 2020, section 3.1).

    Input: images [B, H, W, C], floating point, already normalized.

    Output: logits [B, num_classes].

    Raises:
        ValueError: if the numbers do not fit together, or a name is unknown.
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
        num_class_tokens=None,
        num_registers=0,
        positions="learned",
        prefix_positions=True,
        interpolation="bicubic",
        activation="gelu",
        key_dim=None,
        qkv_bias=True,
        normalize_embeddings=False,
        normalize_pooled=False,
        epsilon=1e-6,
        kernel_initializer="glorot_uniform",
        attention="softmax",
        representation_dim=None,
        patch_dropout=0.0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.store(locals())
        self.input_shape = tuple(input_shape)
        default = int(pool != "mean")
        self.num_prefix_tokens = default if num_class_tokens is None else num_class_tokens
        self._check()
        self._create_layers()

    def _create_layers(self):
        self.create_embedding()
        rate, last = self.stochastic_depth, self.num_layers - 1
        rates = [rate * index / last for index in range(last)] + [rate]
        self.encoder_blocks = [
            self.block(ENCODERS[self.attention], f"encoder_{index}", stochastic_depth=rate)
            for index, rate in enumerate(rates)
        ]
        pre = self.norm == "pre"
        self.encoder_norm = self.norm_layer("encoder_norm", pre and not self.normalize_pooled)
        self.head_norm = self.norm_layer("head_norm", pre and self.normalize_pooled)
        self.representation = None
        if self.representation_dim:
            settings = {"kernel_initializer": self.kernel_initializer}
            arguments = (self.representation_dim, "tanh")
            self.representation = self.layer(
                keras.layers.Dense, "representation", *arguments, **settings
            )
        self.head = self._head("head")
        distilled = self.pool == "cls" and self.num_prefix_tokens == 2
        self.distillation_head = self._head("distillation_head") if distilled else None

    def build(self, input_shape):
        tokens = (None, None, self.embed_dim)
        pooled = (None, self.embed_dim * (2 if self.pool == "cls+mean" else 1))
        if self.head_norm is not None:
            self.head_norm.build(pooled)
        self.build_embedding(input_shape)
        for layer in filter(None, (*self.encoder_blocks, self.encoder_norm)):
            layer.build(tokens)
        if self.representation is not None:
            self.representation.build(pooled)
            pooled = (None, self.representation_dim)
        for layer in filter(None, (self.head, self.distillation_head)):
            layer.build(pooled)

    def call(self, images, training=None):
        pooled = self._pooled(images, training)
        logits = self.head(pooled[:, 0])
        if self.distillation_head is not None:
            logits = (logits + self.distillation_head(pooled[:, 1])) / 2
        return logits

    def pooled_features(self, images, training=None):
        """The input of the head: [B, E]; with ``pool="cls+mean"``, [B, 2E]; with a
        `representation_dim`, [B, `representation_dim`].
        """
        return self._pooled(images, training)[:, 0]

    def features(self, images, training=None):
        """The last block's output (see `norm`) without registers: [B, class tokens + N, E]."""
        x, prefix = self._tokens(images, training), self.num_prefix_tokens
        parts = [x[:, :prefix], x[:, prefix + self.num_registers :]]
        return ops.concatenate(parts, axis=1) if self.num_registers else x

    def attention_maps(self, images):
        """The attention weights of each token over all: [B, L, heads, T, T].

        T = class tokens + registers + N, in this order.
        """
        x, maps = self.embed(images), []
        settings = self.position_arguments(self.grid(images.shape))
        for block in self.encoder_blocks:
            maps.append(block.attention_weights(x, **settings))
            x = block(x, **settings)
        return ops.stack(maps, axis=1)

    def input_signature(self):
        return keras.layers.InputSpec(dtype="float32", shape=(None, *self.input_shape))

    def compute_output_shape(self, input_shape):
        self.grid(input_shape)
        return (input_shape[0], self.num_classes)

    def _tokens(self, images, training, count=None):
        """The last block's output (see `norm`) for the first `count` tokens; for all by default."""
        x = self.embed(images, training)
        settings = self.position_arguments(self.grid(images.shape))
        *blocks, last = self.encoder_blocks
        for block in blocks:
            x = block(x, **settings, **training_argument(training))
        if count is None:
            x = last(x, **settings, **training_argument(training))
        else:
            x = last.first_tokens(x, count, **settings, training=training)
        return apply(self.encoder_norm, x)

    def _pooled(self, images, training):
        """The input of each head: [B, 1 or 2, width of the heads]."""
        if self.pool == "cls":
            pooled = self._tokens(images, training, self.num_prefix_tokens)
        else:
            x = self._tokens(images, training)
            patches = x[:, self.num_prefix_tokens + self.num_registers :]
            pooled = ops.mean(patches, axis=1, keepdims=True)
            if self.pool == "cls+mean":
                pooled = ops.concatenate([x[:, :1], pooled], axis=-1)
        return apply(self.representation, apply(self.head_norm, pooled))

    def _head(self, name):
        return keras.layers.Dense(
            self.num_classes,
            kernel_initializer=keras.initializers.TruncatedNormal(stddev=0.02),
            dtype=self.variable_dtype,  # logits of a mixed precision model are in full precision
            name=name,
        )

    def _check(self):
        if self.pool not in POOLS:
            raise ValueError(f"pool must be one of {POOLS}. Received: pool={self.pool!r}.")
        if self.positions not in POSITIONS:
            raise ValueError(
                f"positions must be one of {POSITIONS}. Received: positions={self.positions!r}."
            )
        check_attention(self.attention, self.positions)
        if self.patch_dropout and self.positions not in ADDED:
            raise ValueError(
                f"patch_dropout needs positions to be one of {ADDED}. Received: "
                f"patch_dropout={self.patch_dropout}, positions={self.positions!r}."
            )
        if len(self.input_shape) != 3 or None in self.input_shape:
            raise ValueError(f"Images must be (H, W, C). Received: input_shape={self.input_shape}.")
        if self.num_layers < 1 or self.num_classes < 1:
            raise ValueError(
                "num_layers and num_classes must be at least 1. "
                f"Received: num_layers={self.num_layers}, num_classes={self.num_classes}."
            )
        if self.num_prefix_tokens not in ((0, 1, 2) if self.pool == "mean" else (1, 2)):
            raise ValueError(
                "num_class_tokens must be 1 or 2, or 0 with pool='mean'. "
                f"Received: num_class_tokens={self.num_class_tokens}, pool={self.pool!r}."
            )
