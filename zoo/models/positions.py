"""Positions of tokens: some are added to the embeddings, others enter attention.

The latter are a learned bias on the scores, or a rotation of queries and keys.
"""

from keras import ops

from zoo.errors import check_at_least_1
from zoo.layers import RelativePositions, RotaryPositions, SinusoidalPositions

POSITIONS_IN_ATTENTION = ("relative", "rotary")  # the others are added to the embeddings
POSITIONS = ("sinusoidal", "learned", *POSITIONS_IN_ATTENTION)


def check_positions(positions, max_length):
    """Raises ValueError unless a model of tokens may have these arguments."""
    if not isinstance(positions, SinusoidalPositions) and positions not in POSITIONS:
        raise ValueError(
            f"positions must be one of {POSITIONS} or a zoo.layers.SinusoidalPositions. "
            f"Received: positions={positions!r}."
        )
    check_at_least_1(max_length=max_length)


def check_attention_takes(positions, attention):
    """Raises ValueError if this kind of attention does not take such positions."""
    has_no_bias = attention in ("linear", "ssru")
    has_no_rotation = attention == "ssru"
    if positions == "relative" and has_no_bias or positions == "rotary" and has_no_rotation:
        raise ValueError(f"Blocks with attention={attention!r} do not support {positions=}.")


def attention_positions(positions, num_heads, key_dim, *, bidirectional, dtype, name):
    """The layer of positions that enter attention; None for those that are added.

    Args:
        positions: argument of the model.
        num_heads, key_dim: number and width of the heads.
        bidirectional: whether tokens attend to later ones.
        dtype, name: of the layer.
    """
    if positions == "relative":
        return RelativePositions(num_heads, bidirectional=bidirectional, dtype=dtype, name=name)
    if positions == "rotary":
        return RotaryPositions(key_dim, dtype=dtype, name=name)
    return None


def attention_arguments(layer, length, queries=None):
    """The arguments of each block for positions in attention: a dict.

    Args:
        layer: see `attention_positions`.
        length: number of keys, int or scalar tensor.
        queries: positions of the queries, int [T]; those of the keys by default.
    """
    if layer is None:
        return {}
    keys = ops.arange(length)  # [S]
    if queries is None:
        queries = keys
    if isinstance(layer, RelativePositions):
        return {"bias": layer(queries[None], keys[None])}  # [1, H, T, S]
    return {"rotation": layer(queries[None])}  # [1, 1, T, D]
