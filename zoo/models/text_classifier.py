"""The text classifier: an encoder with a head. Source: Devlin et al. 2018, "BERT: Pre-training of
Deep Bidirectional Transformers for Language Understanding".

Axes: B texts, T tokens, E model width.
"""

import keras
from keras import ops

from zoo import compat
from zoo.dtypes import at_least_float32
from zoo.errors import as_number, check_at_least_1, check_choice
from zoo.layers import (
    Dropout,
    TokenEmbedding,
    TransformerEncoder,
    normalization_layer,
    padding_mask,
)
from zoo.layers.multi_head_attention import head_width
from zoo.models.base import TransformerModel, classification_head
from zoo.models.sizes import arguments_of_size, describes_arguments_of
from zoo.models.token_positions import (
    added_positions,
    check_positions,
    create_position_layer,
    position_arguments,
)

SIZES = {
    # Devlin et al. 2018, section 3
    "bert_base": {"embed_dim": 768, "num_layers": 12, "num_heads": 12},
    "bert_large": {"embed_dim": 1024, "num_layers": 24, "num_heads": 16},
    # Turc et al. 2019, "Well-Read Students Learn Better", table 1; heads as in the published models
    "bert_tiny": {"embed_dim": 128, "num_layers": 2, "num_heads": 2},
    "bert_mini": {"embed_dim": 256, "num_layers": 4, "num_heads": 4},
    "bert_small": {"embed_dim": 512, "num_layers": 4, "num_heads": 8},
    "bert_medium": {"embed_dim": 512, "num_layers": 8, "num_heads": 8},
}
POOLS = ("cls", "mean", "max")


@keras.saving.register_keras_serializable("zoo")
class EncoderClassifier(TransformerModel):
    """An encoder-only Transformer that classifies texts.

    The defaults are those of BERT (Devlin et al. 2018).

    Args:
        vocab_size: number of tokens.
        num_classes: number of classes; 0 for a model without a head, which returns features.
        embed_dim: E, width of the tokens in all blocks.
        num_heads: number of attention heads.
        num_layers: number of encoder blocks.
        ff_dim: hidden width of the feed-forward networks. Defaults to `4 * embed_dim`.
        dropout: rate in [0, 1) on the embeddings, on the output of each sub-layer, on the hidden
            units of the feed-forward networks and on the input of the head. Defaults to 0.1.
        attention_dropout: rate in [0, 1) on the attention weights. Defaults to 0.1.
        norm: "pre", normalization before each sub-layer and after the last block; or "post", after
            each residual sum. Defaults to "post".
        norm_type: "layer" or "rms" (Zhang and Sennrich 2019) normalization. Defaults to "layer".
        activation: of the feed-forward networks; see `zoo.layers.FeedForward`. Defaults to "gelu".
        positions: "learned"; "sinusoidal"; a `zoo.layers.SinusoidalPositions` of another layout or
            offset; "relative", a learned bias on the scores of self-attention (Raffel et al. 2019,
            section 2.1); or "rotary" (Su et al. 2021). Defaults to "learned".
        max_length: number of learned positions, and largest number of tokens of a text for
            `zoo.tasks.classifier.TextClassifier`. Defaults to 512.
        num_token_types: number of embeddings of token types (Devlin et al. 2018, section 3). All
            tokens have type 0. With 0, there are no such embeddings. Defaults to 2.
        pool: input of the head: "cls", the first token; "mean", the mean of the real tokens; or
            "max", their maximum (Reimers and Gurevych 2019, "Sentence-BERT", section 3). Defaults
            to "cls".
        pooler: whether a dense layer comes before the head, as in BERT. Defaults to `True`.
        pooler_activation: its activation; "relu" in DistilBERT (Sanh et al. 2019). Defaults to
            "tanh".
        pad_id: padding token. Defaults to 0.
        key_dim: width of a head. Defaults to `embed_dim / num_heads`.
        qkv_bias: whether projections to queries, keys and values have biases. Defaults to `True`.
        epsilon: added to the variance, or mean square, in normalizations. Defaults to 1e-12.
        kernel_initializer: initializer of the matrices. Defaults to "glorot_uniform" (Xavier).
        remat: whether training recomputes each block for its gradient, to take less memory, without
            second derivatives; see docs/long_sequences.md. Defaults to `False`.
        **kwargs: `name`, `dtype` and `trainable`; see `keras.Model`.

    Input: token ids, int [B, T], the first of each text being the start token.

    Output: logits [B, num_classes], float32 in mixed precision as well. Without a head:
    `pooled_features`.

    Raises:
        ValueError: if arguments are inconsistent or a name is unknown; on a call, if there are
            more tokens than learned positions.
    """

    def __init__(
        self,
        vocab_size,
        num_classes,
        embed_dim,
        num_heads,
        num_layers,
        ff_dim=None,
        *,
        dropout=0.1,
        attention_dropout=0.1,
        norm="post",
        norm_type="layer",
        activation="gelu",
        positions="learned",
        max_length=512,
        num_token_types=2,
        pool="cls",
        pooler=True,
        pooler_activation="tanh",
        pad_id=0,
        key_dim=None,
        qkv_bias=True,
        epsilon=1e-12,
        kernel_initializer="glorot_uniform",
        remat=False,
        **kwargs,
    ):
        super().__init__(autocast=False, **kwargs)  # token ids are not rounded, also if float
        self.vocab_size = vocab_size
        self.num_classes = num_classes
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
        self.num_token_types = num_token_types
        self.pool = pool
        self.pooler = pooler
        self.pooler_activation = pooler_activation
        self.pad_id = pad_id
        self.key_dim = key_dim
        self.qkv_bias = qkv_bias
        self.epsilon = epsilon
        self.kernel_initializer = kernel_initializer
        self.remat = remat
        self.input_spec = keras.layers.InputSpec(ndim=2)
        check_at_least_1(vocab_size=vocab_size, num_layers=num_layers)
        check_positions(positions, max_length)
        check_choice("pool", pool, POOLS)
        as_number("pad_id", pad_id, int)
        self.encoder_embedding = TokenEmbedding(
            vocab_size,
            embed_dim,
            positions=added_positions(positions),
            max_length=max_length,
            scale=False,
            num_token_types=num_token_types,
            normalize=True,
            epsilon=epsilon,
            norm_type=norm_type,
            dtype=self.dtype_policy,
            name="encoder_embedding",
        )
        self.encoder_positions = create_position_layer(
            positions,
            num_heads,
            head_width(embed_dim, num_heads, key_dim),
            bidirectional=True,
            dtype=self.dtype_policy,
            name="encoder_positions",
        )
        self._dropout = Dropout(dropout, dtype=self.dtype_policy, name="dropout")
        self.encoder_blocks = [
            TransformerEncoder(
                embed_dim,
                num_heads,
                ff_dim,
                dropout=dropout,
                attention_dropout=attention_dropout,
                norm=norm,
                norm_type=norm_type,
                activation=activation,
                key_dim=key_dim,
                qkv_bias=qkv_bias,
                epsilon=epsilon,
                kernel_initializer=kernel_initializer,
                dtype=self.dtype_policy,
                name=f"encoder_{index}",
            )
            for index in range(num_layers)
        ]
        self.encoder_norm = None
        if norm == "pre":
            self.encoder_norm = normalization_layer(
                norm_type, epsilon, dtype=self.dtype_policy, name="encoder_norm"
            )
        self.pooler_layer = None
        if pooler:
            self.pooler_layer = keras.layers.Dense(
                embed_dim,
                activation=pooler_activation,
                kernel_initializer=kernel_initializer,
                dtype=self.dtype_policy,
                name="pooler_layer",
            )
        self.head = classification_head(num_classes, dtype=self.variable_dtype, name="head")

    def call(self, tokens, training=None):  # Keras passes `training` on to all layers
        return self.head(self._dropout(self.pooled_features(tokens)))

    def pooled_features(self, tokens, training=None):
        """Computes the input of the head, the output of a model without a head: [B, E]."""
        with compat.call_context(training):
            if self.pool == "cls":
                x = self._encode(tokens, only_first=True)[:, 0]
            elif self.pool == "mean":
                x = _mean(self._encode(tokens), tokens != self.pad_id)
            else:
                x = _max(self._encode(tokens), tokens != self.pad_id)
            if self.pooler_layer is not None:
                x = self.pooler_layer(x)
            return x

    def features(self, tokens, training=None):
        """Computes the tokens of the last block, normalized if the model is pre-norm: [B, T, E]."""
        with compat.call_context(training):
            return self._encode(tokens)

    @property
    def num_features(self):
        """Width of the input of the head."""
        return self.embed_dim

    def compute_output_shape(self, input_shape):
        return (input_shape[0], self.num_classes or self.num_features)

    def input_signature(self):
        return keras.InputSpec("int32", (None, None), name="tokens")

    def _encode(self, tokens, only_first=False):
        """The output of the encoder, [B, T, E], or only that of the first token, [B, 1, E]."""
        x = self._dropout(self.encoder_embedding(tokens))  # [B, T, E]
        positions = position_arguments(self.encoder_positions, ops.shape(tokens)[1])
        mask = padding_mask(tokens != self.pad_id)  # [B, 1, 1, T]
        *blocks, last = self.encoder_blocks
        for block in blocks:
            x = self.apply_block(block, x, mask=mask, **positions)
        if only_first:
            x = self.apply_block(last, x, method="first_tokens", count=1, mask=mask, **positions)
        else:
            x = self.apply_block(last, x, mask=mask, **positions)
        if self.encoder_norm is not None:
            x = self.encoder_norm(x)
        return x


