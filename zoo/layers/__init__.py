"""Layers and functions written with `keras.ops`. They run on TensorFlow, JAX and PyTorch."""

from zoo.layers.attention import attention_weights, scaled_dot_product_attention
from zoo.layers.attention_pool import AttentionPool
from zoo.layers.blocks import LayerScale, TransformerBlock, TransformerDecoder, TransformerEncoder
from zoo.layers.blockwise_attention import blockwise_attention
from zoo.layers.cache import Cache, DecoderCache, KeyValue
from zoo.layers.channel_attention import ConvBlockAttention, SqueezeExcite
from zoo.layers.dropout import Dropout
from zoo.layers.feed_forward import FeedForward, geglu_tanh, gelu, gelu_tanh, quick_gelu, swiglu
from zoo.layers.linear_attention import linear_attention, linear_attention_weights
from zoo.layers.masks import attention_mask, causal_mask, padding_mask
from zoo.layers.multi_head_attention import MultiHeadAttention, MultiHeadSelfAttention
from zoo.layers.normalization import (
    LayerNormalization,
    RMSNormalization,
    layer_normalization,
    normalization_layer,
    rms_normalization,
    unit_normalization,
)
from zoo.layers.patches import (
    ClassToken,
    PatchDropout,
    PatchEmbed,
    PatchExtract,
    RegisterTokens,
    image_size,
    patch_grid,
)
from zoo.layers.positions import (
    LearnedPositions,
    RelativePositions,
    RelativePositionTable,
    SinusoidalGridPositions,
    SinusoidalPositions,
    grid_bias,
    sinusoidal_positions,
)
from zoo.layers.rotary import RotaryGridPositions, RotaryPositions, grid_positions, rotate
from zoo.layers.ssru import SSRU
from zoo.layers.token_embedding import TokenEmbedding
