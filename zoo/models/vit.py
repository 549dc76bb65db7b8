"""The Vision Transformer. Source: Dosovitskiy et al. 2020, "An Image is Worth 16x16 Words".

Axes: B batch, H image height, W image width, C channels, N patches, T tokens, E width, L layers.
The T tokens are class tokens, registers and patches, in this order.
"""

import keras
from keras import ops

from zoo import compat, layers
from zoo.errors import check_at_least_1, check_choice
from zoo.layers.multi_head_attention import head_width
from zoo.models.base import TransformerModel, arguments_of_size, describes_arguments_of
from zoo.models.positions import POSITIONS_IN_ATTENTION, check_attention_takes

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
POSITIONS = ("learned", "sinusoidal", *POSITIONS_IN_ATTENTION)
# Heo et al. 2024, "Rotary Position Embedding for Vision Transformer", section 3.2: the square root
# of that of texts, because an axis has √N positions for N patches
ROTARY_MAX_WAVELENGTH = 100.0


@keras.saving.register_keras_serializable("zoo")
class ViT(TransformerModel):
    """A Vision Transformer that classifies images: patches, positions, encoder blocks, head.

    docs/published_models.md lists which published models set which of the options.

    Args:
        input_shape: (H, W, C) of the images it is trained on. It takes other sizes as well, if the
            patch size divides them: learned positions are then resized. In graphs of TensorFlow,
            sizes may be unknown, such as ``keras.Input((None, None, 3))``.
        num_classes: number of logits; 0 for a model without a head, which returns features.
        patch_size: in pixels; divides H and W.
        embed_dim: E, width of the tokens in all blocks.
        num_heads: number of attention heads.
        num_layers: L, the number of encoder blocks.
        ff_dim: hidden width of the feed-forward networks; ``4 * embed_dim`` by default.
        dropout: rate in [0, 1) on the embedded patches, on the output of each sub-layer and on the
            hidden units of the feed-forward networks (appendix B.1).
        attention_dropout: rate in [0, 1) on the attention weights.
        stochastic_depth: rate in [0, 1) at which training skips a sub-layer of the last block for a
            whole image; it grows linearly from 0 at the first block (Huang et al. 2016, section 3).
        patch_dropout: share of the patches, in [0, 1), that training leaves out of each image (Liu
            et al. 2022), to take less time; with learned or sinusoidal positions.
        pool: input of the head: "cls", the class token; "mean", the mean of the patches (Beyer et
            al. 2022); or "cls+mean", both side by side (Oquab et al. 2023, DINOv2).
        num_class_tokens: 1 by default, 0 with ``pool="mean"``. The second is a distillation token,
            which has a head of its own: with ``pool="cls"`` the logits are the mean of both heads
            (Touvron et al. 2020, DeiT, section 4).
        num_registers: number of register tokens (Darcet et al. 2023).
        positions: "learned"; "sinusoidal", fixed ones of rows and columns (Beyer et al. 2022);
            "relative", a learned bias on the scores of two patches for their distance in rows and
            one in columns (Raffel et al. 2019, section 2.1); or "rotary", of rows and columns (Heo
            et al. 2024, section 3.2). The last three do not concern class and register tokens.
        prefix_positions: whether class tokens have learned positions.
        interpolation: "bilinear" or "bicubic", how learned positions are resized.
        norm: "pre", normalization before each sub-layer and after the last block; or "post", after
            each residual sum.
        norm_type: kind of the normalizations: "layer", or "rms" (Zhang and Sennrich 2019).
        normalize_embeddings: whether to normalize before the first block (Radford et al. 2021).
        normalize_pooled: whether a pre-norm model normalizes the input of its head in place of the
            last block's output (He et al. 2021, MAE, fine-tuned).
        representation_dim: if given, the width of a layer with tanh before the head, as in
            pre-training (Dosovitskiy et al. 2020, section 3.1).
        activation: of the feed-forward networks; see `zoo.layers.FeedForward`.
        layer_scale: if given, the output of each sub-layer is multiplied by a learned vector that
            starts at this value; see `zoo.layers.LayerScale`.
        attention: "softmax", "blockwise" or "linear"; see `zoo.layers.MultiHeadSelfAttention`.
        key_dim: width of a head; ``embed_dim / num_heads`` by default.
        qkv_bias: whether the projections to queries, keys and values have biases.
        epsilon: added to the variance, or the mean square, in the normalizations.
        kernel_initializer: initializer of the matrices of the blocks and of the patch projection,
            such as "glorot_uniform" (Xavier) or "he_normal".
        remat: whether training keeps only the inputs of each block in memory and recomputes the
            block for its gradient; see docs/long_sequences.md.
        **kwargs: `name`, `dtype` and `trainable`; see `keras.Model`.

    Input: images [B, H, W, C], floating point, already normalized.

    Output: logits [B, num_classes]; without a head [B, E], `pooled_features` (the mean of both with
        a distillation token).

    Raises:
        ValueError: if arguments are inconsistent, or a name is unknown.
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
        *,
        dropout=0.0,
        attention_dropout=0.0,
        stochastic_depth=0.0,
        patch_dropout=0.0,
        pool="cls",
        num_class_tokens=None,
        num_registers=0,
        positions="learned",
        prefix_positions=True,
        interpolation="bicubic",
        norm="pre",
        norm_type="layer",
        normalize_embeddings=False,
        normalize_pooled=False,
        representation_dim=None,
        activation="gelu",
        layer_scale=None,
        attention="softmax",
        key_dim=None,
        qkv_bias=True,
        epsilon=1e-6,
        kernel_initializer="glorot_uniform",
        remat=False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.input_shape = tuple(input_shape)
        self.num_classes = num_classes
        self.patch_size = patch_size
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.num_layers = num_layers
        self.ff_dim = ff_dim
        self.dropout = dropout
        self.attention_dropout = attention_dropout
        self.stochastic_depth = stochastic_depth
        self.patch_dropout = patch_dropout
        self.pool = pool
        self.num_class_tokens = num_class_tokens
        self.num_registers = num_registers
        self.positions = positions
        self.prefix_positions = prefix_positions
        self.interpolation = interpolation
        self.norm = norm
        self.norm_type = norm_type
        self.normalize_embeddings = normalize_embeddings
        self.normalize_pooled = normalize_pooled
        self.representation_dim = representation_dim
        self.activation = activation
        self.layer_scale = layer_scale
        self.attention = attention
        self.key_dim = key_dim
        self.qkv_bias = qkv_bias
        self.epsilon = epsilon
        self.kernel_initializer = kernel_initializer
        self.remat = remat
        self.num_prefix_tokens = num_class_tokens
        if num_class_tokens is None:
            self.num_prefix_tokens = 0 if pool == "mean" else 1
        self._check()
        self._create_embedding()
        self._create_encoder()
        self._create_head()

    def _check(self):
        check_choice("pool", self.pool, POOLS)
        check_choice("positions", self.positions, POSITIONS)
        check_attention_takes(self.positions, self.attention)
        check_at_least_1(num_layers=self.num_layers)
        if self.patch_dropout and self.positions in POSITIONS_IN_ATTENTION:
            raise ValueError(
                'patch_dropout needs positions="learned" or "sinusoidal". Received: '
                f"patch_dropout={self.patch_dropout}, positions={self.positions!r}."
            )
        if len(self.input_shape) != 3 or None in self.input_shape:
            raise ValueError(
                f"input_shape must be (H, W, C). Received: input_shape={self.input_shape}."
            )
        numbers = (0, 1, 2) if self.pool == "mean" else (1, 2)
        if self.num_prefix_tokens not in numbers:
            raise ValueError(
                "num_class_tokens must be 1 or 2, or 0 with pool='mean'. "
                f"Received: num_class_tokens={self.num_class_tokens}, pool={self.pool!r}."
            )

    def _create_embedding(self):
        self.patch_embed = layers.PatchEmbed(
            self.embed_dim,
            self.patch_size,
            self.kernel_initializer,
            dtype=self.dtype_policy,
            name="patch_embed",
        )
        self.class_token = None
        if self.num_prefix_tokens:
            self.class_token = layers.ClassToken(
                self.num_prefix_tokens, dtype=self.dtype_policy, name="class_token"
            )
        self._create_positions()
        self._dropout = layers.Dropout(self.dropout, dtype=self.dtype_policy, name="dropout")
        self.registers = None
        if self.num_registers:
            self.registers = layers.RegisterTokens(
                self.num_registers,
                self.num_prefix_tokens,
                dtype=self.dtype_policy,
                name="registers",
            )
        self.embedding_norm = None
        if self.normalize_embeddings:
            self.embedding_norm = self._norm_layer("embedding_norm")
        self._patch_dropout = layers.PatchDropout(
            self.patch_dropout,
            self.num_prefix_tokens + self.num_registers,
            dtype=self.dtype_policy,
            name="patch_dropout",
        )

    def _create_positions(self):
        """`patch_positions`, added or rotary; or `row_positions` and `column_positions`."""
        grid = layers.patch_grid(self.input_shape[:2], self.patch_size)
        if self.positions == "learned":
            self.patch_positions = layers.LearnedPositions(
                grid,
                self.num_prefix_tokens if self.prefix_positions else 0,
                self.interpolation,
                dtype=self.dtype_policy,
                name="patch_positions",
            )
        elif self.positions == "sinusoidal":
            self.patch_positions = layers.SinusoidalGridPositions(
                grid, dtype=self.dtype_policy, name="patch_positions"
            )
        elif self.positions == "rotary":
            self.patch_positions = layers.RotaryPositions(
                head_width(self.embed_dim, self.num_heads, self.key_dim),
                max_wavelength=ROTARY_MAX_WAVELENGTH,
                num_axes=2,
                dtype=self.dtype_policy,
                name="patch_positions",
            )
        else:
            self.row_positions = layers.RelativePositions(
                self.num_heads, dtype=self.dtype_policy, name="row_positions"
            )
            self.column_positions = layers.RelativePositions(
                self.num_heads, dtype=self.dtype_policy, name="column_positions"
            )

    def _create_encoder(self):
        steps = self.num_layers - 1
        rates = [self.stochastic_depth * index / steps for index in range(steps)]
        rates.append(self.stochastic_depth)  # of the last block
        self.encoder_blocks = [
            layers.TransformerEncoder(
                self.embed_dim,
                self.num_heads,
                self.ff_dim,
                dropout=self.dropout,
                attention_dropout=self.attention_dropout,
                norm=self.norm,
                norm_type=self.norm_type,
                activation=self.activation,
                stochastic_depth=rate,
                layer_scale=self.layer_scale,
                key_dim=self.key_dim,
                qkv_bias=self.qkv_bias,
                epsilon=self.epsilon,
                kernel_initializer=self.kernel_initializer,
                attention=self.attention,
                dtype=self.dtype_policy,
                name=f"encoder_{index}",
            )
            for index, rate in enumerate(rates)
        ]
        self.encoder_norm = None
        if self.norm == "pre" and not self.normalize_pooled:
            self.encoder_norm = self._norm_layer("encoder_norm")

    def _create_head(self):
        self.head_norm = None
        if self.norm == "pre" and self.normalize_pooled:
            self.head_norm = self._norm_layer("head_norm")
        self.representation = None
        if self.representation_dim:
            self.representation = keras.layers.Dense(
                self.representation_dim,
                activation="tanh",
                kernel_initializer=self.kernel_initializer,
                dtype=self.dtype_policy,
                name="representation",
            )
        self.head = self.head_layer("head")
        self.distillation_head = None
        if self.pool == "cls" and self.num_prefix_tokens == 2:
            self.distillation_head = self.head_layer("distillation_head")

    def _norm_layer(self, name):
        return layers.normalization_layer(
            self.norm_type, self.epsilon, dtype=self.dtype_policy, name=name
        )

    def build(self, input_shape):
        pooled = (None, self._pooled_width)
        features = (None, self.num_features)
        shapes = [
            (self.patch_embed, input_shape),
            (self.head_norm, pooled),
            (self.representation, pooled),
            (self.head, features),
            (self.distillation_head, features),
        ]
        for layer, shape in shapes:
            if layer is not None and not layer.built:
                layer.build(shape)
        super().build()  # the other layers take tokens

    def call(self, images, training=None):
        tokens = self.encode(images, only_class_tokens=self.pool == "cls")
        return self.logits(self.pooled(tokens))

    def encode(self, images, training=None, only_class_tokens=False):
        """From images [B, H, W, C] to tokens [B, T, E]: equations 1 to 4.

        With `only_class_tokens`, the last block computes no others, which takes less time.
        """
        with compat.call_context(training):
            x = self.embed(images)
            positions = self.position_arguments(self.grid(layers.image_size(images)))
            *blocks, last = self.encoder_blocks
            for block in blocks:
                x = self.apply_block(block, x, **positions)
            if only_class_tokens:
                x = last.first_tokens(x, self.num_prefix_tokens, **positions)
            else:
                x = self.apply_block(last, x, **positions)
            return x if self.encoder_norm is None else self.encoder_norm(x)

    def embed(self, images):
        """The input of the first block, equation 1: [B, T, E]."""
        x = self.patch_embed(images)  # [B, N, E]
        grid = self.grid(layers.image_size(images))
        are_added = self.positions not in POSITIONS_IN_ATTENTION
        have_class_tokens = self.positions == "learned" and self.prefix_positions
        if are_added and not have_class_tokens:
            x = self.patch_positions(x, grid=grid)
        if self.class_token is not None:
            x = self.class_token(x)  # [B, class tokens + N, E]
        if are_added and have_class_tokens:
            x = self.patch_positions(x, grid=grid)
        x = self._dropout(x)
        if self.registers is not None:
            x = self.registers(x)  # [B, T, E]
        if self.embedding_norm is not None:
            x = self.embedding_norm(x)
        return self._patch_dropout(x)  # in training, T becomes smaller

    def pooled(self, tokens):
        """The inputs of the heads, for `tokens` of `encode`: [B, 1 or 2, width]."""
        if self.pool == "cls":
            x = tokens[:, : self.num_prefix_tokens]  # [B, class tokens, E]
        else:
            patches = tokens[:, self.num_prefix_tokens + self.num_registers :]
            x = ops.mean(patches, axis=1, keepdims=True)  # [B, 1, E]
        if self.pool == "cls+mean":
            x = ops.concatenate([tokens[:, :1], x], axis=-1)  # [B, 1, 2E]
        if self.head_norm is not None:
            x = self.head_norm(x)
        if self.representation is not None:
            x = self.representation(x)  # [B, 1 or 2, representation_dim]
        return x

    def logits(self, pooled):
        """From the inputs of the heads, see `pooled`, to logits [B, num_classes]."""
        logits = self.head(pooled[:, 0])
        if self.distillation_head is not None:
            logits = (logits + self.distillation_head(pooled[:, 1])) / 2
        return logits

    def features(self, images, training=None):
        """The last block's output (see `norm`) without registers: [B, class tokens + N, E]."""
        tokens = self.encode(images, training)
        if not self.num_registers:
            return tokens
        prefix = self.num_prefix_tokens
        patches = tokens[:, prefix + self.num_registers :]
        return ops.concatenate([tokens[:, :prefix], patches], axis=1)

    def pooled_features(self, images, training=None):
        """The input of the head: [B, E]; with ``pool="cls+mean"``, [B, 2E]; with a
        `representation_dim`, [B, `representation_dim`].
        """
        tokens = self.encode(images, training, only_class_tokens=self.pool == "cls")
        return self.pooled(tokens)[:, 0]

    def attention_maps(self, images):
        """The attention weights of all tokens (class, registers, patches): [B, L, heads, T, T]."""
        x = self.embed(images)
        positions = self.position_arguments(self.grid(layers.image_size(images)))
        maps = []
        for block in self.encoder_blocks:
            maps.append(block.attention_weights(x, **positions))  # [B, heads, T, T]
            x = block(x, **positions)
        return ops.stack(maps, axis=1)

    def position_arguments(self, grid):
        """How the positions of a grid (rows, columns) enter attention: arguments of every block."""
        no_position = (self.num_prefix_tokens + self.num_registers, 0)  # tokens in front
        if self.positions == "relative":
            bias = layers.grid_bias(self.row_positions, self.column_positions, grid)
            bias = ops.pad(bias, [(0, 0), (0, 0), no_position, no_position])  # [1, heads, T, T]
            return {"bias": bias}
        if self.positions == "rotary":
            positions = layers.grid_positions(grid)  # [1, N, 2]
            # tokens in front, at position (0, 0), are not rotated
            positions = ops.pad(positions, [(0, 0), no_position, (0, 0)])  # [1, T, 2]
            return {"rotation": self.patch_positions(positions)}
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
        layers.patch_grid(input_shape[1:3], self.patch_size)  # checks the size
        return super().compute_output_shape(input_shape)

    @property
    def _pooled_width(self):
        return 2 * self.embed_dim if self.pool == "cls+mean" else self.embed_dim

    @property
    def num_features(self):
        return self.representation_dim or self._pooled_width


