"""The text encoder beside an image encoder; not the task `zoo.tasks.encoder.TextEncoder`.

Sources: Radford et al. 2021, "Learning Transferable Visual Models From Natural Language
Supervision" (CLIP), section 2.4; Zhai et al. 2023, "Sigmoid Loss for Language Image Pre-Training"
(SigLIP).

Axes: B texts, T tokens, E model width.
"""

import keras
from keras import ops

from zoo import layers
from zoo.models.base import TransformerModel


class TextTower(TransformerModel):
    """An encoder of texts: pre-norm blocks, of which one token is projected to the features.

    Args:
        vocab_size: number of tokens.
        embed_dim, num_heads, num_layers, ff_dim, activation, epsilon: see `zoo.models.ViT`.
        max_length: number of learned positions.
        num_features: width of the features.
        causal: whether tokens attend to themselves and those before only, as in CLIP.
        **kwargs: `name`, `dtype` and `trainable`; see `keras.Model`.

    Inputs:
        tokens: token ids, int [B, T].
        mask: bool [B, T], True = attend.
        places: int [B], the position of the token that stands for the text.

    Output: features [B, num_features].
    """

    def __init__(
        self,
        vocab_size,
        embed_dim,
        num_heads,
        num_layers,
        ff_dim,
        max_length,
        num_features,
        activation,
        epsilon,
        causal,
        **kwargs,
    ):
        super().__init__(autocast=False, **kwargs)
        self.embed_dim = embed_dim
        self.causal = causal
        self.encoder_embedding = layers.TokenEmbedding(
            vocab_size,
            embed_dim,
            positions="learned",
            max_length=max_length,
            scale=False,
            dtype=self.dtype_policy,
            name="encoder_embedding",
        )
        self.encoder_blocks = [
            layers.TransformerEncoder(
                embed_dim,
                num_heads,
                ff_dim,
                activation=activation,
                epsilon=epsilon,
                dtype=self.dtype_policy,
                name=f"encoder_{index}",
            )
            for index in range(num_layers)
        ]
        self.encoder_norm = layers.LayerNormalization(
            epsilon, dtype=self.dtype_policy, name="encoder_norm"
        )
        self.projection = keras.layers.Dense(
            num_features, dtype=self.dtype_policy, name="projection"
        )

    def call(self, tokens, mask, places):
        x = self.encoder_embedding(tokens)  # [B, T, E]
        mask = layers.padding_mask(mask)
        if self.causal:
            mask = ops.logical_and(mask, layers.causal_mask(ops.shape(tokens)[1]))
        for block in self.encoder_blocks:
            x = self.apply_block(block, x, mask=mask)
        x = ops.take_along_axis(x, places[:, None, None], axis=1)[:, 0]  # [B, E]
        return self.projection(self.encoder_norm(x))
