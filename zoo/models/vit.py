"""The Vision Transformer. Source: Dosovitskiy et al. 2020, "An Image is Worth 16x16 Words".

`ViT.call` and the methods below it lead from images to logits, in this order: `encode` (which
begins with `embed`), `pooled`, `logits`. The layers are created further down.

Axes: B batch, H image height, W image width, C channels, N patches, T tokens, E width, L layers.
The T tokens are class tokens, registers and patches, in this order.
"""

import keras
from keras import ops

from zoo import compat, layers
from zoo.errors import check_at_least_1, check_choice
from zoo.layers.multi_head_attention import head_width
from zoo.models.base import (
    POSITIONS_IN_ATTENTION,
    TransformerModel,
    check_positions_supported,
    classification_head,
)
from zoo.models.sizes import arguments_of_size, describes_arguments_of

SIZES = {
    # Touvron et al. 2020 (DeiT), table 1
    "Ti": {"embed_dim": 192, "num_layers": 12, "num_heads": 3, "ff_dim": 768},
    "S": {"embed_dim": 384, "num_layers": 12, "num_heads": 6, "ff_dim": 1536},
    # Dosovitskiy et al. 2020, table 1
    "B": {"embed_dim": 768, "num_layers": 12, "num_heads": 12, "ff_dim": 3072},
    "L": {"embed_dim": 1024, "num_layers": 24, "num_heads": 16, "ff_dim": 4096},
    "H": {"embed_dim": 1280, "num_layers": 32, "num_heads": 16, "ff_dim": 5120},
    # Siméoni et al. 2025 (DINOv3), MODEL_CARD.md of its code
    "S+": {
        "embed_dim": 384,
        "num_layers": 12,
        "num_heads": 6,
        "ff_dim": 1536,
        "activation": "swiglu",
    },
}
POOLS = ("cls", "mean", "cls+mean", "map")
REPRESENTATION_ACTIVATIONS = {
    "tanh": "tanh",
    "linear": "linear",
    "unit_norm": layers.unit_normalization,
}
POSITIONS = ("learned", "sinusoidal", *POSITIONS_IN_ATTENTION)