@describes_arguments_of(ViT)
def vit(size=None, *, input_shape=(224, 224, 3), num_classes=1000, patch_size=None, **arguments):
    """Builds a Vision Transformer of a published size, or of any size by hand.

    ``zoo.vit("B/16", num_classes=10)`` is ViT-B with patches of 16x16 pixels. Without a size, give
    `patch_size`, `embed_dim`, `num_heads` and `num_layers`. Other arguments override those of the
    size: ``zoo.vit("Ti/4", input_shape=(32, 32, 3), num_layers=9)``.

    Args:
        size: "Ti", "S", "B", "L" or "H", a slash and the patch size in pixels; or None.
        input_shape: (H, W, C) of the images.
        num_classes: number of logits; 0 for a model without a head.
        patch_size: in pixels; that of the size by default.
        **arguments: of `zoo.models.ViT`.

    Returns:
        A built `zoo.models.ViT`.

    Raises:
        ValueError: if the size is unknown or incomplete, or if arguments are inconsistent.
    """
    pixels = str(size).rpartition("/")[2]
    pixels = int(pixels) if pixels.isdecimal() else 16
    sizes = {f"{name}/{pixels}": {**row, "patch_size": pixels} for name, row in SIZES.items()}
    if patch_size is not None:
        if size in sizes and patch_size != pixels:
            raise ValueError(f"The size {size!r} conflicts with patch_size={patch_size}.")
        arguments["patch_size"] = patch_size
    required = ("patch_size", "embed_dim", "num_layers", "num_heads")
    arguments = arguments_of_size("vit", size, sizes, arguments, required)
    model = ViT(input_shape, num_classes, **arguments)
    model.build((None, *input_shape))
    return model
