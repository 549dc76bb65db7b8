"""The translation Transformer. Source: Vaswani et al. 2017, "Attention Is All You Need".

Axes: B sentences, S source tokens, T target tokens, K hypotheses of a sentence, E model width,
V target vocabulary.
"""

import functools
from numbers import Integral
from typing import NamedTuple

import keras
from keras import ops

from zoo.layers import (
    Cache,
    LearnedPositions,
    RelativePositions,
    SinusoidalPositions,
    TransformerDecoder,
    TransformerEncoder,
    padding_mask,
)
from zoo.layers.linear import linear
from zoo.layers.training import training_argument
from zoo.models.base import ZooModel


class Size(NamedTuple):
    embed_dim: int
    num_layers: int
    num_heads: int
    ff_dim: int
    dropout: float


SIZES = {  # Vaswani et al. 2017, table 3
    "base": Size(512, 6, 8, 2048, 0.1),
    "big": Size(1024, 6, 16, 4096, 0.3),
}
POSITIONS = ("sinusoidal", "learned", "relative")
SHARED = ("none", "target", "all")


def transformer(size=None, *, source_vocab_size, target_vocab_size, **settings):
    """Builds a translation Transformer of a published size, or of any size by hand.

    ``zoo.transformer("base", source_vocab_size=8000, target_vocab_size=8000)``. Without a size,
    give `embed_dim`, `num_heads` and `num_layers`. Other arguments override those of the size.

    Args:
        size: "base", "big" or None.
        source_vocab_size, target_vocab_size, **settings: see `zoo.models.Transformer`.

    Returns:
        A built `zoo.models.Transformer`.

    Raises:
        ValueError: if the size is unknown or incomplete, or if the numbers do not fit together.
    """
    if size is not None:
        if size not in SIZES:
            raise ValueError(f"Unknown size {size!r}. A size is one of {', '.join(SIZES)}.")
        settings = {**SIZES[size]._asdict(), **settings}
    missing = [n for n in ("embed_dim", "num_heads", "num_layers") if n not in settings]
    if missing:
        raise ValueError(
            f"Without a size such as 'base', zoo.transformer also needs {', '.join(missing)}."
        )
    settings = {"name": "transformer", **settings}
    model = Transformer(source_vocab_size, target_vocab_size, **settings)
    model.build()
    return model


