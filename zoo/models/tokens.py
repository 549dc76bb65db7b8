"""Base classes of models of tokens: embeddings, positions, logits and the step of a decoder.

Axes: B sequences, T tokens, K hypotheses of a sequence, E model width, V vocabulary.
"""

from numbers import Integral

import keras
from keras import ops

from zoo.errors import check_at_least_1
from zoo.layers import LearnedPositions, RelativePositions, RotaryPositions, SinusoidalPositions
from zoo.layers.dense import Dense, ReversibleEmbedding
from zoo.layers.multi_head_attention import head_width
from zoo.models.base import POSITIONS_IN_ATTENTION, TransformerModel, apply_optional

POSITIONS = ("sinusoidal", "learned", *POSITIONS_IN_ATTENTION)


class TokenModel(TransformerModel):
    """Base class of models whose inputs are token ids.

    A model has one or two sides, such as "source" and "target", with layers of their own: the
    attributes ``source_embedding``, ``source_positions`` and ``source_norm``, which may be None.
    """

    scale_embeddings = logits_bias = False  # options of `zoo.models.Transformer`

    def embedding_layer(self, name, vocab_size):
        # With variance 1/E, scaled embeddings have unit variance, about that of the positions.
        return self.layer(
            ReversibleEmbedding,
            name,
            vocab_size,
            self.embed_dim,
            embeddings_initializer=keras.initializers.RandomNormal(stddev=self.embed_dim**-0.5),
            reverse_dtype=self.variable_dtype,  # logits are in full precision
        )

    def positions_layer(self, name, bidirectional, num_heads=None):
        """The layer for the model's argument `positions`."""
        num_heads = num_heads or self.num_heads
        if self.positions == "learned":
            return self.layer(LearnedPositions, name, self.max_length)
        if self.positions == "relative":
            return self.layer(RelativePositions, name, num_heads, bidirectional=bidirectional)
        if self.positions == "rotary":
            key_dim = head_width(self.embed_dim, num_heads, self.key_dim)
            return self.layer(RotaryPositions, name, key_dim)
        if self.positions == "sinusoidal":
            return self.layer(SinusoidalPositions, name)
        settings = {**self.positions.get_config(), "dtype": self.dtype_policy, "name": name}
        return type(self.positions).from_config(settings)

    def embed(self, side, ids, start=0, types=None):
        """The embedded tokens [B, T], the first of them at position `start`: [B, T, E].

        `types`, if given, is added to the embeddings, such as those of token types.
        """
        embedding, positions, norm = self._side(side)
        x = embedding(ids)
        if self.scale_embeddings:
            x = x * self.embed_dim**0.5
        if self.positions not in POSITIONS_IN_ATTENTION:
            x = positions(x, start=start)
        x = x if types is None else x + types
        return self._dropout(apply_optional(norm, x))

    def position_arguments(self, side, length, queries=None):
        """How positions enter attention to `length` keys: keyword arguments of every block.

        `queries` are the positions of the queries, int [T]; all by default.
        """
        if self.positions not in POSITIONS_IN_ATTENTION:
            return {}
        keys = ops.arange(length)
        queries = keys if queries is None else queries
        positions = getattr(self, f"{side}_positions")
        if self.positions == "relative":
            return {"bias": positions(queries[None], keys[None])}
        return {"angles": positions(queries[None])}

    def _side(self, side):
        return (getattr(self, f"{side}_{part}") for part in ("embedding", "positions", "norm"))

    def input_signature(self):
        return keras.InputSpec("int32", (None, None), name="tokens")

    def check_positions(self):
        if not isinstance(self.positions, SinusoidalPositions) and self.positions not in POSITIONS:
            raise ValueError(
                f"positions must be one of {POSITIONS} or a zoo.layers.SinusoidalPositions. "
                f"Received: positions={self.positions!r}."
            )
        check_at_least_1(max_length=self.max_length)


class Decoder(TokenModel):
    """Base class of models that predict tokens one after the other.

    They have `decoder_blocks`, `decoder_norm` and `output_projection`, which may be None, and
    their tokens are those of `decoder_side`.
    """

    decoder_side = "target"

    def output_layer(self, name, vocab_size):
        """Its logits are in full precision."""
        return Dense(vocab_size, use_bias=False, dtype=self.variable_dtype, name=name)

    def build(self, input_shape=None):
        super().build()
        if self.logits_bias and not self.built:
            embedding, _, _ = self._side(self.decoder_side)
            settings = {"autocast": False, "name": "output_bias"}
            self.output_bias = self.add_weight((embedding.input_dim,), "zeros", **settings)

    def step(self, tokens, cache):
        """Adds a token to each hypothesis.

        Args:
            tokens: int [B, K]; first the start token.
            cache: `zoo.layers.Cache`.

        Returns:
            (logits [B, K, V] of the token that follows, the next `Cache`).
        """
        x, cache = self.next_output(tokens, cache)
        return self.logits(x), cache

    def next_output(self, tokens, cache):
        """The last block's output for a token of each hypothesis: ([B, K, E], next `Cache`)."""
        cache, length = cache.open_slots(), ops.shape(cache.paths)[2]
        # B·K sequences of one token: all hypotheses are at the same position.
        x = self.embed(self.decoder_side, ops.reshape(tokens, (-1, 1)), start=cache.position)
        x = ops.reshape(x, (*ops.shape(tokens), self.embed_dim))
        settings = self.position_arguments(self.decoder_side, length, cache.position[None])
        settings, blocks = cache.step_arguments(**settings), []
        for block, block_cache in zip(self.decoder_blocks, cache.blocks):
            x, block_cache = block.step(x, block_cache, **settings)
            blocks.append(block_cache)
        return x, cache.next(blocks)

    def logits(self, x):
        """[B, T, V] of the last block's output [B, T, E]."""
        x = apply_optional(self.decoder_norm, x)
        if self.output_projection is None:
            embedding, _, _ = self._side(self.decoder_side)
            x = embedding(x, reverse=True)
        else:
            x = self.output_projection(x)
        return x + self.output_bias if self.logits_bias else x

    def check_length(self, length):
        """Raises ValueError if there are fewer learned positions than `length`."""
        is_known = isinstance(length, Integral)
        if self.positions == "learned" and is_known and length > self.max_length:
            raise ValueError(
                f"There are learned positions for {self.max_length} tokens (max_length). "
                f"Received: length={length}."
            )
