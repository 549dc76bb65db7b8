"""The translation Transformer. Source: Vaswani et al. 2017, "Attention Is All You Need".

Axes: B sentences, S source tokens, T target tokens, K hypotheses of a sentence, E model width,
V target vocabulary.
"""

import math

import keras
from keras import ops

from zoo import compat
from zoo.errors import as_number, check_at_least_1, check_choice
from zoo.layers import (
    Cache,
    Dropout,
    TokenEmbedding,
    TransformerDecoder,
    TransformerEncoder,
    normalization_layer,
    padding_mask,
)
from zoo.layers.multi_head_attention import head_width
from zoo.models.autoregressive import AutoregressiveModel
from zoo.models.base import check_positions_supported
from zoo.models.sizes import arguments_of_size, describes_arguments_of
from zoo.models.token_positions import (
    added_positions,
    check_positions,
    create_position_layer,
    position_arguments,
)

SIZES = {
    # Vaswani et al. 2017, table 3
    "base": {"embed_dim": 512, "num_layers": 6, "num_heads": 8, "ff_dim": 2048, "dropout": 0.1},
    "big": {"embed_dim": 1024, "num_layers": 6, "num_heads": 16, "ff_dim": 4096, "dropout": 0.3},
    # Firefox's translation models: mozilla/translations, pipeline/train/configs/model/student.*.yml
    "student_tiny": {
        "embed_dim": 256,
        "num_layers": 6,
        "num_decoder_layers": 2,
        "num_heads": 8,
        "ff_dim": 1536,
        "decoder": "ssru",
    },
    "student_base_memory": {
        "embed_dim": 384,
        "num_layers": 6,
        "num_decoder_layers": 4,
        "num_heads": 8,
        "ff_dim": 1536,
        "decoder": "ssru",
    },
    "student_base": {
        "embed_dim": 512,
        "num_layers": 6,
        "num_decoder_layers": 2,
        "num_heads": 8,
        "ff_dim": 2048,
        "decoder": "ssru",
    },
    # T5 1.1: google-research/text-to-text-transfer-transformer, released_checkpoints.md
    "t5_1.1_small": {
        "embed_dim": 512,
        "num_layers": 8,
        "num_heads": 6,
        "key_dim": 64,
        "ff_dim": 1024,
        "activation": "geglu_tanh",
        "norm": "pre",
        "norm_type": "rms",
        "positions": "relative",
        "shared": "embeddings",
        "scale_embeddings": False,
        "qkv_bias": False,
        "use_bias": False,
    },
}


