"""Position encodings of the models of tokens: the values of their argument `positions`."""

from keras import ops

from zoo.errors import check_at_least_1
from zoo.layers import RelativePositions, RotaryPositions, SinusoidalPositions
from zoo.models.base import POSITIONS_IN_ATTENTION

POSITIONS = ("sinusoidal", "learned", "relative", "rotary")


def check_positions(positions, max_length):
    """Raises ValueError unless a model of tokens may have these arguments."""
    if not isinstance(positions, SinusoidalPositions) and positions not in POSITIONS:
        raise ValueError(
            f"positions must be one of {POSITIONS} or a zoo.layers.SinusoidalPositions. "
            f"Received: positions={positions!r}."
        )
    check_at_least_1(max_length=max_length)


def added_positions(positions):
    """The argument `positions` of `zoo.layers.TokenEmbedding`."""
    return None if positions in POSITIONS_IN_ATTENTION else positions


def create_position_layer(positions, num_heads, key_dim, *, bidirectional, dtype, name):
    """Creates the layer of positions in attention; None if they are added to the embeddings.

    Args:
        positions: argument of the model.
        num_heads: number of heads.
        key_dim: width of a head.
        bidirectional: whether tokens attend to later ones.
        dtype: of the layer.
        name: of the layer.
    """
    if positions == "relative":
        return RelativePositions(num_heads, bidirectional=bidirectional, dtype=dtype, name=name)
    if positions == "rotary":
        return RotaryPositions(key_dim, dtype=dtype, name=name)
    return None


def position_arguments(layer, length, queries=None):
    """Returns the keyword arguments of the blocks that depend on positions.

    Args:
        layer: see `create_position_layer`.
        length: number of keys, int or scalar tensor.
        queries: positions of the queries, int [T]. Defaults to those of the keys.
    """
    if layer is None:
        return {}
    keys = ops.arange(length, dtype="int32")  # [S]
    if queries is None:
        queries = keys
    if isinstance(layer, RelativePositions):
        return {"bias": layer(queries[None], keys[None])}  # [1, H, T, S]
    return {"rotation": layer(queries[None])}  # [1, 1, T, D]
