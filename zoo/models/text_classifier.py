"""The text classifier: an encoder with a head. Source: Devlin et al. 2018, "BERT: Pre-training of
Deep Bidirectional Transformers for Language Understanding".

Axes: B texts, T tokens, E model width.
"""

from typing import NamedTuple

import keras
from keras import ops

from zoo.layers import Dropout, TransformerEncoder, padding_mask
from zoo.layers.compiled import wide
from zoo.layers.training import training_argument
from zoo.models.tokens import TokenModel, with_size


class Size(NamedTuple):
    embed_dim: int
    num_layers: int
    num_heads: int


SIZES = {
    # Devlin et al. 2018, section 3
    "bert_base": Size(768, 12, 12),
    "bert_large": Size(1024, 24, 16),
    # Turc et al. 2019, "Well-Read Students Learn Better", table 1; heads as in the published models
    "bert_tiny": Size(128, 2, 2),
    "bert_mini": Size(256, 4, 4),
    "bert_small": Size(512, 4, 8),
    "bert_medium": Size(512, 8, 8),
}
POOLS = ("cls", "mean")


def text_classifier(size=None, *, vocab_size, num_classes, **settings):
    """Builds a text classifier of a published size, or of any size by hand.

    ``zoo.text_classifier("bert_base", vocab_size=30522, num_classes=2)``. Without a size, give
    `embed_dim`, `num_heads` and `num_layers`. Other arguments override those of the size.

    Args:
        size: "bert_base", "bert_large", "bert_tiny", "bert_mini", "bert_small", "bert_medium" or
            None.
        vocab_size, num_classes, **settings: see `zoo.models.EncoderClassifier`.

    Returns:
        A built `zoo.models.EncoderClassifier`.

    Raises:
        ValueError: if the size is unknown or incomplete, or if the numbers do not fit together.
    """
    settings = with_size("text_classifier", size, SIZES, settings, Size._fields)
    settings = {"name": "text_classifier", **settings}
    model = EncoderClassifier(vocab_size, num_classes, **settings)
    model.build()
    return model