@keras.saving.register_keras_serializable("zoo")
class Transformer(AutoregressiveModel):
    """An encoder-decoder Transformer that translates: source tokens in, target tokens out.

    docs/published_models.md lists which published models set which of the options.

    Args:
        source_vocab_size: number of source tokens.
        target_vocab_size: V, number of target tokens.
        embed_dim: E, width of the tokens in all blocks.
        num_heads: number of attention heads.
        num_layers: number of encoder blocks.
        ff_dim: hidden width of the feed-forward networks. Defaults to `4 * embed_dim`.
        num_decoder_layers: number of decoder blocks. Defaults to `num_layers`.
        decoder_num_heads: number of heads in decoder blocks. Defaults to `num_heads`.
        decoder_ff_dim: hidden width in decoder blocks. Defaults to `ff_dim`.
        decoder: "attention"; or "ssru", decoder blocks with a recurrent layer in place of
            self-attention, `zoo.layers.SSRU`, which take less time and memory to decode. Defaults
            to "attention".
        dropout: rate in [0, 1) on the embeddings with positions, on the output of each sub-layer
            and on the hidden units of the feed-forward networks (section 5.4). Defaults to 0.1.
        attention_dropout: rate in [0, 1) on the attention weights. Defaults to 0.
        norm: "pre", normalization before each sub-layer and after the last block; or "post", after
            each residual sum. Defaults to "post".
        norm_type: "layer" or "rms" (Zhang and Sennrich 2019) normalization. Defaults to "layer".
        activation: of the feed-forward networks; see `zoo.layers.FeedForward`. Defaults to "relu".
        positions: "learned"; "sinusoidal"; a `zoo.layers.SinusoidalPositions` of another layout or
            offset; "relative", a learned bias on the scores of self-attention (Raffel et al. 2019,
            section 2.1); or "rotary" (Su et al. 2021). Defaults to "sinusoidal".
        max_length: number of learned positions, and largest number of tokens of a source or target
            for `zoo.tasks.translator.Translator`. Defaults to 512.
        shared: "target", the target embedding is also the matrix of the output layer; "all", so is
            the source embedding, for equal vocabularies (section 3.4); "embeddings", source and
            target have the same embedding, but not the output layer; or "none". Defaults to
            "target".
        pad_id: padding token. Defaults to 0.
        scale_embeddings: whether embeddings are multiplied by √E (section 3.4). Defaults to `True`.
        normalize_embeddings: whether to normalize the input of the first blocks (Liu et al. 2020,
            mBART). Defaults to `False`.
        logits_bias: whether the logits have a learned bias. Defaults to `False`.
        key_dim: width of a head. Defaults to `embed_dim / num_heads`.
        qkv_bias: whether projections to queries, keys and values have biases. Defaults to `True`.
        use_bias: whether the other projections of the blocks have biases. Defaults to `True`.
        epsilon: added to the variance, or mean square, in normalizations. Defaults to 1e-6.
        kernel_initializer: initializer of the matrices. Defaults to "glorot_uniform" (Xavier).
        remat: whether training recomputes each block for its gradient, to take less memory, without
            second derivatives; see docs/long_sequences.md. Defaults to `False`.
        **kwargs: `name`, `dtype` and `trainable`; see `keras.Model`.

    Inputs: a dict of token ids: "source" int [B, S], "target" int [B, T], the target beginning with
    the start token.

    Output: logits [B, T, V] of the token that follows each target token, float32 in mixed precision
    as well.

    Raises:
        ValueError: if arguments are inconsistent or a name is unknown; on a call, if there are
            more tokens than learned positions.
    """

    def __init__(
        self,
        source_vocab_size,
        target_vocab_size,
        embed_dim,
        num_heads,
        num_layers,
        ff_dim=None,
        *,
        num_decoder_layers=None,
        decoder_num_heads=None,
        decoder_ff_dim=None,
        decoder="attention",
        dropout=0.1,
        attention_dropout=0.0,
        norm="post",
        norm_type="layer",
        activation="relu",
        positions="sinusoidal",
        max_length=512,
        shared="target",
        pad_id=0,
        scale_embeddings=True,
        normalize_embeddings=False,
        logits_bias=False,
        key_dim=None,
        qkv_bias=True,
        use_bias=True,
        epsilon=1e-6,
        kernel_initializer="glorot_uniform",
        remat=False,
        **kwargs,
    ):
        super().__init__(autocast=False, **kwargs)  # token ids are not rounded, also if float
        self.source_vocab_size = source_vocab_size
        self.target_vocab_size = target_vocab_size
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.num_layers = num_layers
        self.ff_dim = ff_dim
        self.num_decoder_layers = num_decoder_layers
        self.decoder_num_heads = decoder_num_heads
        self.decoder_ff_dim = decoder_ff_dim
        self.decoder = decoder
        self.dropout = dropout
        self.attention_dropout = attention_dropout
        self.norm = norm
        self.norm_type = norm_type
        self.activation = activation
        self.positions = positions
        self.max_length = max_length
        self.shared = shared
        self.pad_id = pad_id
        self.scale_embeddings = scale_embeddings
        self.normalize_embeddings = normalize_embeddings
        self.logits_bias = logits_bias
        self.key_dim = key_dim
        self.qkv_bias = qkv_bias
        self.use_bias = use_bias
        self.epsilon = epsilon
        self.kernel_initializer = kernel_initializer
        self.remat = remat
        self._check()
        self._create_embeddings()
        self._create_positions()
        self._dropout = Dropout(dropout, dtype=self.dtype_policy, name="dropout")
        self._create_blocks()

    def call(self, inputs, training=None):  # Keras passes `training` on to all layers
        memory = self.encode(inputs["source"])  # [B, S, E]
        x = self._dropout(self.decoder_embedding(inputs["target"]))  # [B, T, E]
        arguments = self._decoder_arguments(inputs)
        for block in self.decoder_blocks:
            x = self.apply_block(block, x, memory, **arguments)
        return self.logits(x)  # [B, T, V]

    def encode(self, source, training=None):
        """Computes the output of the encoder for token ids [B, S]: [B, S, E]."""
        with compat.call_context(training):
            x = self._dropout(self.encoder_embedding(source))  # [B, S, E]
            positions = position_arguments(self.encoder_positions, ops.shape(source)[1])
            mask = padding_mask(source != self.pad_id)  # [B, 1, 1, S]
            for block in self.encoder_blocks:
                x = self.apply_block(block, x, mask=mask, **positions)
            if self.encoder_norm is not None:
                x = self.encoder_norm(x)
            return x

    def _decoder_arguments(self, inputs):
        """The keyword arguments of all decoder blocks."""
        positions = position_arguments(self.decoder_positions, ops.shape(inputs["target"])[1])
        memory_mask = padding_mask(inputs["source"] != self.pad_id)  # [B, 1, 1, S]
        return {"memory_mask": memory_mask, **positions}

    def logits(self, x):
        logits = super().logits(x)
        if self.logits_bias:
            logits = logits + self.output_bias
        return logits

    def start(self, source, length, num_hypotheses=1):
        """Encodes the source and allocates the cache: a `Cache` to be passed to `step`.

        Args:
            source: token ids [B, S].
            length: the largest number of tokens of a hypothesis, the start token included.
            num_hypotheses: K.

        Raises:
            ValueError: if there are fewer learned positions than `length`.
        """
        self.check_length(length)
        memory = self.encode(source)  # [B, S, E]
        blocks = [block.create_cache(length, memory) for block in self.decoder_blocks]
        shape = (ops.shape(source)[0], num_hypotheses, length)
        return Cache.create(0, shape, blocks, padding_mask(source != self.pad_id))

    def step_among(self, candidates):
        """Returns a function like `step` for a shortlist of target tokens of each sentence.

        Args:
            candidates: int [B, C], the shortlists, filled up with padding.

        Returns:
            Function (places int [B, K], `Cache`) -> (logits [B, K, C], `Cache`). Tokens are given
            by their places in the shortlist of their sentence.
        """
        matrix = self.decoder_embedding.tokens(candidates)  # [B, C, E]
        bias = ops.cast(0.0, self.variable_dtype)
        if self.logits_bias:
            bias = ops.take(self.output_bias, candidates)
        bias = ops.where(candidates == self.pad_id, -math.inf, bias)  # padding is never chosen
        bias = bias[:, None]  # [B, 1, C]

        def step(places, cache):
            tokens = ops.take_along_axis(candidates, places, axis=1)  # [B, K]
            x, cache = self.next_output(tokens, cache)
            if self.decoder_norm is not None:
                x = self.decoder_norm(x)
            logits = ops.einsum("bke,bce->bkc", x, matrix)
            return ops.cast(logits, bias.dtype) + bias, cache

        return step

    def cross_attention_maps(self, inputs):
        """Computes the attention weights over the source: [B, decoder blocks, heads, T, S]."""
        memory = self.encode(inputs["source"])  # [B, S, E]
        x = self._dropout(self.decoder_embedding(inputs["target"]))  # [B, T, E]
        arguments = self._decoder_arguments(inputs)
        maps = []
        for block in self.decoder_blocks:
            maps.append(block.cross_attention_weights(x, memory, **arguments))  # [B, heads, T, S]
            x = self.apply_block(block, x, memory, **arguments)
        return ops.stack(maps, axis=1)

    # --- the layers ------------------------------------------------------------------------------

    def _check(self):
        check_at_least_1(
            source_vocab_size=self.source_vocab_size,
            target_vocab_size=self.target_vocab_size,
            num_layers=self.num_layers,
        )
        if self.num_decoder_layers is not None:
            check_at_least_1(num_decoder_layers=self.num_decoder_layers)
        if self.decoder_num_heads is not None:
            check_at_least_1(decoder_num_heads=self.decoder_num_heads)
        if self.decoder_ff_dim is not None:
            check_at_least_1(decoder_ff_dim=self.decoder_ff_dim)
        as_number("pad_id", self.pad_id, int)
        check_choice("shared", self.shared, ("none", "target", "embeddings", "all"))
        check_choice("decoder", self.decoder, ("attention", "ssru"))
        check_positions(self.positions, self.max_length)
        check_positions_supported(self.positions, self._decoder_attention)
        if self._shares_embeddings and self.source_vocab_size != self.target_vocab_size:
            raise ValueError(
                f'shared="{self.shared}" needs equal vocabulary sizes. Received: '
                f"source_vocab_size={self.source_vocab_size}, "
                f"target_vocab_size={self.target_vocab_size}."
            )

    @property
    def _shares_embeddings(self):
        return self.shared in ("all", "embeddings")

    @property
    def _decoder_attention(self):
        """The argument `attention` of the decoder blocks."""
        return "ssru" if self.decoder == "ssru" else "softmax"

    def _create_embeddings(self):
        self.decoder_embedding = TokenEmbedding(
            self.target_vocab_size,
            self.embed_dim,
            positions=added_positions(self.positions),
            max_length=self.max_length,
            scale=self.scale_embeddings,
            normalize=self.normalize_embeddings,
            epsilon=self.epsilon,
            norm_type=self.norm_type,
            dtype=self.dtype_policy,
            name="decoder_embedding",
        )
        self.encoder_embedding = TokenEmbedding(
            self.source_vocab_size,
            self.embed_dim,
            positions=added_positions(self.positions),
            max_length=self.max_length,
            scale=self.scale_embeddings,
            normalize=self.normalize_embeddings,
            epsilon=self.epsilon,
            norm_type=self.norm_type,
            tokens=self.decoder_embedding.tokens if self._shares_embeddings else None,
            dtype=self.dtype_policy,
            name="encoder_embedding",
        )
        self.output_projection = None
        if self.shared in ("embeddings", "none"):
            self.output_projection = self.output_layer(self.target_vocab_size)

    def _create_positions(self):
        self.encoder_positions = create_position_layer(
            self.positions,
            self.num_heads,
            head_width(self.embed_dim, self.num_heads, self.key_dim),
            bidirectional=True,
            dtype=self.dtype_policy,
            name="encoder_positions",
        )
        decoder_num_heads = self.decoder_num_heads or self.num_heads
        self.decoder_positions = create_position_layer(
            self.positions,
            decoder_num_heads,
            head_width(self.embed_dim, decoder_num_heads, self.key_dim),
            bidirectional=False,
            dtype=self.dtype_policy,
            name="decoder_positions",
        )

    def _create_blocks(self):
        self.encoder_blocks = [
            TransformerEncoder(
                self.embed_dim,
                self.num_heads,
                self.ff_dim,
                dropout=self.dropout,
                attention_dropout=self.attention_dropout,
                norm=self.norm,
                norm_type=self.norm_type,
                activation=self.activation,
                key_dim=self.key_dim,
                qkv_bias=self.qkv_bias,
                use_bias=self.use_bias,
                epsilon=self.epsilon,
                kernel_initializer=self.kernel_initializer,
                dtype=self.dtype_policy,
                name=f"encoder_{index}",
            )
            for index in range(self.num_layers)
        ]
        self.decoder_blocks = [
            TransformerDecoder(
                self.embed_dim,
                self.decoder_num_heads or self.num_heads,
                self.decoder_ff_dim or self.ff_dim,
                dropout=self.dropout,
                attention_dropout=self.attention_dropout,
                norm=self.norm,
                norm_type=self.norm_type,
                activation=self.activation,
                key_dim=self.key_dim,
                qkv_bias=self.qkv_bias,
                use_bias=self.use_bias,
                epsilon=self.epsilon,
                kernel_initializer=self.kernel_initializer,
                attention=self._decoder_attention,
                dtype=self.dtype_policy,
                name=f"decoder_{index}",
            )
            for index in range(self.num_decoder_layers or self.num_layers)
        ]
        self.encoder_norm = None
        self.decoder_norm = None
        if self.norm == "pre":
            self.encoder_norm = normalization_layer(
                self.norm_type, self.epsilon, dtype=self.dtype_policy, name="encoder_norm"
            )
            self.decoder_norm = normalization_layer(
                self.norm_type, self.epsilon, dtype=self.dtype_policy, name="decoder_norm"
            )

    def build(self, input_shape=None):
        super().build()
        if self.logits_bias and not self.built:
            shape = (self.target_vocab_size,)
            self.output_bias = self.add_weight(shape, "zeros", autocast=False, name="output_bias")

    def input_signature(self):
        return {
            "source": keras.InputSpec("int32", (None, None), name="source"),
            "target": keras.InputSpec("int32", (None, None), name="target"),
        }

    def compute_output_shape(self, input_shape):
        return (*input_shape["target"], self.target_vocab_size)


@describes_arguments_of(Transformer)
def transformer(size=None, *, source_vocab_size, target_vocab_size, **arguments):
    """Builds a translation Transformer of a published size, or of any size by hand.

    ``zoo.transformer("base", source_vocab_size=8000, target_vocab_size=8000)``. Without a size,
    give `embed_dim`, `num_heads` and `num_layers`.

    Args:
        size: "base" or "big" of the paper; "student_tiny", "student_base_memory" or
            "student_base", the sizes of Firefox's translation models; "t5_1.1_small"; or None.
        source_vocab_size: number of source tokens.
        target_vocab_size: number of target tokens.
        **arguments: of `zoo.models.Transformer`; they override those of the size.

    Returns:
        A built `zoo.models.Transformer`.

    Raises:
        ValueError: if the size is unknown or incomplete, or if arguments are inconsistent.
    """
    arguments = arguments_of_size("transformer", size, SIZES, arguments)
    model = Transformer(source_vocab_size, target_vocab_size, **arguments)
    model.build()
    return model