@keras.saving.register_keras_serializable("zoo")
class Transformer(ZooModel):
    """An encoder-decoder Transformer that translates: source tokens in, target tokens out.

    docs/published_models.md lists which published models set which of the options.

    Args:
        source_vocab_size: number of source tokens.
        target_vocab_size: V, number of target tokens.
        num_layers: number of encoder blocks.
        num_decoder_layers: number of decoder blocks; `num_layers` by default.
        embed_dim, num_heads, ff_dim, attention_dropout, activation, key_dim, qkv_bias, epsilon: see
            `zoo.layers.TransformerEncoder`.
        dropout: rate in [0, 1) on embeddings with positions and in the blocks (section 5.4).
        norm: "post", the paper's, or "pre", where the blocks normalize; a pre-norm model also
            normalizes the output of its last blocks (Xiong et al. 2020).
        positions: "sinusoidal" (section 3.5); a `zoo.layers.SinusoidalPositions` of another layout
            or offset; "learned"; or "relative", a learned bias on the scores of self-attention
            (Raffel et al. 2019, section 2.1).
        max_length: number of learned positions, and of tokens of the longest source or target that
            `zoo.translator.Translator` accepts.
        shared: which matrices are shared: "target": target embedding and output layer; "all": these
            and the source embedding (section 3.4), for equal vocabularies; or "none".
        pad_id: padding token.
        scale_embeddings: whether embeddings are multiplied by √E (section 3.4).
        normalize_embeddings: whether to normalize before the first blocks (Liu et al. 2020, mBART).
        logits_bias: whether the logits have a learned bias.

    Inputs: a dict of token ids: "source" int [B, S], "target" int [B, T], the target beginning with
    the start token.

    Output: logits [B, T, V] of the token that follows each target token, float32 in mixed precision
    as well.

    Raises:
        ValueError: if the numbers do not fit together or a name is unknown; on a call, if there are
            more tokens than learned positions.
    """

    def __init__(
        self,
        source_vocab_size,
        target_vocab_size,
        embed_dim,
        num_heads,
        num_layers,
        num_decoder_layers=None,
        ff_dim=None,
        dropout=0.1,
        attention_dropout=0.0,
        norm="post",
        activation="relu",
        positions="sinusoidal",
        max_length=512,
        shared="target",
        pad_id=0,
        key_dim=None,
        qkv_bias=True,
        scale_embeddings=True,
        normalize_embeddings=False,
        logits_bias=False,
        epsilon=1e-6,
        **kwargs,
    ):
        super().__init__(autocast=False, **kwargs)  # token ids are not rounded, also if float
        self.store(locals())
        self._check()
        self._create_layers()

    def _create_layers(self):
        self.target_embedding = self._embedding(self.target_vocab_size, "target_embedding")
        self.source_embedding = self.target_embedding
        if self.shared != "all":
            self.source_embedding = self._embedding(self.source_vocab_size, "source_embedding")
        self.output_projection = None
        if self.shared == "none":
            self.output_projection = keras.layers.Dense(
                self.target_vocab_size,
                use_bias=False,
                dtype=self.variable_dtype,  # logits are in full precision
                name="output_projection",
            )
        self.source_positions = self._positions("source", bidirectional=True)
        self.target_positions = self._positions("target", bidirectional=False)
        self._dropout = self.layer(keras.layers.Dropout, "dropout", self.dropout)
        self.encoder_blocks = [
            self.block(TransformerEncoder, f"encoder_{index}") for index in range(self.num_layers)
        ]
        self.decoder_blocks = [
            self.block(TransformerDecoder, f"decoder_{index}")
            for index in range(self.num_decoder_layers or self.num_layers)
        ]
        pre, embeddings = self.norm == "pre", self.normalize_embeddings
        self.source_norm = self.norm_layer("source_norm", embeddings)
        self.target_norm = self.norm_layer("target_norm", embeddings)
        self.encoder_norm = self.norm_layer("encoder_norm", pre)
        self.decoder_norm = self.norm_layer("decoder_norm", pre)

    def build(self, input_shape=None):
        sequence, ids = (None, None, self.embed_dim), (None, None)
        for layer in (self.target_embedding, self.source_embedding):
            if not layer.built:  # they may be one
                layer.build(ids)
        shapes = [ids, ids] if self.positions == "relative" else [sequence]
        for layer in (self.source_positions, self.target_positions):
            layer.build(*shapes)
        norms = (self.source_norm, self.target_norm, self.encoder_norm, self.decoder_norm)
        for layer in filter(None, (*self.encoder_blocks, *norms, self.output_projection)):
            layer.build(sequence)
        for block in self.decoder_blocks:
            block.build(sequence, sequence)
        if self.logits_bias:
            self.output_bias = self.add_weight(
                (self.target_vocab_size,), "zeros", autocast=False, name="output_bias"
            )

    def call(self, inputs, training=None):
        memory = self.encode(inputs["source"], training)
        x, settings = self._decoder_inputs(inputs, training)
        for block in self.decoder_blocks:
            x = block(x, memory, **settings, **training_argument(training))
        return self._logits(x)

    def encode(self, source, training=None):
        """The encoder's output for token ids [B, S]: [B, S, E]."""
        x = self._embed("source", source, training=training)
        mask = padding_mask(source != self.pad_id)
        bias = self._bias("source", source)
        for block in self.encoder_blocks:
            x = block(x, mask=mask, bias=bias, **training_argument(training))
        return x if self.encoder_norm is None else self.encoder_norm(x)

    def start(self, source, length, num_hypotheses=1):
        """Encodes the source and allocates the cache: a `Cache` to be passed to `step`.

        Args:
            source: token ids [B, S].
            length: the largest number of tokens of a hypothesis, the start token included.
            num_hypotheses: K.

        Raises:
            ValueError: if there are fewer learned positions than `length`.
        """
        is_known = isinstance(length, Integral)
        if self.positions == "learned" and is_known and length > self.max_length:
            raise ValueError(
                f"There are learned positions for {self.max_length} tokens (max_length). "
                f"Received: length={length}."
            )
        memory = self.encode(source)
        return Cache(
            ops.zeros((), "int32"),
            ops.zeros((ops.shape(source)[0], num_hypotheses, length), "int32"),
            tuple(block.start(memory, length * num_hypotheses) for block in self.decoder_blocks),
            padding_mask(source != self.pad_id),
        )

    def step(self, tokens, cache):
        """Adds a token to each hypothesis.

        Args:
            tokens: int [B, K]; first the start token.
            cache: `Cache`.

        Returns:
            (logits [B, K, V] of the token that follows, the next `Cache`).
        """
        cache = cache.extend_paths()
        # B·K sequences of one token: all hypotheses are at the same position.
        x = self._embed("target", ops.reshape(tokens, (-1, 1)), start=cache.position)
        x = ops.reshape(x, (*ops.shape(tokens), self.embed_dim))
        bias = self._bias("target", cache.paths[0], cache.position[None])
        if bias is not None:
            bias = ops.repeat(bias, ops.shape(tokens)[1], axis=-1)  # the same for all K slots
        slot, mask, blocks = cache.slot, cache.mask(), []
        for block, old in zip(self.decoder_blocks, cache.blocks):
            x, new = block.step(x, old, slot, mask, cache.memory_mask, bias)
            blocks.append(new)
        return self._logits(x), cache.next(blocks)

    def cross_attention_maps(self, inputs):
        """Attention weights over the source: [B, decoder blocks, heads, T, S]."""
        memory = self.encode(inputs["source"])
        (x, settings), maps = self._decoder_inputs(inputs), []
        for block in self.decoder_blocks:
            maps.append(block.cross_attention_weights(x, memory, **settings))
            x = block(x, memory, **settings)
        return ops.stack(maps, axis=1)

    def input_signature(self):
        ids = keras.layers.InputSpec(dtype="int32", shape=(None, None))
        return {"source": ids, "target": ids}

    def compute_output_shape(self, input_shape):
        return (*input_shape["target"], self.target_vocab_size)

    def _decoder_inputs(self, inputs, training=None):
        """The embedded target [B, T, E], and the keyword arguments of every decoder block."""
        x = self._embed("target", inputs["target"], training=training)
        mask = padding_mask(inputs["source"] != self.pad_id)
        return x, {"memory_mask": mask, "bias": self._bias("target", inputs["target"])}

    def _embed(self, side, ids, start=0, training=None):
        embedding, positions, norm = (
            getattr(self, f"{side}_{part}") for part in ("embedding", "positions", "norm")
        )
        x = embedding(ids)
        if self.scale_embeddings:
            x = x * self.embed_dim**0.5
        if self.positions != "relative":
            x = positions(x, start=start)
        x = x if norm is None else norm(x)
        return self._dropout(x, **training_argument(training))

    def _bias(self, side, ids, queries=None):
        """What relative positions of [B, T] tokens add to the scores: [1, H, T, T], or None.

        `queries`: the positions of the queries, all by default.
        """
        if self.positions != "relative":
            return None
        keys = ops.arange(ops.shape(ids)[1])
        queries = keys if queries is None else queries
        return getattr(self, f"{side}_positions")(queries[None], keys[None])

    def _logits(self, x):
        x = x if self.decoder_norm is None else self.decoder_norm(x)
        tied = functools.partial(self.target_embedding, reverse=True)
        logits = linear(self.output_projection or tied, x)
        return logits + self.output_bias if self.logits_bias else logits

    def _embedding(self, vocab_size, name):
        # With variance 1/E, scaled embeddings have unit variance, about that of the positions.
        return self.layer(
            keras.layers.ReversibleEmbedding,
            name,
            vocab_size,
            self.embed_dim,
            embeddings_initializer=keras.initializers.RandomNormal(stddev=self.embed_dim**-0.5),
            reverse_dtype=self.variable_dtype,  # logits are in full precision
        )

    def _positions(self, side, bidirectional):
        name = f"{side}_positions"
        if self.positions == "learned":
            return self.layer(LearnedPositions, name, self.max_length)
        if self.positions == "relative":
            settings = {"bidirectional": bidirectional}
            return self.layer(RelativePositions, name, self.num_heads, **settings)
        if self.positions == "sinusoidal":
            return self.layer(SinusoidalPositions, name)
        settings = {**self.positions.get_config(), "dtype": self.dtype_policy, "name": name}
        return type(self.positions).from_config(settings)

    def _check(self):
        sizes = (self.source_vocab_size, self.target_vocab_size)
        received = f"source_vocab_size={sizes[0]}, target_vocab_size={sizes[1]}."
        if min(sizes) < 1:
            raise ValueError(f"Vocabularies must have at least one token. Received: {received}")
        if self.shared not in SHARED:
            raise ValueError(f"shared must be one of {SHARED}. Received: shared={self.shared!r}.")
        if self.shared == "all" and sizes[0] != sizes[1]:
            raise ValueError(f'shared="all" needs equal vocabulary sizes. Received: {received}')
        if not isinstance(self.positions, SinusoidalPositions) and self.positions not in POSITIONS:
            raise ValueError(
                f"positions must be one of {POSITIONS} or a zoo.layers.SinusoidalPositions. "
                f"Received: positions={self.positions!r}."
            )
        decoder = self.num_layers if self.num_decoder_layers is None else self.num_decoder_layers
        if min(self.num_layers, decoder) < 1:
            raise ValueError(
                "An encoder and a decoder need at least one block each. Received: "
                f"num_layers={self.num_layers}, num_decoder_layers={self.num_decoder_layers}."
            )
