"""The embedding of tokens. Sources: Vaswani et al. 2017, "Attention Is All You Need", sections 3.4
and 3.5; Devlin et al. 2018, "BERT", section 3.

Axes: B sequences, T tokens, E model width, V vocabulary.
"""

import keras
from keras import ops

from zoo.layers.config import ConfigMixin, build_layers
from zoo.layers.dense import ReversibleEmbedding
from zoo.layers.normalization import normalization_layer
from zoo.layers.positions import LearnedPositions, SinusoidalPositions


@keras.saving.register_keras_serializable("zoo")
class TokenEmbedding(ConfigMixin, keras.layers.Layer):
    """Embeds tokens: norm(√E · token + position + type).

    The layer `tokens` also computes logits: ``layer.tokens(x, reverse=True)`` is x times the
    transposed matrix of the tokens.

    Args:
        vocab_size: V, number of tokens.
        embed_dim: E.
        positions: "sinusoidal" (Vaswani et al. 2017, section 3.5); a
            `zoo.layers.SinusoidalPositions` of another layout or offset; "learned"; or None, for
            attention that takes positions itself.
        max_length: number of positions if they are learned.
        scale: whether the vectors of tokens are multiplied by √E (Vaswani et al. 2017, section
            3.4).
        num_token_types: number of token types, each with a learned vector (Devlin et al. 2018,
            section 3). All tokens have type 0. With 0, there are no such vectors.
        normalize: whether the sum is normalized.
        epsilon: added to the variance, or the mean square, in the normalization.
        norm_type: "layer" or "rms"; see `zoo.layers.normalization_layer`.
        tokens: the layer `tokens` of another `TokenEmbedding`, whose matrix this one shares. Keras
            cannot load a functional model of both: use them in a subclass of `keras.Model`, as
            `zoo.models.Transformer` does.

    Inputs:
        ids: token ids, int [B, T].
        start: position of the first token, an int or a scalar tensor.

    Output: [B, T, E].

    Raises:
        ValueError: if `positions` is unknown; on a call, if there are more tokens than learned
            positions.
    """

    def __init__(
        self,
        vocab_size,
        embed_dim,
        positions="sinusoidal",
        max_length=512,
        scale=True,
        num_token_types=0,
        normalize=False,
        epsilon=1e-6,
        norm_type="layer",
        tokens=None,
        **kwargs,
    ):
        super().__init__(autocast=False, **kwargs)  # token ids are not rounded, also if float
        self.vocab_size = vocab_size
        self.embed_dim = embed_dim
        self.max_length = max_length
        self.scale = scale
        self.num_token_types = num_token_types
        self.normalize = normalize
        self.epsilon = epsilon
        self.norm_type = norm_type
        self.tokens = tokens
        if tokens is None:
            self.tokens = ReversibleEmbedding(
                vocab_size,
                embed_dim,
                # With variance 1/E, scaled vectors have unit variance, about that of the positions.
                embeddings_initializer=keras.initializers.RandomNormal(stddev=embed_dim**-0.5),
                reverse_dtype=self.variable_dtype,  # logits are in full precision
                dtype=self.dtype_policy,
                name="tokens",
            )
        self.positions = self._positions_layer(positions)
        self.norm = None
        if normalize:
            self.norm = normalization_layer(
                norm_type, epsilon, dtype=self.dtype_policy, name="norm"
            )
        self.types = None
        if num_token_types:
            self.types = keras.layers.Embedding(
                num_token_types,
                embed_dim,
                embeddings_initializer=keras.initializers.TruncatedNormal(stddev=0.02),
                dtype=self.dtype_policy,
                name="types",
            )

    def _positions_layer(self, positions):
        if positions is None:
            return None
        if positions == "learned":
            return LearnedPositions(self.max_length, dtype=self.dtype_policy, name="positions")
        if positions == "sinusoidal":
            return SinusoidalPositions(dtype=self.dtype_policy, name="positions")
        if isinstance(positions, SinusoidalPositions):  # a copy with the dtype of this layer
            config = {**positions.get_config(), "dtype": self.dtype_policy, "name": "positions"}
            return type(positions).from_config(config)
        raise ValueError(
            'positions must be "sinusoidal", "learned", a zoo.layers.SinusoidalPositions or None. '
            f"Received: positions={positions!r}."
        )

    def build(self, input_shape=None):
        build_layers(self, (None, None, self.embed_dim))

    def call(self, ids, start=0):
        x = self.tokens(ids)  # [B, T, E]
        if self.scale:
            x = x * self.embed_dim**0.5
        if self.positions is not None:
            x = self.positions(x, start=start)
        if self.types is not None:
            x = x + self.types(ops.zeros((1, 1), "int32"))  # + [1, 1, E]
        if self.norm is not None:
            x = self.norm(x)
        return x

    def compute_output_shape(self, input_shape):
        return (*input_shape, self.embed_dim)
