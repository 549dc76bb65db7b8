"""The text classifier: an encoder with a head. Source: Devlin et al. 2018, "BERT: Pre-training of
Deep Bidirectional Transformers for Language Understanding".

Axes: B texts, T tokens, E model width.
"""

import keras
from keras import ops

from zoo import compat
from zoo.dtypes import at_least_float32
from zoo.errors import check_at_least_1, check_choice
from zoo.layers import Dropout, TransformerEncoder, padding_mask
from zoo.models.base import apply_optional, arguments_of_size
from zoo.models.tokens import TokenModel

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
        ValueError: if the size is unknown or incomplete, or if arguments are inconsistent.
    """
    settings = arguments_of_size("text_classifier", size, SIZES, settings)
    model = EncoderClassifier(vocab_size, num_classes, **settings)
    model.build()
    return model


@keras.saving.register_keras_serializable("zoo")
class EncoderClassifier(TokenModel):
    """An encoder-only Transformer that classifies texts.

    The defaults are those of BERT (Devlin et al. 2018).

    Args:
        vocab_size: number of tokens.
        num_classes: number of classes; 0 for a model without a head, which returns features.
        num_layers: number of encoder blocks.
        positions: see `zoo.models.Transformer`.
        max_length: number of learned positions, and of tokens of the longest text.
        num_token_types: number of embeddings of token types (Devlin et al. 2018, section 3). All
            tokens have type 0. With 0, there are no such embeddings.
        pool: input of the head: "cls", the first token; "mean", the mean of the real tokens; or
            "max", their maximum (Reimers and Gurevych 2019, "Sentence-BERT", section 3).
        pooler: whether a dense layer with tanh comes before the head, as in BERT.
        pad_id: padding token.
        remat: see `zoo.models.base.TransformerModel`.
        **kwargs: `embed_dim`, `num_heads` and the other arguments in `block_defaults`, which
            `zoo.layers.TransformerEncoder` describes. `dropout` is applied to the embeddings and to
            the input of the head as well. A model with ``norm="pre"`` also normalizes the last
            block's output.

    Input: token ids, int [B, T], the first of each text being the start token.

    Output: logits [B, num_classes], float32 in mixed precision as well; without a head [B, E],
        `pooled_features`.

    Raises:
        ValueError: if arguments are inconsistent or a name is unknown; on a call, if there are
            more tokens than learned positions.
    """

    block_defaults = {
        **TokenModel.block_defaults,
        "dropout": 0.1,
        "attention_dropout": 0.1,
        "norm": "post",
        "epsilon": 1e-12,
    }

    def __init__(
        self,
        vocab_size,
        num_classes,
        num_layers,
        positions="learned",
        max_length=512,
        num_token_types=2,
        pool="cls",
        pooler=True,
        pad_id=0,
        **kwargs,
    ):
        super().__init__(autocast=False, **kwargs)  # token ids are not rounded, also if float
        self.store(locals())
        self.input_spec = keras.layers.InputSpec(ndim=2)
        self.check_positions()
        check_choice("pool", pool, POOLS)
        check_at_least_1(vocab_size=vocab_size, num_layers=num_layers)
        self._create_layers()

    def _create_layers(self):
        self.token_embedding = self.embedding_layer("token_embedding", self.vocab_size)
        self.token_positions = self.positions_layer("token_positions", bidirectional=True)
        self.token_norm = self.norm_layer("token_norm", True)
        self.type_embedding = None
        if self.num_token_types:
            start = keras.initializers.TruncatedNormal(stddev=0.02)
            sizes = (self.num_token_types, self.embed_dim, start)
            self.type_embedding = self.layer(keras.layers.Embedding, "type_embedding", *sizes)
        self._dropout = self.layer(Dropout, "dropout", self.dropout)
        self.encoder_blocks = self.blocks(TransformerEncoder, "encoder", self.num_layers)
        self.encoder_norm = self.norm_layer("encoder_norm", self.norm == "pre")
        self.pooler_layer = self.tanh_layer("pooler_layer", self.pooler and self.embed_dim)
        self.head = self.head_layer("head")

    def call(self, tokens, training=None):
        return self.head(self._dropout(self.pooled_features(tokens)))

    def pooled_features(self, tokens, training=None):
        """The input of the head: [B, E]."""
        with compat.call_context(training):
            if self.pool == "cls":
                pooled = self._encode(tokens, count=1)[:, 0]
            else:
                pool = {"mean": _mean, "max": _max}[self.pool]
                pooled = pool(self._encode(tokens), tokens != self.pad_id)
            return apply_optional(self.pooler_layer, pooled)

    def features(self, tokens, training=None):
        """The last block's output, normalized if the model is pre-norm: [B, T, E]."""
        with compat.call_context(training):
            return self._encode(tokens)

    def _encode(self, tokens, count=None):
        """The encoder's output at the first `count` tokens; at all by default."""
        types = None
        if self.type_embedding is not None:
            types = self.type_embedding(ops.zeros((1, 1), "int32"))
        x = self.embed("token", tokens, types=types)
        settings = self.position_arguments("token", ops.shape(tokens)[1])
        settings["mask"] = padding_mask(tokens != self.pad_id)
        *blocks, last = self.encoder_blocks
        for block in blocks:
            x = self.apply_block(block, x, **settings)
        if count is None:
            x = self.apply_block(last, x, **settings)
        else:
            x = last.first_tokens(x, count, **settings)
        return apply_optional(self.encoder_norm, x)


def _mean(x, is_real):
    """The mean of the real tokens of each text, in float32 or wider: [B, T, E] to [B, E]."""
    values = at_least_float32(x)
    weights = ops.cast(is_real, values.dtype)[:, :, None]
    total = ops.sum(values * weights, axis=1)
    return ops.cast(total / ops.maximum(ops.sum(weights, axis=1), 1.0), x.dtype)


def _max(x, is_real):
    """The maximum over the real tokens of each text: [B, T, E] to [B, E]."""
    return ops.max(ops.where(is_real[:, :, None], x, -1e4), axis=1)
