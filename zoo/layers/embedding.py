"""Tokens as vectors, and vectors as scores of tokens.

Axes: B batch, T tokens, E model width, V vocabulary.
"""

import keras
from keras import ops

from zoo.layers.config import ConfigMixin


@keras.saving.register_keras_serializable("zoo")
class TokenEmbedding(ConfigMixin, keras.layers.Layer):
    """A learned vector for each token; its matrix can serve as the output layer too.

    Vectors are scaled by √E, and start with variance 1/E, so that they have unit variance beside
    positions of about that size. Source: Vaswani et al. 2017, section 3.4; the shared output
    layer: Press and Wolf 2016, "Using the Output Embedding to Improve Language Models".

    Args:
        vocab_size: V.
        embed_dim: E.
        scale: whether to multiply by √E.

    Input: token ids, int [B, T], each from 0 to V - 1.

    Output: [B, T, E].
    """

    def __init__(self, vocab_size, embed_dim, scale=True, **kwargs):
        super().__init__(**kwargs)
        self.vocab_size = vocab_size
        self.embed_dim = embed_dim
        self.scale = scale

    def build(self, input_shape):
        self.embeddings = self.add_weight(
            shape=(self.vocab_size, self.embed_dim),
            initializer=keras.initializers.RandomNormal(stddev=self.embed_dim**-0.5),
            name="embeddings",
        )

    def call(self, ids):
        x = ops.cast(ops.take(self.embeddings, ids, axis=0), self.compute_dtype)
        return x * self.embed_dim**0.5 if self.scale else x

    def logits(self, x):
        """Scores of all tokens, x·Eᵀ: [B, T, E] -> [B, T, V], in full precision."""
        rows = ops.reshape(ops.cast(x, self.compute_dtype), (-1, self.embed_dim))
        table = ops.cast(self.embeddings, self.compute_dtype)
        scores = ops.cast(ops.matmul(rows, ops.transpose(table)), self.variable_dtype)
        return ops.reshape(scores, (-1, *ops.shape(x)[1:-1], self.vocab_size))

    def compute_output_shape(self, input_shape):
        return (*input_shape, self.embed_dim)
