"""Rotary positions: attention that depends on distances.

Source: Su et al. 2021, "RoFormer: Enhanced Transformer with Rotary Position Embedding", section 3.

Axes: B batch, H heads, T positions, D head width, A axes: 1 of a sequence, 2 of an image.
"""

import math

import keras
from keras import ops

from zoo.layers.config import ConfigMixin


@keras.saving.register_keras_serializable("zoo")
class RotaryPositions(ConfigMixin, keras.layers.Layer):
    """The angles by which attention rotates its queries and keys, see `rotate`.

    The angle of pair k at position p is p / max_wavelength^(2k/D). On a grid, the first half of the
    pairs follows the rows, the second the columns, each like heads of width D/2. The output holds
    cosines and sines: rounded in mixed precision, angles of far positions would be meaningless.

    Args:
        key_dim: D, a multiple of 2A.
        max_wavelength: the largest wavelength, divided by 2π.
        num_axes: A.

    Input: positions, int or float: [B, T], or [B, T, A] of a grid; B may be 1.
    Output: [B, 1, T, D], the cosines of the angles of all pairs, then their sines: the argument
    `angles` of attention and of blocks.

    Raises:
        ValueError: if `key_dim` is not a multiple of 2A.
    """

    def __init__(self, key_dim, max_wavelength=10000.0, num_axes=1, **kwargs):
        super().__init__(autocast=False, **kwargs)  # positions are not rounded
        if key_dim < 1 or key_dim % (2 * num_axes):
            raise ValueError(
                f"Rotary positions on {num_axes} axes need heads whose width is a multiple of "
                f"{2 * num_axes}. Received: key_dim={key_dim}."
            )
        self.key_dim = key_dim
        self.max_wavelength = max_wavelength
        self.num_axes = num_axes

    def call(self, positions):
        pairs = self.key_dim // 2 // self.num_axes  # of each axis
        dtype = keras.backend.result_type(self.compute_dtype, "float32")
        exponents = ops.arange(pairs, dtype=dtype) * (-math.log(self.max_wavelength) / pairs)
        frequencies = ops.exp(exponents)
        angles = ops.cast(positions, dtype)[..., None] * frequencies  # [B, T, (A,) pairs]
        batch, length = ops.shape(positions)[:2]
        angles = ops.reshape(angles, (batch, 1, length, self.key_dim // 2))
        cosines_and_sines = ops.concatenate([ops.cos(angles), ops.sin(angles)], axis=-1)
        return ops.cast(cosines_and_sines, self.compute_dtype)

    def compute_output_shape(self, input_shape):
        return (input_shape[0], 1, input_shape[1], self.key_dim)


def rotate(x, angles):
    """Rotates each pair (k, k + D/2) of features by its angle.

    Args:
        x: [B, H, T, D], heads of queries or keys.
        angles: [B, 1, T, D], the output of `RotaryPositions`.

    Returns:
        [B, H, T, D] in the dtype of `x`.

    Raises:
        ValueError: if the heads and the angles are not of the same width.
    """
    if angles.shape[-1] != x.shape[-1]:
        raise ValueError(
            f"Rotary positions for heads of width {x.shape[-1]} need key_dim={x.shape[-1]}. "
            f"Received: angles of shape {tuple(angles.shape)}."
        )
    cosines, sines = ops.split(ops.cast(angles, x.dtype), 2, axis=-1)
    first, second = ops.split(x, 2, axis=-1)
    rotated = [first * cosines - second * sines, first * sines + second * cosines]
    return ops.concatenate(rotated, axis=-1)


def grid_places(grid):
    """(row, column) of each patch of a grid (rows, columns), for `RotaryPositions`: [1, N, 2]."""
    rows, columns = grid
    places = ops.meshgrid(ops.arange(rows), ops.arange(columns), indexing="ij")
    return ops.reshape(ops.stack(places, axis=-1), (1, -1, 2))