@keras.saving.register_keras_serializable("zoo")
class ViT(TransformerModel):
    """A Vision Transformer, which classifies images.

    Images of other sizes than `input_shape` are accepted if `patch_size` divides them: learned
    positions and tables of biases are resized. In TensorFlow, sizes may be unknown:
    ``keras.Input((None, None, 3))``.
    docs/published_models.md lists which published models set which of the options.

    Args:
        input_shape: (H, W, C) of the images.
        num_classes: number of classes; 0 for a model without a head, which returns features.
        patch_size: side of a patch in pixels; divides H and W.
        embed_dim: E, width of the tokens in all blocks.
        num_heads: number of attention heads.
        num_layers: L, number of encoder blocks.
        ff_dim: hidden width of the feed-forward networks. Defaults to `4 * embed_dim`.
        dropout: rate in [0, 1) on the embedded patches, on the output of each sub-layer and on the
            hidden units of the feed-forward networks (appendix B.1). Defaults to 0.
        attention_dropout: rate in [0, 1) on the attention weights. Defaults to 0.
        stochastic_depth: rate in [0, 1) at which training skips a sub-layer of the last block for a
            whole image. It grows linearly from 0 at the first block (Huang et al. 2016, section 3).
            Defaults to 0.
        patch_dropout: share of the patches, in [0, 1), that training leaves out of each image, to
            take less time (Liu et al. 2022). Needs learned or sinusoidal positions. Defaults to 0.
        pool: input of the head: "cls", the class token; "mean", the mean of the patches (Beyer et
            al. 2022); "cls+mean", both side by side (Oquab et al. 2023, DINOv2); or "map",
            attention of a learned vector to the patches (Zhai et al. 2021, section 3.2), see
            `zoo.layers.AttentionPool`. Defaults to "cls".
        num_class_tokens: 1 or 2, or 0 with ``pool="mean"`` and "map". The second is a distillation
            token: with ``pool="cls"`` it has a head of its own, and the logits are the mean of both
            heads (Touvron et al. 2020, DeiT, section 4). Defaults to 0 with ``pool="mean"`` and
            "map", and otherwise to 1.
        num_registers: number of register tokens (Darcet et al. 2023). Defaults to 0.
        positions: "learned"; "sinusoidal", fixed ones of rows and columns (Beyer et al. 2022);
            "relative", a learned bias on the scores of two patches for their distance in rows and
            one in columns (Raffel et al. 2019, section 2.1); "relative_table", a learned bias in
            each block for each pair of both distances (Bao et al. 2021, BEiT); or "rotary", of rows
            and columns (Heo et al. 2024, section 3.2). Defaults to "learned".
        prefix_positions: whether class tokens have learned positions as well. Defaults to `True`.
        interpolation: "bilinear" or "bicubic" resizing of learned positions. Defaults to "bicubic".
        rotation: a `zoo.layers.RotaryGridPositions`, whose rotary positions are those of "rotary",
            or are used beside other `positions`. Defaults to `None`: with "rotary", those of Heo et
            al. 2024, otherwise none.
        norm: "pre", normalization before each sub-layer and after the last block; or "post", after
            each residual sum. Defaults to "pre".
        norm_type: "layer" or "rms" (Zhang and Sennrich 2019) normalization. Defaults to "layer".
        normalize_embeddings: whether to normalize the input of the first block (Radford et al.
            2021, CLIP). Defaults to `False`.
        normalize_pooled: whether to normalize the input of the head, in a pre-norm model in place
            of the last block's output (He et al. 2021, MAE, fine-tuned). Defaults to `False`.
        representation_dim: width of a dense layer before the head. Defaults to `None`, no such
            layer.
        representation_activation: activation of this layer: "tanh", as in pre-training (Dosovitskiy
            et al. 2020, section 3.1); "linear", as in the image encoder of CLIP (Radford et al.
            2021, section 2.3); or "unit_norm", which scales its output to length 1, so that the
            logits are cosines times the lengths of the head's columns. Defaults to "tanh".
        activation: of the feed-forward networks; see `zoo.layers.FeedForward`. Defaults to "gelu".
        layer_scale: initial value of learned factors of each sub-layer's output; see
            `zoo.layers.LayerScale`. Defaults to `None`, no such factors.
        attention: "softmax", "blockwise" or "linear"; see `zoo.layers.MultiHeadSelfAttention`.
            Defaults to "softmax".
        key_dim: width of a head. Defaults to `embed_dim / num_heads`.
        qkv_bias: whether projections to queries, keys and values have biases. Defaults to `True`.
        epsilon: added to the variance, or mean square, in normalizations. Defaults to 1e-6.
        kernel_initializer: initializer of the matrices. Defaults to "glorot_uniform" (Xavier).
        remat: whether training recomputes each block for its gradient, to take less memory, without
            second derivatives; see docs/long_sequences.md. Defaults to `False`.
        **kwargs: `name`, `dtype` and `trainable`; see `keras.Model`.

    Input: images [B, H, W, C], floating point, already normalized.

    Output: logits [B, num_classes], float32 in mixed precision as well. Without a head:
    `pooled_features`.

    Attributes:
        separate_heads: whether the output in training, with a distillation head, is that of both
            heads, [B, 2, num_classes], for `zoo.training.distillation.DistillationLoss`. It may be
            set at any time, and is not saved. False by default.

    Raises:
        ValueError: if arguments are inconsistent, or a name is unknown.
    """

    separate_heads = False

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
        rotation=None,
        norm="pre",
        norm_type="layer",
        normalize_embeddings=False,
        normalize_pooled=False,
        representation_dim=None,
        representation_activation="tanh",
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
        if num_class_tokens is None:
            num_class_tokens = 0 if pool in ("mean", "map") else 1
        self.num_class_tokens = num_class_tokens
        self.num_registers = num_registers
        self.positions = positions
        self.prefix_positions = prefix_positions
        self.interpolation = interpolation
        self.rotation = rotation
        self.norm = norm
        self.norm_type = norm_type
        self.normalize_embeddings = normalize_embeddings
        self.normalize_pooled = normalize_pooled
        self.representation_dim = representation_dim
        self.representation_activation = representation_activation
        self.activation = activation
        self.layer_scale = layer_scale
        self.attention = attention
        self.key_dim = key_dim
        self.qkv_bias = qkv_bias
        self.epsilon = epsilon
        self.kernel_initializer = kernel_initializer
        self.remat = remat
        self._check()
        self.num_prefix_tokens = self.num_class_tokens + num_registers
        # The order of creation is that of the weights.
        self._create_embedding()
        self._create_encoder()
        self._create_head()

    def call(self, images, training=None):  # Keras passes `training` on to all layers
        tokens = self.encode(images, only_class_tokens=self.pool == "cls")  # [B, T, E]
        pooled = self.pooled(tokens)  # [B, 1, width]
        return self.logits(pooled)  # [B, num_classes]

    def encode(self, images, training=None, only_class_tokens=False):
        """Computes the tokens of the last block, equations 1 to 4: [B, T, E].

        They are normalized if the model is pre-norm, except with `normalize_pooled`.

        Args:
            images: [B, H, W, C].
            training: whether dropout is applied. Defaults to that of the surrounding call.
            only_class_tokens: whether the last block computes class tokens only, which takes less
                time: [B, class tokens, E].
        """
        with compat.call_context(training):
            grid = self.grid(layers.image_size(images))
            x = self.embed(images, grid)
            *blocks, last = self.encoder_blocks
            *positions, last_positions = self.block_arguments(grid)
            for block, arguments in zip(blocks, positions):
                x = self.apply_block(block, x, **arguments)
            if only_class_tokens:
                count = self.num_class_tokens
                x = self.apply_block(last, x, method="first_tokens", count=count, **last_positions)
            else:
                x = self.apply_block(last, x, **last_positions)
            if self.encoder_norm is not None:
                x = self.encoder_norm(x)
            return x

    def embed(self, images, grid):
        """Computes the input of the first block, equation 1: [B, T, E].

        Args:
            images: [B, H, W, C].
            grid: (rows, columns) of their patches.
        """
        x = self.patch_embed(images)  # [B, N, E]
        if self.positions in POSITIONS_IN_ATTENTION:  # no sum, see `position_arguments`
            x = self._add_class_tokens(x)
        elif self.positions == "learned" and self.prefix_positions:  # also of class tokens
            x = self._add_class_tokens(x)
            x = self.patch_positions(x, grid=grid)
        else:  # of patches only
            x = self.patch_positions(x, grid=grid)
            x = self._add_class_tokens(x)
        x = self._dropout(x)  # [B, class tokens + N, E]
        if self.registers is not None:
            x = self.registers(x)  # [B, T, E]
        if self.embedding_norm is not None:
            x = self.embedding_norm(x)
        return self._patch_dropout(x)  # in training, T becomes smaller

    def _add_class_tokens(self, x):
        return x if self.class_token is None else self.class_token(x)

    def pooled(self, tokens):
        """Computes the inputs of the heads from the output of `encode`: [B, 1, width].

        With a distillation head, [B, 2, width]. The width is E; 2E with ``pool="cls+mean"``; or
        `representation_dim`.
        """
        if self.pool == "cls":
            x = tokens[:, : self.num_class_tokens]
        elif self.pool == "map":
            x = self.attention_pool(tokens[:, self.num_prefix_tokens :])  # [B, 1, E]
        else:
            patches = tokens[:, self.num_prefix_tokens :]
            x = ops.mean(patches, axis=1, keepdims=True)  # [B, 1, E]
        if self.pool == "cls+mean":
            x = ops.concatenate([tokens[:, :1], x], axis=-1)  # [B, 1, 2E]
        if self.head_norm is not None:
            x = self.head_norm(x)
        if self.representation is not None:
            x = self.representation(x)  # [B, 1, representation_dim]
        return x

    # A head with other outputs needs another `logits` and, below, another `_create_head` and
    # `compute_output_shape`.
    def logits(self, pooled):
        """Computes the logits [B, num_classes] from the output of `pooled`.

        In training with `separate_heads`, those of both heads: [B, 2, num_classes].
        """
        logits = self.head(pooled[:, 0])
        if self.distillation_head is None:
            return logits
        distilled = self.distillation_head(pooled[:, 1])
        if self.separate_heads and compat.call_training():
            return ops.stack([logits, distilled], axis=1)
        return (logits + distilled) / 2

    def features(self, images, training=None):
        """Computes the output of `encode` without registers: [B, class tokens + N, E]."""
        tokens = self.encode(images, training)
        if self.num_registers == 0:
            return tokens
        class_tokens = tokens[:, : self.num_class_tokens]
        patches = tokens[:, self.num_prefix_tokens :]
        return ops.concatenate([class_tokens, patches], axis=1)

    def pooled_features(self, images, training=None):
        """Computes the input of the head, the output of a model without a head: [B, num_features].

        With a distillation head, this is the mean of the inputs of both heads.
        """
        tokens = self.encode(images, training, only_class_tokens=self.pool == "cls")
        return ops.mean(self.pooled(tokens), axis=1)

    def attention_maps(self, images):
        """Computes the attention weights of all tokens over all tokens: [B, L, heads, T, T]."""
        grid = self.grid(layers.image_size(images))
        x = self.embed(images, grid)
        maps = []
        for block, positions in zip(self.encoder_blocks, self.block_arguments(grid)):
            maps.append(block.attention_weights(x, **positions))  # [B, heads, T, T]
            x = block(x, **positions)
        return ops.stack(maps, axis=1)

    def block_arguments(self, grid):
        """Returns the keyword arguments of each block that depend on positions: L dicts.

        Args:
            grid: (rows, columns) of the patches.
        """
        shared = self.position_arguments(grid)
        if self.positions != "relative_table":
            return [shared] * self.num_layers
        rows = ops.arange(grid[0], dtype="int32")[None]
        columns = ops.arange(grid[1], dtype="int32")[None]
        return [{**shared, "bias": table(rows, columns)} for table in self.position_tables]

    def position_arguments(self, grid):
        """Returns the keyword arguments that depend on positions, which all blocks share.

        Args:
            grid: (rows, columns) of the patches.
        """
        arguments = {}  # class tokens and registers have no bias and no rotation
        if self.positions == "relative":
            bias = layers.grid_bias(self.row_positions, self.column_positions, grid)
            prefix_padding = (self.num_prefix_tokens, 0)
            bias = ops.pad(bias, [(0, 0), (0, 0), prefix_padding, prefix_padding])
            arguments["bias"] = bias  # [1, heads, T, T]
        if self.rotary_positions is not None:
            rotation = self.rotary_positions.of_grid(grid, self.num_prefix_tokens)
            arguments["rotation"] = rotation  # [1, 1, T, D]
        return arguments

    def grid(self, image_size):
        """Returns the (rows, columns) of patches for an image size; see `zoo.layers.image_size`."""
        if None in image_size:  # of a keras.Input, for which Keras does not run `call`
            raise ValueError(
                "The features and attention maps of a keras.Input need a known height and width; "
                f"only the model itself takes unknown ones. Received: {image_size}."
            )
        return layers.patch_grid(image_size, self.patch_size)

    # --- the layers ------------------------------------------------------------------------------

    def _check(self):
        check_choice("pool", self.pool, POOLS)
        check_choice("positions", self.positions, POSITIONS)
        check_choice(
            "representation_activation",
            self.representation_activation,
            tuple(REPRESENTATION_ACTIVATIONS),
        )
        check_positions_supported(self.positions, self.attention)
        check_at_least_1(num_layers=self.num_layers)
        if not isinstance(self.rotation, layers.RotaryGridPositions | None):
            raise ValueError(
                "rotation must be a zoo.layers.RotaryGridPositions or None. Received: "
                f"rotation={self.rotation!r}."
            )
        in_attention = self.positions in POSITIONS_IN_ATTENTION or self.rotation is not None
        if self.patch_dropout and in_attention:
            raise ValueError(
                'patch_dropout needs positions="learned" or "sinusoidal", and no rotation. '
                f"Received: patch_dropout={self.patch_dropout}, positions={self.positions!r}, "
                f"rotation={self.rotation!r}."
            )
        if len(self.input_shape) != 3 or None in self.input_shape:
            raise ValueError(
                f"input_shape must be (H, W, C). Received: input_shape={self.input_shape}."
            )
        numbers = (0, 1, 2) if self.pool in ("mean", "map") else (1, 2)
        if self.num_class_tokens not in numbers:
            raise ValueError(
                "num_class_tokens must be 1 or 2, or 0 with pool='mean' and pool='map'. "
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
        if self.num_class_tokens:
            self.class_token = layers.ClassToken(
                self.num_class_tokens, dtype=self.dtype_policy, name="class_token"
            )
        self._create_positions()
        self._dropout = layers.Dropout(self.dropout, dtype=self.dtype_policy, name="dropout")
        self.registers = None
        if self.num_registers:
            self.registers = layers.RegisterTokens(
                self.num_registers,
                self.num_class_tokens,
                dtype=self.dtype_policy,
                name="registers",
            )
        self.embedding_norm = None
        if self.normalize_embeddings:
            self.embedding_norm = self._norm_layer("embedding_norm")
        self._patch_dropout = layers.PatchDropout(
            self.patch_dropout,
            self.num_prefix_tokens,
            dtype=self.dtype_policy,
            name="patch_dropout",
        )

    def _create_positions(self):
        """`patch_positions`, `position_tables` or those of both axes; and `rotary_positions`."""
        grid = layers.patch_grid(self.input_shape[:2], self.patch_size)
        self.position_tables = []  # of each block
        if self.positions == "learned":
            self.patch_positions = layers.LearnedPositions(
                grid,
                self.num_class_tokens if self.prefix_positions else 0,
                self.interpolation,
                dtype=self.dtype_policy,
                name="patch_positions",
            )
        elif self.positions == "sinusoidal":
            self.patch_positions = layers.SinusoidalGridPositions(
                grid, dtype=self.dtype_policy, name="patch_positions"
            )
        elif self.positions == "relative_table":
            self.position_tables = [
                layers.RelativePositionTable(
                    self.num_heads,
                    grid,
                    self.num_prefix_tokens,
                    dtype=self.dtype_policy,
                    name=f"encoder_{index}_positions",
                )
                for index in range(self.num_layers)
            ]
        elif self.positions == "relative":
            self.row_positions = layers.RelativePositions(
                self.num_heads, dtype=self.dtype_policy, name="row_positions"
            )
            self.column_positions = layers.RelativePositions(
                self.num_heads, dtype=self.dtype_policy, name="column_positions"
            )

        self.rotary_positions = self._rotary_positions()

    def _rotary_positions(self):
        """A copy of `rotation` in the dtype of the model; None if nothing is rotated."""
        rotation = self.rotation
        if rotation is None and self.positions == "rotary":
            key_dim = head_width(self.embed_dim, self.num_heads, self.key_dim)
            rotation = layers.RotaryGridPositions(key_dim)
        if rotation is None:
            return None
        config = {"dtype": self.dtype_policy, "name": "rotary_positions"}
        return type(rotation).from_config({**rotation.get_config(), **config})

    def _create_encoder(self):
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
                stochastic_depth=self._stochastic_depth_rate(index),
                layer_scale=self.layer_scale,
                key_dim=self.key_dim,
                qkv_bias=self.qkv_bias,
                epsilon=self.epsilon,
                kernel_initializer=self.kernel_initializer,
                attention=self.attention,
                dtype=self.dtype_policy,
                name=f"encoder_{index}",
            )
            for index in range(self.num_layers)
        ]
        self.encoder_norm = None
        if self.norm == "pre" and not self.normalize_pooled:
            self.encoder_norm = self._norm_layer("encoder_norm")

    def _stochastic_depth_rate(self, index):
        """The rate of a block: it grows linearly from 0 at the first block."""
        last = self.num_layers - 1
        if index == last:  # which may also be the first
            return self.stochastic_depth
        return self.stochastic_depth * index / last

    def _create_head(self):
        self.attention_pool = None
        if self.pool == "map":
            self.attention_pool = layers.AttentionPool(
                self.embed_dim,
                self.num_heads,
                self.ff_dim,
                self.activation,
                key_dim=self.key_dim,
                epsilon=self.epsilon,
                kernel_initializer=self.kernel_initializer,
                norm_type=self.norm_type,
                dtype=self.dtype_policy,
                name="attention_pool",
            )
        self.head_norm = None
        if self.normalize_pooled:
            self.head_norm = self._norm_layer("head_norm")
        self.representation = None
        if self.representation_dim:
            self.representation = keras.layers.Dense(
                self.representation_dim,
                activation=REPRESENTATION_ACTIVATIONS[self.representation_activation],
                kernel_initializer=self.kernel_initializer,
                dtype=self.dtype_policy,
                name="representation",
            )
        self.head = self._classification_head("head")
        self.distillation_head = None
        if self.pool == "cls" and self.num_class_tokens == 2:
            self.distillation_head = self._classification_head("distillation_head")

    def _classification_head(self, name):
        return classification_head(self.num_classes, dtype=self.variable_dtype, name=name)

    def _norm_layer(self, name):
        return layers.normalization_layer(
            self.norm_type, self.epsilon, dtype=self.dtype_policy, name=name
        )

    def build(self, input_shape=None):
        pooled = (None, self._pooled_width)
        shapes = [
            (self.patch_embed, (None, *self.input_shape)),
            (self.head_norm, pooled),
            (self.representation, pooled),
        ]
        for layer, shape in shapes:
            if layer is not None and not layer.built:
                layer.build(shape)
        for layer in compat.outermost_layers(self):
            is_head = isinstance(layer, keras.layers.Dense)  # also one that a subclass creates
            if is_head and not layer.built:
                layer.build((None, self.num_features))
        super().build()  # the inputs of all other layers are tokens

    def compute_output_shape(self, input_shape):
        layers.patch_grid(input_shape[1:3], self.patch_size)  # checks the size
        return (input_shape[0], self.num_classes or self.num_features)

    @property
    def num_features(self):
        """Width of the input of the head."""
        return self.representation_dim or self._pooled_width

    @property
    def _pooled_width(self):
        return 2 * self.embed_dim if self.pool == "cls+mean" else self.embed_dim

    def input_signature(self):
        return keras.InputSpec(self.variable_dtype, (None, *self.input_shape), name="images")


