"""The causal language model: decoder blocks without a memory.

Sources: Radford et al. 2018, "Improving Language Understanding by Generative Pre-Training", section
3.1; Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.3.

Axes: B sequences, T tokens, K hypotheses of a sequence, E model width, V vocabulary.
"""

from numbers import Integral

import keras
from keras import ops

from zoo.errors import check_at_least_1
from zoo.layers import Cache, Dropout, TokenEmbedding, TransformerDecoder, normalization_layer
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

SIZES = {  # Radford et al. 2019, table 2; heads as in the published models
    "gpt2": {"embed_dim": 768, "num_layers": 12, "num_heads": 12},
    "gpt2_medium": {"embed_dim": 1024, "num_layers": 24, "num_heads": 16},
    "gpt2_large": {"embed_dim": 1280, "num_layers": 36, "num_heads": 20},
    "gpt2_xl": {"embed_dim": 1600, "num_layers": 48, "num_heads": 25},
}


@keras.saving.register_keras_serializable("zoo")
class CausalLM(AutoregressiveModel):
    """A decoder-only Transformer that predicts the next token.

    The defaults are those of GPT-2 (Radford et al. 2019).

    Args:
        vocab_size: V, number of tokens.
        embed_dim: E, width of the tokens in all blocks.
        num_heads: number of attention heads.
        num_layers: number of decoder blocks.
        ff_dim: hidden width of the feed-forward networks. Defaults to `4 * embed_dim`.
        dropout: rate in [0, 1) on the embeddings with positions, on the output of each sub-layer
            and on the hidden units of the feed-forward networks. Defaults to 0.1.
        attention_dropout: rate in [0, 1) on the attention weights. Defaults to 0.
        norm: "pre", normalization before each sub-layer and after the last block; or "post", after
            each residual sum. Defaults to "pre".
        norm_type: "layer" or "rms" (Zhang and Sennrich 2019) normalization. Defaults to "layer".
        activation: of the feed-forward networks; see `zoo.layers.FeedForward`. Defaults to
            "gelu_tanh".
        positions: "learned"; "sinusoidal"; a `zoo.layers.SinusoidalPositions` of another layout or
            offset; "relative", a learned bias on the scores of self-attention (Raffel et al. 2019,
            section 2.1); or "rotary" (Su et al. 2021). Defaults to "learned".
        max_length: number of learned positions, and largest number of tokens of a text for
            `zoo.tasks.generator.TextGenerator`. Defaults to 1024.
        tie_weights: whether the token embedding is also the matrix of the output layer. Defaults to
            `True`.
        attention: "softmax", "blockwise" or "linear"; see `zoo.layers.MultiHeadSelfAttention`.
            Defaults to "softmax".
        key_dim: width of a head. Defaults to `embed_dim / num_heads`.
        qkv_bias: whether projections to queries, keys and values have biases. Defaults to `True`.
        epsilon: added to the variance, or mean square, in normalizations. Defaults to 1e-5.
        kernel_initializer: initializer of the matrices. Defaults to "glorot_uniform" (Xavier).
        remat: whether training recomputes each block for its gradient, to take less memory, without
            second derivatives; see docs/long_sequences.md. Defaults to `False`.
        **kwargs: `name`, `dtype` and `trainable`; see `keras.Model`.

    Input: token ids, int [B, T]. Padding comes after a text, which does not attend to it.

    Output: logits [B, T, V] of the token that follows each token, float32 in mixed precision as
    well.

    Raises:
        ValueError: if arguments are inconsistent or a name is unknown; on a call, if there are
            more tokens than learned positions.
    """

    def __init__(
        self,
        vocab_size,
        embed_dim,
        num_heads,
        num_layers,
        ff_dim=None,
        *,
        dropout=0.1,
        attention_dropout=0.0,
        norm="pre",
        norm_type="layer",
        activation="gelu_tanh",
        positions="learned",
        max_length=1024,
        tie_weights=True,
        attention="softmax",
        key_dim=None,
        qkv_bias=True,
        epsilon=1e-5,
        kernel_initializer="glorot_uniform",
        remat=False,
        **kwargs,
    ):
        super().__init__(autocast=False, **kwargs)  # token ids are not rounded, also if float
        self.vocab_size = vocab_size
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.num_layers = num_layers
        self.ff_dim = ff_dim
        self.dropout = dropout
        self.attention_dropout = attention_dropout
        self.norm = norm
        self.norm_type = norm_type
        self.activation = activation
        self.positions = positions
        self.max_length = max_length
        self.tie_weights = tie_weights
        self.attention = attention
        self.key_dim = key_dim
        self.qkv_bias = qkv_bias
        self.epsilon = epsilon
        self.kernel_initializer = kernel_initializer
        self.remat = remat
        self.input_spec = keras.layers.InputSpec(ndim=2)
        check_at_least_1(vocab_size=vocab_size, num_layers=num_layers)
        check_positions(positions, max_length)
        check_positions_supported(positions, attention)
        self.decoder_embedding = TokenEmbedding(
            vocab_size,
            embed_dim,
            positions=added_positions(positions),
            max_length=max_length,
            scale=False,
            dtype=self.dtype_policy,
            name="decoder_embedding",
        )
        self.decoder_positions = create_position_layer(
            positions,
            num_heads,
            head_width(embed_dim, num_heads, key_dim),
            bidirectional=False,
            dtype=self.dtype_policy,
            name="decoder_positions",
        )
        self._dropout = Dropout(dropout, dtype=self.dtype_policy, name="dropout")
        self.decoder_blocks = [
            TransformerDecoder(
                embed_dim,
                num_heads,
                ff_dim,
                cross_attention=False,
                dropout=dropout,
                attention_dropout=attention_dropout,
                norm=norm,
                norm_type=norm_type,
                activation=activation,
                key_dim=key_dim,
                qkv_bias=qkv_bias,
                epsilon=epsilon,
                kernel_initializer=kernel_initializer,
                attention=attention,
                dtype=self.dtype_policy,
                name=f"decoder_{index}",
            )
            for index in range(num_layers)
        ]
        self.decoder_norm = None
        if norm == "pre":
            self.decoder_norm = normalization_layer(
                norm_type, epsilon, dtype=self.dtype_policy, name="decoder_norm"
            )
        self.output_projection = None
        if not tie_weights:
            self.output_projection = self.output_layer(vocab_size)

    def call(self, tokens, training=None):  # Keras passes `training` on to all layers
        x = self._dropout(self.decoder_embedding(tokens))  # [B, T, E]
        positions = position_arguments(self.decoder_positions, ops.shape(tokens)[1])
        for block in self.decoder_blocks:
            x = self.apply_block(block, x, **positions)
        return self.logits(x)  # [B, T, V]

    def start(self, tokens, length, num_hypotheses=1):
        """Reads the beginning of each text and allocates the cache, to be passed to `step`.

        Args:
            tokens: token ids [B, P], all tokens of a prompt except the last, which is the input of
                the first step. P may be 0.
            length: the largest number of tokens of a text, the prompt included.
            num_hypotheses: K.

        Raises:
            ValueError: if there are fewer learned positions than `length`, or if `length` leaves no
                position for a step.
        """
        self.check_length(length)
        batch_size, num_read = ops.shape(tokens)
        are_known = isinstance(num_read, Integral) and isinstance(length, Integral)
        if are_known and num_read >= length:
            raise ValueError(
                "length must be greater than the number of tokens read. "
                f"Received: length={length}, {num_read} tokens."
            )
        queries = ops.arange(num_read, dtype="int32")
        keys = ops.arange(length, dtype="int32")
        mask = (keys <= queries[:, None])[None, None]  # causal: [1, 1, P, length]
        x = self.decoder_embedding(tokens)  # [B, P, E]
        positions = position_arguments(self.decoder_positions, length, queries)
        block_caches = []
        for block in self.decoder_blocks:
            cache = block.create_cache(length, batch_size=batch_size)
            if tokens.shape[1] != 0:
                x, cache = block.step(x, cache, 0, mask, **positions)
            block_caches.append(cache)
        return Cache.create(num_read, (batch_size, num_hypotheses, length), block_caches)

    def input_signature(self):
        return keras.InputSpec("int32", (None, None), name="tokens")

    def compute_output_shape(self, input_shape):
        return (*input_shape, self.vocab_size)


@describes_arguments_of(CausalLM)
def causal_lm(size=None, *, vocab_size, **arguments):
    """Builds a causal language model of a published size, or of any size by hand.

    ``zoo.causal_lm("gpt2", vocab_size=50257)``. Without a size, give `embed_dim`, `num_heads` and
    `num_layers`.

    Args:
        size: "gpt2", "gpt2_medium", "gpt2_large", "gpt2_xl" or None.
        vocab_size: number of tokens.
        **arguments: of `zoo.models.CausalLM`; they override those of the size.

    Returns:
        A built `zoo.models.CausalLM`.

    Raises:
        ValueError: if the size is unknown or incomplete, or if arguments are inconsistent.
    """
    arguments = arguments_of_size("causal_lm", size, SIZES, arguments)
    model = CausalLM(vocab_size, **arguments)
    model.build()
    return model