@describes_arguments_of(EncoderClassifier)
def text_classifier(size=None, *, vocab_size, num_classes, **arguments):
    """Builds a text classifier of a published size, or of any size by hand.

    ``zoo.text_classifier("bert_base", vocab_size=30522, num_classes=2)``. Without a size, give
    `embed_dim`, `num_heads` and `num_layers`.

    Args:
        size: "bert_base", "bert_large", "bert_tiny", "bert_mini", "bert_small", "bert_medium" or
            None.
        vocab_size: number of tokens.
        num_classes: number of classes; 0 for a model without a head.
        **arguments: of `zoo.models.EncoderClassifier`; they override those of the size.

    Returns:
        A built `zoo.models.EncoderClassifier`.

    Raises:
        ValueError: if the size is unknown or incomplete, or if arguments are inconsistent.
    """
    arguments = arguments_of_size("text_classifier", size, SIZES, arguments)
    model = EncoderClassifier(vocab_size, num_classes, **arguments)
    model.build()
    return model


def _mean(x, is_real):
    """The mean of the real tokens of each text, in float32 or wider: [B, T, E] to [B, E]."""
    values = at_least_float32(x)
    weights = ops.cast(is_real, values.dtype)[:, :, None]
    total = ops.sum(values * weights, axis=1)
    return ops.cast(total / ops.maximum(ops.sum(weights, axis=1), 1.0), x.dtype)


def _max(x, is_real):
    """The maximum over the real tokens of each text: [B, T, E] to [B, E]."""
    smallest = -1e4  # less than any feature, and finite in float16
    return ops.max(ops.where(is_real[:, :, None], x, smallest), axis=1)
