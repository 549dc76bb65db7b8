"""The bricks: layers and functions in `keras.ops` only, for TensorFlow, JAX and PyTorch."""

from zoo.layers.attention import (
    KeyValue,
    MultiHeadAttention,
    MultiHeadSelfAttention,
    attention_weights,
    scaled_dot_product_attention,
)
from zoo.layers.class_token import ClassToken, RegisterTokens
from zoo.layers.decoder import DecoderCache, TransformerDecoder
from zoo.layers.embedding import TokenEmbedding
from zoo.layers.encoder import TransformerEncoder
from zoo.layers.feed_forward import FeedForward, gelu
from zoo.layers.masks import as_attention_mask, causal_mask, combine_masks, padding_mask
from zoo.layers.patches import PatchEmbed, PatchExtract, patch_grid
from zoo.layers.positions import (
    LearnedPositions,
    RelativePositions,
    SinusoidalPositions,
    sinusoidal_positions,
)
from zoo.layers.residual import Residual
