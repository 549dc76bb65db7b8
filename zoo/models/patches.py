"""What models of images share: patches, tokens before them, and positions.

Axes: B batch, H image height, W image width, C channels, N patches, T tokens, E model width.
"""

from keras import ops

from zoo.layers import (
    ClassToken,
    Dropout,
    LearnedPositions,
    PatchDropout,
    PatchEmbed,
    RegisterTokens,
    RelativePositions,
    RotaryPositions,
    SinusoidalGridPositions,
    patch_grid,
)
from zoo.layers.attention import head_width
from zoo.layers.training import training_argument
from zoo.models.base import ZooModel

POSITIONS = ("learned", "sinusoidal", "relative", "rotary")
ADDED = ("learned", "sinusoidal")  # to the tokens, not in attention
# Heo et al. 2024, "Rotary Position Embedding for Vision Transformer", section 3.2: the square root
# of that of texts, because an axis has √N positions for N patches
ROTARY_MAX_WAVELENGTH = 100.0


class PatchModel(ZooModel):
    """Base class of models whose inputs are images.

    Their tokens are class tokens, register tokens and patches, in this order. The layers of
    positions are `patch_positions`, added or rotary, or `row_positions` and `column_positions`.
    """

    def create_embedding(self):
        """The layers before the first block."""
        settings = {"kernel_initializer": self.kernel_initializer}
        prefix, arguments = self.num_prefix_tokens, (self.embed_dim, self.patch_size)
        self.patch_embed = self.layer(PatchEmbed, "patch_embed", *arguments, **settings)
        self.class_token = self.layer(ClassToken, "class_token", prefix) if prefix else None
        self._create_positions()
        self._dropout = self.layer(Dropout, "dropout", self.dropout)
        self.registers = None
        if self.num_registers:
            self.registers = self.layer(RegisterTokens, "registers", self.num_registers, prefix)
        self.embedding_norm = self.norm_layer("embedding_norm", self.normalize_embeddings)
        prefix += self.num_registers
        self._patch_dropout = self.layer(PatchDropout, "patch_dropout", self.patch_dropout, prefix)

    def build_embedding(self, input_shape):
        tokens, positions = (None, None, self.embed_dim), (None, None)
        self.patch_embed.build(input_shape)
        if self.positions == "relative":
            self.row_positions.build(positions, positions)
            self.column_positions.build(positions, positions)
        elif self.positions == "rotary":
            self.patch_positions.build((None, None, 2))
        else:
            self.patch_positions.build(tokens)
        for layer in filter(None, (self.class_token, self.registers, self.embedding_norm)):
            layer.build(tokens)

    def embed(self, images, training=None):
        """The input of the first block: [B, T, E]; without the dropped patches in training."""
        grid, added = self.grid(images.shape), self.positions in ADDED
        of_prefix = self.positions == "learned" and self.prefix_positions
        x = self.patch_embed(images)
        if added and not of_prefix:
            x = self.patch_positions(x, grid=grid)
        x = apply(self.class_token, x)
        if added and of_prefix:
            x = self.patch_positions(x, grid=grid)
        x = self._dropout(x, **training_argument(training))
        x = apply(self.embedding_norm, apply(self.registers, x))
        return self._patch_dropout(x, **training_argument(training))

    def position_arguments(self, grid):
        """How positions enter attention: keyword arguments of every block.

        Args:
            grid: (rows, columns) of patches.
        """
        if self.positions in ADDED:
            return {}
        before = (self.num_prefix_tokens + self.num_registers, 0)
        rows, columns = (ops.arange(length) for length in grid)
        if self.positions == "relative":
            rows = self.row_positions(rows[None], rows[None])[:, :, :, None, :, None]
            columns = self.column_positions(columns[None], columns[None])[:, :, None, :, None]
            patches = grid[0] * grid[1]
            bias = ops.reshape(rows + columns, (1, self.num_heads, patches, patches))
            return {"bias": ops.pad(bias, [(0, 0), (0, 0), before, before])}
        positions = ops.meshgrid(rows, columns, indexing="ij")
        positions = ops.reshape(ops.stack(positions, axis=-1), (1, -1, 2))
        return {"angles": self.patch_positions(ops.pad(positions, [(0, 0), before, (0, 0)]))}

    def grid(self, shape):
        """Rows and columns of patches in images of this shape."""
        if None in shape[1:3]:
            raise ValueError(
                "The height and width of the images must be known when the model is traced, "
                f"for instance {self.input_shape}. Received: images of {tuple(shape)}."
            )
        return patch_grid(shape[1:3], self.patch_size)

    def _create_positions(self):
        if self.positions == "relative":
            self.row_positions = self.layer(RelativePositions, "row_positions", self.num_heads)
            self.column_positions = self.layer(
                RelativePositions, "column_positions", self.num_heads
            )
        elif self.positions == "rotary":
            key_dim = head_width(self.embed_dim, self.num_heads, self.key_dim)
            arguments = (key_dim, ROTARY_MAX_WAVELENGTH, 2)
            self.patch_positions = self.layer(RotaryPositions, "patch_positions", *arguments)
        elif self.positions == "sinusoidal":
            grid = patch_grid(self.input_shape[:2], self.patch_size)
            self.patch_positions = self.layer(SinusoidalGridPositions, "patch_positions", grid)
        else:
            self.patch_positions = self.layer(
                LearnedPositions,
                "patch_positions",
                patch_grid(self.input_shape[:2], self.patch_size),
                self.num_prefix_tokens if self.prefix_positions else 0,
                self.interpolation,
            )


def apply(layer, x):
    return x if layer is None else layer(x)