@describes_arguments_of(ViT)
def vit(size=None, *, input_shape=(224, 224, 3), num_classes=1000, patch_size=None, **arguments):
    """Builds a Vision Transformer of a published size, or of any size by hand.

    ``zoo.vit("B/16", num_classes=10)`` is ViT-B with patches of 16x16 pixels. Without a size, give
    `patch_size`, `embed_dim`, `num_heads` and `num_layers`. Other arguments override those of the
    size: ``zoo.vit("Ti/4", input_shape=(32, 32, 3), num_layers=9)``.

    Args:
        size: "Ti", "S", "S+", "B", "L" or "H", a slash and the patch size in pixels; or None.
        input_shape: (H, W, C) of the images.
        num_classes: number of classes; 0 for a model without a head.
        patch_size: side of a patch in pixels. Defaults to that of the size.
        **arguments: of `zoo.models.ViT`.

    Returns:
        A built `zoo.models.ViT`.

    Raises:
        ValueError: if the size is unknown or incomplete, or if arguments are inconsistent.
    """
    pixels = 16
    if size is not None:
        side = str(size).rpartition("/")[2]
        if side.isdecimal():
            pixels = int(side)
    # All sizes, with the patch size of `size`: {"Ti/16": ..., "S/16": ..., ...}. Errors list them.
    sizes = {}
    for name, row in SIZES.items():
        sizes[f"{name}/{pixels}"] = {**row, "patch_size": pixels}
    if patch_size is not None:
        if size in sizes and patch_size != pixels:
            raise ValueError(f"The size {size!r} conflicts with patch_size={patch_size}.")
        arguments["patch_size"] = patch_size
    required = ("patch_size", "embed_dim", "num_layers", "num_heads")
    arguments = arguments_of_size("vit", size, sizes, arguments, required)
    model = ViT(input_shape, num_classes, **arguments)
    model.build((None, *input_shape))
    return model
