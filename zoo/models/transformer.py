"""The translation Transformer. Source: Vaswani et al. 2017, "Attention Is All You Need".

Axes: B sentences, S source tokens, T target tokens, K hypotheses of a sentence, E model width,
V target vocabulary.
"""

from typing import Any, NamedTuple

import keras
from keras import ops

from zoo.layers import (
    DecoderCache,
    LearnedPositions,
    RelativePositions,
    SinusoidalPositions,
    TokenEmbedding,
    TransformerDecoder,
    TransformerEncoder,
    padding_mask,
)
from zoo.layers.config import ConfigMixin


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
    give `embed_dim`, `num_heads` and `num_layers`. What is given beside a size takes its place.

    Args:
        size: "base", "big" or None.
        source_vocab_size: number of source tokens.
        target_vocab_size: V, number of target tokens.
        **settings: see `zoo.models.Transformer`.

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


class Cache(NamedTuple):
    """What decoding keeps from one step to the next. See `Transformer.start`.

    The K hypotheses of a sentence share its memory, and one room for keys and values, in which each
    step takes K places, one for each lane. A hypothesis is a path through the lanes: when it goes
    on from another one, its path is written anew and no key or value is moved.

    Fields:
        position: int32 [], number of tokens taken in so far.
        paths: int32 [B, K, T], the lane in which each token of each hypothesis stands.
        blocks: `DecoderCache` of each decoder block.
        memory_mask: bool [B, 1, 1, S].
    """

    position: Any
    paths: Any
    blocks: tuple[DecoderCache, ...]
    memory_mask: Any

    def follow(self, parents):
        """The cache in which hypothesis k goes on from hypothesis ``parents[b, k]``, int [B, K]."""
        return self._replace(paths=ops.take_along_axis(self.paths, parents[:, :, None], axis=1))