@keras.saving.register_keras_serializable("zoo")
class EncoderClassifier(TokenModel):
    """An encoder-only Transformer that classifies texts.

    The defaults are those of BERT (Devlin et al. 2018).

    Args:
        vocab_size: number of tokens.
        num_classes: number of classes.
        num_layers: number of encoder blocks.
        embed_dim, num_heads, ff_dim, attention_dropout, activation, key_dim, qkv_bias, epsilon,
            kernel_initializer: see `zoo.layers.TransformerEncoder`.
        dropout: rate in [0, 1) on the embeddings, in the blocks and on the input of the head.
        norm: "post" or "pre", where the blocks normalize; a pre-norm model also normalizes the last
            block's output.
        positions: "learned"; "sinusoidal"; a `zoo.layers.SinusoidalPositions`; "relative", a
            learned bias on the scores (Raffel et al. 2019, section 2.1); or "rotary" (Su et al.
            2021).
        max_length: number of learned positions, and of tokens of the longest text.
        num_token_types: number of embeddings of token types (Devlin et al. 2018, section 3). All
            tokens have type 0. With 0, there are no such embeddings.
        pool: input of the head: "cls", the first token, or "mean", the mean of the real tokens.
        pooler: whether a dense layer with tanh comes before the head, as in BERT.
        pad_id: padding token.
        scale_embeddings: whether embeddings are multiplied by √E.
        normalize_embeddings: whether to normalize before the first block.

    Input: token ids, int [B, T], the first of each text being the start token.

    Output: logits [B, num_classes], float32 in mixed precision as well.

    Raises:
        ValueError: if the numbers do not fit together or a name is unknown; on a call, if there are
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
        dropout=0.1,
        attention_dropout=0.1,
        norm="post",
        activation="gelu",
        positions="learned",
        max_length=512,
        num_token_types=2,
        pool="cls",
        pooler=True,
        pad_id=0,
        key_dim=None,
        qkv_bias=True,
        scale_embeddings=False,
        normalize_embeddings=True,
        epsilon=1e-12,
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(autocast=False, **kwargs)  # token ids are not rounded, also if float
        self.store(locals())
        self.input_spec = keras.layers.InputSpec(ndim=2)
        self._check()
        self._create_layers()

    def _create_layers(self):
        self.token_embedding = self.embedding_layer("token_embedding", self.vocab_size)
        self.token_positions = self.positions_layer("token_positions", bidirectional=True)
        self.token_norm = self.norm_layer("token_norm", self.normalize_embeddings)
        self.type_embedding = None
        if self.num_token_types:
            settings = (keras.layers.Embedding, "type_embedding", self.num_token_types)
            initializer = keras.initializers.TruncatedNormal(stddev=0.02)
            self.type_embedding = self.layer(
                *settings, self.embed_dim, embeddings_initializer=initializer
            )
        self._dropout = self.layer(Dropout, "dropout", self.dropout)
        self.encoder_blocks = [
            self.block(TransformerEncoder, f"encoder_{index}") for index in range(self.num_layers)
        ]
        self.encoder_norm = self.norm_layer("encoder_norm", self.norm == "pre")
        self.pooler_layer = None
        if self.pooler:
            settings = {"activation": "tanh", "kernel_initializer": self.kernel_initializer}
            self.pooler_layer = self.layer(
                keras.layers.Dense, "pooler_layer", self.embed_dim, **settings
            )
        self.head = keras.layers.Dense(
            self.num_classes,
            kernel_initializer=keras.initializers.TruncatedNormal(stddev=0.02),
            dtype=self.variable_dtype,  # logits are in full precision
            name="head",
        )

    def build(self, input_shape=None):
        self.build_side("token")
        if self.type_embedding is not None:
            self.type_embedding.build((None, None))
        for layer in filter(None, (*self.encoder_blocks, self.encoder_norm)):
            layer.build((None, None, self.embed_dim))
        for layer in filter(None, (self.pooler_layer, self.head)):
            layer.build((None, self.embed_dim))

    def call(self, tokens, training=None):
        pooled = self.pooled_features(tokens, training)
        return self.head(self._dropout(pooled, **training_argument(training)))

    def pooled_features(self, tokens, training=None):
        """The input of the head: [B, E]."""
        if self.pool == "cls":
            pooled = self._encode(tokens, training, count=1)[:, 0]
        else:
            pooled = _mean(self._encode(tokens, training), tokens != self.pad_id)
        return pooled if self.pooler_layer is None else self.pooler_layer(pooled)

    def features(self, tokens, training=None):
        """The last block's output, normalized if the model is pre-norm: [B, T, E]."""
        return self._encode(tokens, training)

    def input_signature(self):
        return keras.layers.InputSpec(dtype="int32", shape=(None, None))

    def compute_output_shape(self, input_shape):
        return (input_shape[0], self.num_classes)

    def _encode(self, tokens, training, count=None):
        """The encoder's output at the first `count` tokens; at all by default."""
        types = None
        if self.type_embedding is not None:
            types = self.type_embedding(ops.zeros((1, 1), "int32"))
        x = self.embed("token", tokens, training=training, types=types)
        settings = self.position_arguments("token", ops.shape(tokens)[1])
        settings["mask"] = padding_mask(tokens != self.pad_id)
        *blocks, last = self.encoder_blocks
        for block in blocks:
            x = block(x, **settings, **training_argument(training))
        if count is None:
            x = last(x, **settings, **training_argument(training))
        else:
            x = last.first_tokens(x, count, training=training, **settings)
        return x if self.encoder_norm is None else self.encoder_norm(x)

    def _check(self):
        self.check_positions()
        if self.pool not in POOLS:
            raise ValueError(f"pool must be one of {POOLS}. Received: pool={self.pool!r}.")
        sizes = {n: getattr(self, n) for n in ("vocab_size", "num_classes", "num_layers")}
        if min(sizes.values()) < 1:
            received = ", ".join(f"{name}={value}" for name, value in sizes.items())
            raise ValueError(f"{', '.join(sizes)} must be at least 1. Received: {received}.")


def _mean(x, is_real):
    """The mean of the real tokens of each text, in float32 or wider: [B, T, E] to [B, E]."""
    values = wide(x)
    weights = ops.cast(is_real, values.dtype)[:, :, None]
    total = ops.sum(values * weights, axis=1)
    return ops.cast(total / ops.maximum(ops.sum(weights, axis=1), 1.0), x.dtype)
