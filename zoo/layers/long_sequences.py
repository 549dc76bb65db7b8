"""Blocks for long sequences: those of `zoo.layers`, with blockwise or linear self-attention."""

import keras

from zoo.layers.attention import MultiHeadAttention
from zoo.layers.blockwise_attention import BlockwiseSelfAttention, CausalBlockwiseSelfAttention
from zoo.layers.decoder import TransformerDecoder
from zoo.layers.encoder import TransformerEncoder
from zoo.layers.linear_attention import CausalLinearSelfAttention, LinearSelfAttention


@keras.saving.register_keras_serializable("zoo")
class LinearTransformerEncoder(TransformerEncoder):
    """`zoo.layers.TransformerEncoder` with `zoo.layers.LinearSelfAttention`."""

    attention_layers = {"attention": LinearSelfAttention}


@keras.saving.register_keras_serializable("zoo")
class BlockwiseTransformerEncoder(TransformerEncoder):
    """`zoo.layers.TransformerEncoder` with `zoo.layers.BlockwiseSelfAttention`."""

    attention_layers = {"attention": BlockwiseSelfAttention}


@keras.saving.register_keras_serializable("zoo")
class BlockwiseTransformerDecoder(TransformerDecoder):
    """`zoo.layers.TransformerDecoder` with `zoo.layers.CausalBlockwiseSelfAttention`."""

    attention_layers = {
        "self_attention": CausalBlockwiseSelfAttention,
        "cross_attention": MultiHeadAttention,
    }

    def _attend_to_itself(self, x, mask, bias, angles):
        # The attention is causal without a mask, which would have T·T entries.
        return self.residual("self_attention", x, mask=mask, bias=bias, angles=angles)


@keras.saving.register_keras_serializable("zoo")
class LinearTransformerDecoder(BlockwiseTransformerDecoder):
    """`zoo.layers.TransformerDecoder` with `zoo.layers.CausalLinearSelfAttention`."""

    attention_layers = {
        "self_attention": CausalLinearSelfAttention,
        "cross_attention": MultiHeadAttention,
    }


ENCODERS = {
    "softmax": TransformerEncoder,
    "linear": LinearTransformerEncoder,
    "blockwise": BlockwiseTransformerEncoder,
}
DECODERS = {
    "softmax": TransformerDecoder,
    "linear": LinearTransformerDecoder,
    "blockwise": BlockwiseTransformerDecoder,
}


def check_attention(name, positions):
    """Raises ValueError if there are no blocks with this attention, or not for these positions."""
    if name not in ENCODERS:
        raise ValueError(
            f"attention must be one of {', '.join(map(repr, ENCODERS))}. "
            f"Received: attention={name!r}."
        )
    if name == "linear" and positions == "relative":
        raise ValueError(
            "Linear attention has no scores that relative positions could be added to. Use "
            "positions='rotary', or another attention. "
            f"Received: attention={name!r}, positions={positions!r}."
        )