@keras.saving.register_keras_serializable("zoo")
class Transformer(ConfigMixin, keras.Model):
    """An encoder-decoder Transformer that translates: source tokens in, target tokens out.

    Args:
        source_vocab_size: number of source tokens.
        target_vocab_size: V, number of target tokens.
        embed_dim: E.
        num_heads: attention heads; they divide E.
        num_layers: number of encoder blocks.
        num_decoder_layers: number of decoder blocks; `num_layers` by default.
        ff_dim: hidden width of the feed-forward networks; ``4 * embed_dim`` by default.
        dropout: rate in [0, 1) on embeddings with positions and in the blocks (section 5.4).
        attention_dropout: rate in [0, 1) on attention weights.
        norm: "post", the paper's, or "pre", where the blocks normalize; a pre-norm model also
            normalizes the output of its last blocks (Xiong et al. 2020).
        activation: of the feed-forward networks: "relu", "gelu", "silu" or another of Keras.
        positions: "sinusoidal" (section 3.5); "learned"; or "relative", a learned bias on the
            scores of self-attention (Raffel et al. 2019, section 2.1).
        max_length: the longest source or target, in tokens; the learned positions are as many.
        shared: which matrices are one: "target": target embedding and output layer; "all": these
            and the source embedding (section 3.4), which takes equal vocabularies; or "none".
        pad_id: token that fills up short sentences.

    Inputs: a dict of token ids: "source" int [B, S], "target" int [B, T], the target beginning with
    the start token.

    Output: logits [B, T, V] of the token that follows each target token.

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
        **kwargs,
    ):
        super().__init__(**kwargs)
        _check(positions, shared, source_vocab_size, target_vocab_size)
        if min(num_layers, num_layers if num_decoder_layers is None else num_decoder_layers) < 1:
            raise ValueError(
                "An encoder and a decoder need at least one block each. Received: "
                f"num_layers={num_layers}, num_decoder_layers={num_decoder_layers}."
            )
        self.source_vocab_size = source_vocab_size
        self.target_vocab_size = target_vocab_size
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.num_layers = num_layers
        self.num_decoder_layers = num_decoder_layers
        self.ff_dim = ff_dim
        self.dropout = dropout
        self.attention_dropout = attention_dropout
        self.norm = norm
        self.activation = activation
        self.positions = positions
        self.max_length = max_length
        self.shared = shared
        self.pad_id = pad_id

        self.target_embedding = self._embedding(target_vocab_size, "target_embedding")
        self.source_embedding = self.target_embedding
        if shared != "all":
            self.source_embedding = self._embedding(source_vocab_size, "source_embedding")
        if shared == "none":
            self.output_projection = keras.layers.Dense(
                target_vocab_size, use_bias=False, dtype=self.dtype_policy, name="output"
            )
        self.source_positions = self._positions("source_positions", bidirectional=True)
        self.target_positions = self._positions("target_positions", bidirectional=False)
        self._dropout = keras.layers.Dropout(dropout, dtype=self.dtype_policy)
        self.encoder_blocks = [
            self._block(TransformerEncoder, f"encoder_{index}") for index in range(num_layers)
        ]
        self.decoder_blocks = [
            self._block(TransformerDecoder, f"decoder_{index}")
            for index in range(num_decoder_layers or num_layers)
        ]
        if norm == "pre":
            self.encoder_normalization = self._normalization("encoder_normalization")
            self.decoder_normalization = self._normalization("decoder_normalization")

    def build(self, input_shape=None):
        sequence, ids = (None, None, self.embed_dim), (None, None)
        self.target_embedding.build(ids)
        if self.shared != "all":
            self.source_embedding.build(ids)
        if self.shared == "none":
            self.output_projection.build(sequence)
        for positions in (self.source_positions, self.target_positions):
            if self.positions == "relative":
                positions.build(ids, ids)
            else:
                positions.build(sequence)
        for block in self.encoder_blocks:
            block.build(sequence)
        for block in self.decoder_blocks:
            block.build(sequence, sequence)
        if self.norm == "pre":
            self.encoder_normalization.build(sequence)
            self.decoder_normalization.build(sequence)
        self.built = True

    def call(self, inputs, training=None):
        # `training` reaches the layers by itself, but Keras sets it only for a model that takes it
        (x, bias), memory, mask = self._decoder_inputs(inputs)
        for block in self.decoder_blocks:
            x = block(x, memory, memory_mask=mask, bias=bias)
        return self._logits(self.decoder_normalization(x) if self.norm == "pre" else x)

    def encode(self, source):
        """The encoder's output for token ids [B, S]: [B, S, E]."""
        x = self._embed(self.source_embedding, self.source_positions, source)
        mask = padding_mask(source != self.pad_id)
        bias = self._bias(self.source_positions, ops.arange(ops.shape(source)[1]))
        for block in self.encoder_blocks:
            x = block(x, mask=mask, bias=bias)
        return self.encoder_normalization(x) if self.norm == "pre" else x

    def start(self, source, length, num_hypotheses=1):
        """Encodes the source and makes room for decoding.

        Args:
            source: token ids [B, S].
            length: the largest number of tokens of a hypothesis, the start token included.
            num_hypotheses: K.

        Returns:
            `Cache`, to be given to `step`.
        """
        memory = self.encode(source)
        return Cache(
            ops.zeros((), "int32"),
            ops.zeros((ops.shape(source)[0], num_hypotheses, length), "int32"),
            tuple(block.start(memory, length * num_hypotheses) for block in self.decoder_blocks),
            padding_mask(source != self.pad_id),
        )

    def step(self, tokens, cache):
        """Takes in the next token of each hypothesis.

        Args:
            tokens: int [B, K]; at first the start token.
            cache: `Cache`.

        Returns:
            (logits [B, K, V] of the token that follows, the next `Cache`).
        """
        position, paths = cache.position, cache.paths
        (batch, lanes), length = ops.shape(tokens), ops.shape(paths)[2]
        now = ops.arange(length) == position
        paths = ops.where(now, ops.arange(lanes, dtype="int32")[:, None], paths)
        mask = _on_path(paths, position, lanes)
        x = ops.reshape(tokens, (-1, 1))
        x = self._embed(self.target_embedding, self.target_positions, x, start=position)
        x = ops.reshape(x, (batch, lanes, self.embed_dim))
        bias = self._bias(self.target_positions, position[None], ops.arange(length))
        if bias is not None:
            bias = ops.repeat(bias, lanes, axis=-1)
        blocks = []
        for block, old in zip(self.decoder_blocks, cache.blocks):
            x, new = block.step(x, old, position * lanes, mask, cache.memory_mask, bias)
            blocks.append(new)
        x = self.decoder_normalization(x) if self.norm == "pre" else x
        return self._logits(x), Cache(position + 1, paths, tuple(blocks), cache.memory_mask)

    def cross_attention_maps(self, inputs):
        """What each target token takes from each source token: [B, decoder blocks, heads, T, S]."""
        target, memory, mask = self._decoder_inputs(inputs)
        (x, bias), maps = target, []
        for block in self.decoder_blocks:
            maps.append(block.cross_attention_weights(x, memory, memory_mask=mask, bias=bias))
            x = block(x, memory, memory_mask=mask, bias=bias)
        return ops.stack(maps, axis=1)

    def _decoder_inputs(self, inputs):
        """((embedded target, its bias), memory, mask of the memory)."""
        source, target = inputs["source"], inputs["target"]
        memory = self.encode(source)
        x = self._embed(self.target_embedding, self.target_positions, target)
        bias = self._bias(self.target_positions, ops.arange(ops.shape(target)[1]))
        return (x, bias), memory, padding_mask(source != self.pad_id)

    def _logits(self, x):
        if self.shared == "none":
            return ops.cast(self.output_projection(x), self.variable_dtype)
        return self.target_embedding.logits(x)

    def _embed(self, embedding, positions, ids, start=0):
        x = embedding(ids)
        if self.positions != "relative":
            x = positions(x, start=start)
        return self._dropout(x)

    def _bias(self, positions, queries, keys=None):
        """What relative positions add to the scores: [1, H, T, S]; None for other positions."""
        if self.positions != "relative":
            return None
        keys = queries if keys is None else keys
        return positions(queries[None], keys[None])

    def _embedding(self, vocab_size, name):
        return TokenEmbedding(vocab_size, self.embed_dim, dtype=self.dtype_policy, name=name)

    def _positions(self, name, bidirectional):
        settings = {"dtype": self.dtype_policy, "name": name}
        if self.positions == "learned":
            return LearnedPositions(self.max_length, **settings)
        if self.positions == "relative":
            return RelativePositions(self.num_heads, bidirectional=bidirectional, **settings)
        return SinusoidalPositions(**settings)

    def _block(self, kind, name):
        return kind(
            self.embed_dim,
            self.num_heads,
            self.ff_dim,
            self.dropout,
            self.attention_dropout,
            self.norm,
            activation=self.activation,
            dtype=self.dtype_policy,
            name=name,
        )

    def _normalization(self, name):
        return keras.layers.LayerNormalization(epsilon=1e-6, dtype=self.dtype_policy, name=name)


def _on_path(paths, position, lanes):
    """Which places of the cache are on each hypothesis's path: bool [B, 1, K, T·K]."""
    batch, _, length = ops.shape(paths)
    on_path = paths[..., None] == ops.arange(lanes, dtype="int32")
    past = (ops.arange(length) <= position)[:, None]
    return ops.reshape(ops.logical_and(on_path, past), (batch, 1, lanes, length * lanes))


def _check(positions, shared, source_vocab_size, target_vocab_size):
    for name, value, known in (("positions", positions, POSITIONS), ("shared", shared, SHARED)):
        if value not in known:
            raise ValueError(f"{name} must be one of {known}. Received: {name}={value!r}.")
    if min(source_vocab_size, target_vocab_size) < 1:
        raise ValueError(
            "Vocabularies must have at least one token. Received: "
            f"source_vocab_size={source_vocab_size}, target_vocab_size={target_vocab_size}."
        )
    if shared == "all" and source_vocab_size != target_vocab_size:
        raise ValueError(
            'shared="all" takes one vocabulary for source and target. Received: '
            f"source_vocab_size={source_vocab_size}, target_vocab_size={target_vocab_size}."
        )
