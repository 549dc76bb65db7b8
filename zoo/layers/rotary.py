"""Rotary position embedding: attention that depends on the distance of query and key.

Source: Su et al. 2021, "RoFormer: Enhanced Transformer with Rotary Position Embedding", section 3.

Axes: B batch, H heads, T positions, D head width, A axes: 1 of a sequence, 2 of an image.
"""

import math

import keras
from keras import ops

from zoo.layers.config import ConfigMixin


@keras.saving.register_keras_serializable("zoo")
class RotaryPositions(ConfigMixin, keras.layers.Layer):
    """Computes the rotation of queries and keys at given positions, see `rotate`.

    Pair k of the features at position p is rotated by the angle p / max_wavelength^(2k/D). On a
    grid, the first half of the pairs follows the rows and the second half the columns, each like a
    head of width D/2. The output holds cosines and sines, as large angles cannot be represented in
    half precision.

    Args:
        key_dim: D, a multiple of 2A.
        max_wavelength: base of the wavelengths; 10000 in the paper.
        num_axes: A.

    Inputs:
        positions: int or float, [B, T], or [B, T, A] on a grid. B may be 1.

    Output: [B, 1, T, D], the cosines of the angles of all pairs, then their sines: the argument
    `rotation` of attention and blocks.

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


@keras.saving.register_keras_serializable("zoo")
class RotaryGridPositions(RotaryPositions):
    """Computes the rotation of the patches of an image, by their rows and their columns.

    Row or column i of N has the position i (Heo et al. 2024, "Rotary Position Embedding for Vision
    Transformer", section 3.2), or i · extent / N (Fang et al. 2023, "EVA-02"). In DINOv3 (Siméoni
    et al. 2025), i + 1/2 - N/2 takes the place of i, and the extent is 4π.

    Args:
        key_dim: D, a multiple of 4.
        max_wavelength: base of the wavelengths. By default √10000, where texts have 10000, because
            an axis of N patches has √N positions.
        extent: length of each axis, for grids of any size; by default N.
        centered: whether positions are 0 at the center of the grid.

    Inputs, Output, Raises: see `RotaryPositions`, with A = 2 axes.
    """

    def __init__(self, key_dim, max_wavelength=100.0, extent=None, centered=False, **kwargs):
        super().__init__(key_dim, max_wavelength, num_axes=2, **kwargs)
        self.extent = extent
        self.centered = centered

    def of_grid(self, grid, num_prefix_tokens=0):
        """Computes the rotation of the patches of a grid: [1, 1, T, D].

        Args:
            grid: (rows, columns), ints or scalar tensors; N is their product.
            num_prefix_tokens: number of tokens before the patches, such as CLS, without a rotation.
        """
        positions = grid_positions(grid)  # [1, N, 2]
        if self.centered or self.extent is not None:
            positions = ops.cast(positions, "float32")
            sides = ops.cast(ops.stack(grid), "float32")  # [2]
            if self.centered:
                positions = positions + (1 - sides) / 2
            if self.extent is not None:
                positions = positions * (self.extent / sides)
        # The rotation at the position (0, 0) is the identity.
        positions = ops.pad(positions, [(0, 0), (num_prefix_tokens, 0), (0, 0)])  # [1, T, 2]
        return self(positions)


def rotate(x, rotation):
    """Rotates each pair (k, k + D/2) of features by its angle.

    Args:
        x: [B, H, T, D], heads of queries or keys.
        rotation: [B, 1, T, D], the output of `RotaryPositions`.

    Returns:
        [B, H, T, D] in the dtype of `x`.

    Raises:
        ValueError: if the heads and the rotation differ in width.
    """
    if rotation.shape[-1] != x.shape[-1]:
        raise ValueError(
            f"Rotary positions for heads of width {x.shape[-1]} need key_dim={x.shape[-1]}. "
            f"Received: a rotation of shape {tuple(rotation.shape)}."
        )
    cosines, sines = ops.split(ops.cast(rotation, x.dtype), 2, axis=-1)  # [B, 1, T, D/2]
    first, second = ops.split(x, 2, axis=-1)  # [B, H, T, D/2]
    rotated = [first * cosines - second * sines, first * sines + second * cosines]
    return ops.concatenate(rotated, axis=-1)


def grid_positions(grid):
    """Returns (row, column) of each patch of a grid, for `RotaryPositions`: [1, N, 2].

    Args:
        grid: (rows, columns); N is their product.
    """
    rows, columns = grid
    rows = ops.arange(rows, dtype="int32")
    columns = ops.arange(columns, dtype="int32")
    positions = ops.meshgrid(rows, columns, indexing="ij")
    return ops.reshape(ops.stack(positions, axis=-1), (1, -1, 2))
