"""The base class of models that predict tokens one after the other.

Axes: B sequences, T tokens, K hypotheses of a sequence, E model width, V vocabulary.
"""

from numbers import Integral

from keras import ops

from zoo.layers.dense import Dense
from zoo.models.base import TransformerModel
from zoo.models.token_positions import position_arguments


class AutoregressiveModel(TransformerModel):
    """Base class of `zoo.models.Transformer` and `zoo.models.CausalLM`.

    A subclass creates `decoder_embedding`, a `zoo.layers.TokenEmbedding`; `decoder_positions`, see
    `zoo.models.token_positions`; `decoder_blocks`; and `decoder_norm` and `output_projection`,
    which may be None. Without an `output_projection`, the matrix of the tokens computes the logits.
    """

    def output_layer(self, vocab_size):
        """Creates an `output_projection`. Logits are in full precision."""
        return Dense(
            vocab_size, use_bias=False, dtype=self.variable_dtype, name="output_projection"
        )

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
        """The last block's output for a token of each hypothesis: ([B, K, E], next `Cache`).

        In the blocks, the K hypotheses take the place of T positions. All of them have the same
        position, and the mask keeps them apart.
        """
        cache = cache.begin_step()
        length = ops.shape(cache.slots)[2]
        # The embedding adds positions to sequences: here, to B·K sequences of one token.
        x = self.decoder_embedding(ops.reshape(tokens, (-1, 1)), start=cache.position)
        x = ops.reshape(x, (*ops.shape(tokens), self.embed_dim))  # [B, K, E]
        positions = position_arguments(self.decoder_positions, length, cache.position[None])
        arguments = cache.step_arguments(**positions)
        block_caches = []
        for block, block_cache in zip(self.decoder_blocks, cache.blocks):
            x, block_cache = block.step(x, block_cache, **arguments)
            block_caches.append(block_cache)
        return x, cache.end_step(block_caches)

    def logits(self, x):
        """Computes the logits [B, T, V] for the last block's output [B, T, E]."""
        if self.decoder_norm is not None:
            x = self.decoder_norm(x)
        if self.output_projection is None:
            return self.decoder_embedding.tokens(x, reverse=True)
        return self.output_projection(x)

    def check_length(self, length):
        """Raises ValueError if there are fewer learned positions than `length`."""
        is_known = isinstance(length, Integral)
        if self.positions == "learned" and is_known and length > self.max_length:
            raise ValueError(
                f"There are learned positions for {self.max_length} tokens (max_length). "
                f"Received: length={length}."
            )
