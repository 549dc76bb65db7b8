"""The Vision Transformer. Source: Dosovitskiy et al. 2020, "An Image is Worth 16x16 Words".

Axes: B batch, H image height, W image width, C channels, N patches, T tokens, E width, L layers.
"""

from typing import Any, NamedTuple

import keras
from keras import ops

from zoo import compat, layers
from zoo.errors import check_at_least_1, check_choice
from zoo.layers.multi_head_attention import head_width
from zoo.models import base

SIZES = {
    # Touvron et al. 2020 (DeiT), table 1
    "Ti": {"embed_dim": 192, "num_layers": 12, "num_heads": 3, "ff_dim": 768},
    "S": {"embed_dim": 384, "num_layers": 12, "num_heads": 6, "ff_dim": 1536},
    # Dosovitskiy et al. 2020, table 1
    "B": {"embed_dim": 768, "num_layers": 12, "num_heads": 12, "ff_dim": 3072},
    "L": {"embed_dim": 1024, "num_layers": 24, "num_heads": 16, "ff_dim": 4096},
    "H": {"embed_dim": 1280, "num_layers": 32, "num_heads": 16, "ff_dim": 5120},
}
POOLS = ("cls", "mean", "cls+mean")
POSITIONS = ("learned", "sinusoidal", *base.POSITIONS_IN_ATTENTION)
# Heo et al. 2024, "Rotary Position Embedding for Vision Transformer", section 3.2: the square root
# of that of texts, because an axis has √N positions for N patches
ROTARY_MAX_WAVELENGTH = 100.0


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
        ValueError: if the size is unknown or incomplete, or if arguments are inconsistent.
    """
    pixels = str(size).rpartition("/")[2]
    pixels = int(pixels) if pixels.isdecimal() else 16
    sizes = {f"{name}/{pixels}": {**row, "patch_size": pixels} for name, row in SIZES.items()}
    if size in sizes and patch_size not in (None, pixels):
        raise ValueError(f"The size {size!r} conflicts with patch_size={patch_size}.")
    if patch_size is not None:
        settings["patch_size"] = patch_size
    required = ("patch_size", "embed_dim", "num_layers", "num_heads")
    settings = base.arguments_of_size("vit", size, sizes, settings, required)
    model = ViT(input_shape, num_classes, **settings)
    model.build((None, *input_shape))
    return model


class _Outputs(NamedTuple):
    tokens: Any  # [B, T, E]
    pooled: Any  # inputs of the heads: [B, 1 or 2, width]
    logits: Any  # [B, num_classes]


@keras.saving.register_keras_serializable("zoo")
class ViT(base.TransformerModel):
    """A Vision Transformer that classifies images: patches, positions, encoder blocks, head.

    docs/published_models.md lists which published models set which of the options.

    Args:
        input_shape: (H, W, C) of the images it is trained on. It takes other sizes as well, if the
            patch size divides them: learned positions are then resized. In graphs of TensorFlow,
            sizes may be unknown, such as ``keras.Input((None, None, 3))``.
        num_classes: number of logits; 0 for a model without a head, which returns features.
        patch_size: in pixels; divides H and W.
        num_layers: L, the number of encoder blocks.
        pool: input of the head: "cls", the class token; "mean", the mean of the patches (Beyer et
            al. 2022); or "cls+mean", both side by side (Oquab et al. 2023, DINOv2).
        num_class_tokens: 1 by default, 0 with ``pool="mean"``. The second is a distillation token,
            which has a head of its own: with ``pool="cls"`` the logits are the mean of both heads
            (Touvron et al. 2020, DeiT, section 4).
        num_registers: register tokens (Darcet et al. 2023).
        positions: "learned"; "sinusoidal", fixed ones of rows and columns (Beyer et al. 2022);
            "relative", a learned bias on the scores of two patches for their distance in rows and
            one in columns (Raffel et al. 2019, section 2.1); or "rotary", of rows and columns (Heo
            et al. 2024, section 3.2). The last three do not concern class and register tokens.
        prefix_positions: whether class tokens have learned positions.
        interpolation: "bilinear" or "bicubic", how learned positions are resized.
        normalize_embeddings: whether to normalize before the first block (Radford et al. 2021).
        normalize_pooled: whether a pre-norm model normalizes the input of its head in place of the
            last block's output (He et al. 2021, MAE, fine-tuned).
        representation_dim: if given, the width of a layer with tanh before the head, as in
            pre-training (Dosovitskiy et al. 2020, section 3.1).
        patch_dropout: share of the patches, in [0, 1), that training leaves out of each image (Liu
            et al. 2022), to take less time; with learned or sinusoidal positions.
        remat: see `zoo.models.base.TransformerModel`.
        **kwargs: `embed_dim`, `num_heads` and the other arguments in `block_defaults`, which
            `zoo.layers.TransformerEncoder` describes. `dropout` is applied to the embedded patches
            as well (Dosovitskiy et al. 2020, appendix B.1). `kernel_initializer` is also that of
            the patch projection. `stochastic_depth` is the rate of the last block; it grows
            linearly from 0 at the first (Huang et al. 2016, section 3).

    Input: images [B, H, W, C], floating point, already normalized.

    Output: logits [B, num_classes]; without a head [B, E], `pooled_features` (the mean of both with
        a distillation token).

    Raises:
        ValueError: if arguments are inconsistent, or a name is unknown.
    """

    block_defaults = {
        **base.TransformerModel.block_defaults,
        "stochastic_depth": 0.0,
        "layer_scale": None,
        "attention": "softmax",
    }

    def __init__(
        self,
        input_shape,
        num_classes,
        patch_size,
        num_layers,
        pool="cls",
        num_class_tokens=None,
        num_registers=0,
        positions="learned",
        prefix_positions=True,
        interpolation="bicubic",
        normalize_embeddings=False,
        normalize_pooled=False,
        representation_dim=None,
        patch_dropout=0.0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.store(locals())
        self.input_shape = tuple(input_shape)
        default = 0 if pool == "mean" else 1
        self.num_prefix_tokens = default if num_class_tokens is None else num_class_tokens
        self._check()
        self._has_prefix_positions = positions == "learned" and prefix_positions
        self._create_embedding()
        self._create_encoder()
        self._create_head()

    def call(self, images, training=None):
        return self._forward(images).logits

    def _forward(self, images, all_tokens=False, maps=None):
        """From images to logits, sections 3.1 and 3.2 of the paper; with `all_tokens`, the last
        block computes those as well that no head reads.

        Adds the attention weights of each block to the list `maps`, if there is one.
        """
        x = self.patch_embed(images)  # equation 1, up to the blocks
        grid, with_prefix = self.grid(layers.image_size(images)), self._has_prefix_positions
        if self.positions not in base.POSITIONS_IN_ATTENTION and not with_prefix:
            x = self.patch_positions(x, grid=grid)
        x = base.apply_optional(self.class_token, x)
        if with_prefix:
            x = self.patch_positions(x, grid=grid)
        x = self._dropout(x)
        x = base.apply_optional(self.registers, x)
        x = base.apply_optional(self.embedding_norm, x)
        x = self._patch_dropout(x)

        in_attention, last = self.position_arguments(grid), self.encoder_blocks[-1]
        prefix = self.num_prefix_tokens
        for block in self.encoder_blocks:  # equations 2 and 3
            if maps is not None:
                maps.append(block.attention_weights(x, **in_attention))
            if block is last and self.pool == "cls" and not all_tokens:
                x = block.first_tokens(x, prefix, **in_attention)
            else:
                x = self.apply_block(block, x, **in_attention)
        tokens = base.apply_optional(self.encoder_norm, x)  # equation 4

        if self.pool == "cls":
            x = tokens[:, :prefix]
        else:
            x = ops.mean(tokens[:, prefix + self.num_registers :], axis=1, keepdims=True)
        if self.pool == "cls+mean":
            x = ops.concatenate([tokens[:, :1], x], axis=-1)
        x = base.apply_optional(self.head_norm, x)
        pooled = base.apply_optional(self.representation, x)
        logits = self.head(pooled[:, 0])
        if self.distillation_head is not None:
            logits = (logits + self.distillation_head(pooled[:, 1])) / 2
        return _Outputs(tokens, pooled, logits)

    def features(self, images, training=None):
        """The last block's output (see `norm`) without registers: [B, class tokens + N, E]."""
        with compat.call_context(training):
            x = self._forward(images, all_tokens=True).tokens
        prefix, registers = self.num_prefix_tokens, self.num_registers
        parts = [x[:, :prefix], x[:, prefix + registers :]]
        return ops.concatenate(parts, axis=1) if registers else x

    def pooled_features(self, images, training=None):
        """The input of the head: [B, E]; with ``pool="cls+mean"``, [B, 2E]; with a
        `representation_dim`, [B, `representation_dim`].
        """
        with compat.call_context(training):
            return self._forward(images).pooled[:, 0]

    def attention_maps(self, images):
        """The attention weights of all tokens (class, registers, patches): [B, L, heads, T, T]."""
        maps = []
        self._forward(images, maps=maps)
        return ops.stack(maps, axis=1)

    def position_arguments(self, grid):
        """How the positions of a grid (rows, columns) enter attention: arguments of every block."""
        no_position = (self.num_prefix_tokens + self.num_registers, 0)  # tokens in front
        if self.positions == "relative":
            bias = layers.grid_bias(self.row_positions, self.column_positions, grid)
            return {"bias": ops.pad(bias, [(0, 0), (0, 0), no_position, no_position])}
        if self.positions == "rotary":
            places = ops.pad(layers.grid_places(grid), [(0, 0), no_position, (0, 0)])  # not rotated
            return {"angles": self.patch_positions(places)}
        return {}

    def grid(self, image_size):
        """Rows and columns of patches in images of this size, see `zoo.layers.image_size`."""
        if None in image_size:
            raise ValueError(
                "The features and attention maps of a keras.Input need a known height and width; "
                f"only the model itself takes unknown ones. Received: {image_size}."
            )
        return layers.patch_grid(image_size, self.patch_size)

    def input_signature(self):
        return keras.InputSpec(self.variable_dtype, (None, *self.input_shape), name="images")

    def compute_output_shape(self, input_shape):
        layers.patch_grid(input_shape[1:3], self.patch_size)
        return super().compute_output_shape(input_shape)

    @property
    def num_features(self):
        width = self.embed_dim * (2 if self.pool == "cls+mean" else 1)
        return self.representation_dim or width

    def build(self, input_shape):
        pooled = (None, self.embed_dim * (2 if self.pool == "cls+mean" else 1))
        features = (None, self.num_features)
        shapes = [(self.patch_embed, input_shape), (self.head_norm, pooled)]
        shapes += [(self.representation, pooled), (self.head, features)]
        for layer, shape in [*shapes, (self.distillation_head, features)]:
            if layer is not None and not layer.built:
                layer.build(shape)
        super().build()

    def _create_embedding(self):
        prefix, registers = self.num_prefix_tokens, self.num_registers
        arguments = (self.embed_dim, self.patch_size, self.kernel_initializer)
        self.patch_embed = self.layer(layers.PatchEmbed, "patch_embed", *arguments)
        self.class_token = self.layer(layers.ClassToken, "class_token", prefix) if prefix else None
        self._create_positions()
        self._dropout = self.layer(layers.Dropout, "dropout", self.dropout)
        self.registers = None
        if registers:
            self.registers = self.layer(layers.RegisterTokens, "registers", registers, prefix)
        self.embedding_norm = self.norm_layer("embedding_norm", self.normalize_embeddings)
        arguments = (self.patch_dropout, prefix + registers)
        self._patch_dropout = self.layer(layers.PatchDropout, "patch_dropout", *arguments)

    def _create_positions(self):
        """`patch_positions`, added or rotary; or `row_positions` and `column_positions`."""
        if self.positions == "relative":
            layer_class, heads = layers.RelativePositions, self.num_heads
            self.row_positions = self.layer(layer_class, "row_positions", heads)
            self.column_positions = self.layer(layer_class, "column_positions", heads)
            return
        grid = layers.patch_grid(self.input_shape[:2], self.patch_size)
        prefix = self.num_prefix_tokens if self.prefix_positions else 0
        key_dim = head_width(self.embed_dim, self.num_heads, self.key_dim)
        layer_class, *arguments = {
            "learned": (layers.LearnedPositions, grid, prefix, self.interpolation),
            "sinusoidal": (layers.SinusoidalGridPositions, grid),
            "rotary": (layers.RotaryPositions, key_dim, ROTARY_MAX_WAVELENGTH, 2),
        }[self.positions]
        self.patch_positions = self.layer(layer_class, "patch_positions", *arguments)

    def _create_encoder(self):
        rate, last = self.stochastic_depth, self.num_layers - 1
        rates = [rate * index / last for index in range(last)] + [rate]
        self.encoder_blocks = [
            self.block(layers.TransformerEncoder, f"encoder_{index}", stochastic_depth=rate)
            for index, rate in enumerate(rates)
        ]
        pre = self.norm == "pre"
        self.encoder_norm = self.norm_layer("encoder_norm", pre and not self.normalize_pooled)
        self.head_norm = self.norm_layer("head_norm", pre and self.normalize_pooled)

    def _create_head(self):
        self.representation = self.tanh_layer("representation", self.representation_dim)
        self.head = self.head_layer("head")
        distilled = self.pool == "cls" and self.num_prefix_tokens == 2
        self.distillation_head = self.head_layer("distillation_head") if distilled else None

    def _check(self):
        check_choice("pool", self.pool, POOLS)
        check_choice("positions", self.positions, POSITIONS)
        check_at_least_1(num_layers=self.num_layers)
        if self.patch_dropout and self.positions in base.POSITIONS_IN_ATTENTION:
            raise ValueError(
                'patch_dropout needs positions="learned" or "sinusoidal". Received: '
                f"patch_dropout={self.patch_dropout}, positions={self.positions!r}."
            )
        if len(self.input_shape) != 3 or None in self.input_shape:
            raise ValueError(
                f"input_shape must be (H, W, C). Received: input_shape={self.input_shape}."
            )
        if self.num_prefix_tokens not in ((0, 1, 2) if self.pool == "mean" else (1, 2)):
            raise ValueError(
                "num_class_tokens must be 1 or 2, or 0 with pool='mean'. "
                f"Received: num_class_tokens={self.num_class_tokens}, pool={self.pool!r}."
            )
