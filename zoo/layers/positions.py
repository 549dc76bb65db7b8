"""Positions that are added: to the tokens, or as a bias to attention scores.

A ViT chooses among them in `zoo.models.vit` (`POSITIONS`, `_create_positions`), and models of
tokens in `zoo.models.token_positions`. Rotary positions are in `zoo.layers.rotary`.

Axes: B batch, T positions, E model width.
"""

import math
from numbers import Integral

import keras
import numpy as np
from keras import ops

from zoo.errors import check_choice
from zoo.layers.config import ConfigMixin, SameShapeLayer


def sinusoidal_positions(length, width, layout="interleaved", max_wavelength=10000.0, start=0):
    """PE[pos, 2k] = sin(pos / 10000^(2k/E)) and PE[pos, 2k+1] = cos of the same angle.

    Source: Vaswani et al. 2017, section 3.5.

    Args:
        length: T, an int or a scalar tensor.
        width: E, even.
        layout: "interleaved" as above, the paper's; or "halves": all sines, then all cosines, as in
            published Marian models.
        max_wavelength: 10000 in the paper. For M2M100 and NLLB, pass ``10000 ** (h / (h - 1))``
            with h = E/2: their exponent is k / (E/2 - 1).
        start: the first position, an int or a scalar tensor.

    Returns:
        float32 [T, E].
    """
    positions = ops.cast(ops.arange(length, dtype="int32") + start, "float32")  # [T]
    pairs = ops.arange(width // 2, dtype="float32")
    frequencies = ops.exp(pairs * (-2.0 * math.log(max_wavelength) / width))  # [E/2]
    angles = positions[:, None] * frequencies  # [T, E/2]
    sines = ops.sin(angles)
    cosines = ops.cos(angles)
    if layout == "halves":
        return ops.concatenate([sines, cosines], axis=-1)
    return ops.reshape(ops.stack([sines, cosines], axis=-1), (-1, width))


@keras.saving.register_keras_serializable("zoo")
class SinusoidalPositions(SameShapeLayer):
    """Adds fixed sine and cosine positions; see `zoo.layers.sinusoidal_positions`.

    Args:
        layout, max_wavelength: see `zoo.layers.sinusoidal_positions`.
        offset: position of the first token, such as 2 in M2M100 and NLLB.

    Inputs:
        x: [B, T, E], E even.
        start: index of the first token, an int or a scalar tensor.

    Output: [B, T, E].

    Raises:
        ValueError: if `layout` is unknown; when built, if E is odd.
    """

    def __init__(self, layout="interleaved", max_wavelength=10000.0, offset=0, **kwargs):
        super().__init__(**kwargs)
        check_choice("layout", layout, ("interleaved", "halves"))
        self.layout = layout
        self.max_wavelength = max_wavelength
        self.offset = offset

    def build(self, input_shape):
        _check_width(input_shape[-1], 2)

    def call(self, x, start=0):
        _, length, width = ops.shape(x)
        positions = sinusoidal_positions(
            length, width, self.layout, self.max_wavelength, self.offset + start
        )
        return x + ops.cast(positions, x.dtype)


@keras.saving.register_keras_serializable("zoo")
class SinusoidalGridPositions(SameShapeLayer):
    """Adds fixed positions to a grid of patches: sines and cosines of its column, then of its row.

    Source: Beyer et al. 2022, "Better plain ViT baselines for ImageNet-1k", section 2; wavelengths
    from 2π to 10000 · 2π as in its code.

    Args:
        shape: (rows, columns) of the grid.

    Inputs:
        x: [B, N, E], the rows of the grid one after the other; E is a multiple of 4.
        grid: (rows, columns) of `x` if they differ from `shape`, ints or scalar tensors.

    Output: [B, N, E].

    Raises:
        ValueError: when built, if E is not a multiple of 4.
    """

    def __init__(self, shape, **kwargs):
        super().__init__(**kwargs)
        self.shape = shape

    def build(self, input_shape):
        _check_width(input_shape[-1], 4)

    def call(self, x, grid=None):
        rows, columns = grid or self.shape
        half = x.shape[-1] // 2
        # exponents k / (half/2 - 1): the last one is 1
        longest = 10000.0 ** (half / max(1, half - 2))
        of_rows = sinusoidal_positions(rows, half, "halves", longest)  # [rows, E/2]
        of_columns = sinusoidal_positions(columns, half, "halves", longest)  # [columns, E/2]
        of_rows = ops.repeat(of_rows, columns, axis=0)  # [N, E/2]
        of_columns = ops.tile(of_columns, (rows, 1))  # [N, E/2]
        positions = ops.concatenate([of_columns, of_rows], axis=-1)  # [N, E]
        return x + ops.cast(positions, x.dtype)


def _check_width(width, unit):
    if width % unit:
        raise ValueError(
            f"The width of sinusoidal positions must be a multiple of {unit}. Received: {width=}."
        )


@keras.saving.register_keras_serializable("zoo")
class LearnedPositions(SameShapeLayer):
    """Adds a learned vector for each position, of a sequence or of a grid of patches.

    Sources: Devlin et al. 2018, section 3 (sequence); Dosovitskiy et al. 2020, sections 3.1 and 3.2
    (grid; another image size gets the learned grid, resized).

    Args:
        shape: length of the longest sequence, or (rows, columns) of the grid.
        num_prefix_tokens: tokens before the grid that have positions of their own, such as CLS.
        interpolation: "bilinear" or "bicubic", how a grid is resized (antialiased when it shrinks).

    Inputs:
        x: [B, T, E], a sequence of up to `shape` tokens, or the prefix and the rows of the grid one
            after the other.
        grid: (rows, columns) of `x` if they differ from `shape`; not for sequences.
        start: index of the first token, an int or a scalar tensor; for sequences only.

    Output: [B, T, E]. Where lengths are known only at run time, tokens beyond the table become NaN.

    Raises:
        ValueError: if `interpolation` is unknown; on a call, if `x` is longer than the table, or
            its length does not match the grid.
    """

    def __init__(self, shape, num_prefix_tokens=0, interpolation="bicubic", **kwargs):
        super().__init__(**kwargs)
        check_choice("interpolation", interpolation, ("bilinear", "bicubic"))
        self.shape = shape
        self.num_prefix_tokens = num_prefix_tokens
        self.interpolation = interpolation

    def build(self, input_shape):
        if isinstance(self.shape, Integral):
            positions = self.shape
        else:
            rows, columns = self.shape
            positions = rows * columns
        shape = (self.num_prefix_tokens + positions, input_shape[-1])
        initializer = keras.initializers.TruncatedNormal(stddev=0.02)
        self.embeddings = self.add_weight(shape, initializer, name="embeddings")

    def call(self, x, grid=None, start=0):
        length = ops.shape(x)[1]
        # If the length is unknown, so is the grid: it holds tensors, which cannot be compared here.
        if isinstance(self.shape, Integral):
            table = self._of_sequence(length, start)
        elif grid is None or (isinstance(length, int) and tuple(grid) == tuple(self.shape)):
            table = self.embeddings
        else:
            table = self.resized(grid)
        if isinstance(length, int) and table.shape[0] not in (length, None):
            raise ValueError(
                f"There are positions for {table.shape[0]} tokens (shape={self.shape}, "
                f"num_prefix_tokens={self.num_prefix_tokens}, grid={grid}). "
                f"Received {length} tokens."
            )
        return x + ops.cast(table, x.dtype)

    def resized(self, grid):
        """The table for another grid: [num_prefix_tokens + rows * columns, E]."""
        width = self.embeddings.shape[-1]
        prefix = self.embeddings[: self.num_prefix_tokens]
        learned = self.embeddings[self.num_prefix_tokens :]
        learned = ops.reshape(learned, (*self.shape, width))  # [rows, columns, E]
        learned = ops.cast(learned, "float32")
        scale = ops.cast(grid, "float32") / ops.cast(self.shape, "float32")
        resized = ops.image.scale_and_translate(  # unlike `resize`, XLA compiles it on TensorFlow
            learned, (*grid, width), scale, [0.0, 0.0], (0, 1), self.interpolation
        )
        resized = ops.reshape(ops.cast(resized, prefix.dtype), (-1, width))  # [N, E]
        return ops.concatenate([prefix, resized], axis=0)

    def _of_sequence(self, length, start):
        """The positions of `length` tokens from index `start` on: [T, E]."""
        size = self.embeddings.shape[0]
        if isinstance(length, int) and isinstance(start, int):
            if start + length > size:
                raise ValueError(
                    f"There are positions for {size} tokens. Received {start + length} tokens."
                )
            return self.embeddings[start : start + length]
        positions = start + ops.arange(length, dtype="int32")
        found = ops.take(self.embeddings, ops.minimum(positions, size - 1), axis=0)
        return ops.where((positions < size)[:, None], found, float("nan"))


@keras.saving.register_keras_serializable("zoo")
class RelativePositions(ConfigMixin, keras.layers.Layer):
    """A learned bias on attention scores for each head and each distance of query and key.

    Distances share a bias in buckets: half of the buckets hold one small distance each; the others
    grow logarithmically up to `max_distance`; greater distances share the last.
    Source: Raffel et al. 2019, "Exploring the Limits of Transfer Learning with a Unified
    Text-to-Text Transformer", section 2.1; the buckets as in its code.

    Args:
        num_heads: H.
        num_buckets: number of buckets, each with a bias for every head.
        max_distance: in tokens.
        bidirectional: if True, half of the buckets are for keys after the query. If False, as in a
            causal decoder, these keys share the bucket of distance 0.

    Inputs:
        queries: positions of the queries, int [B, T]; B may be 1.
        keys: positions of the keys, int [B, S].

    Output: [B, H, T, S], to be added to the scores.
    """

    def __init__(self, num_heads, num_buckets=32, max_distance=128, bidirectional=True, **kwargs):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.num_buckets = num_buckets
        self.max_distance = max_distance
        self.bidirectional = bidirectional
        exact = num_buckets // 4 if bidirectional else num_buckets // 2
        if not 1 <= exact < max_distance:
            raise ValueError(
                "num_buckets // 4 (not bidirectional: // 2) must be positive and less than "
                f"max_distance. Received: {num_buckets} buckets, max_distance={max_distance}."
            )

    def build(self, queries_shape, keys_shape=None):
        initializer = keras.initializers.RandomNormal(0, 0.02)
        shape = (self.num_buckets, self.num_heads)
        self.embeddings = self.add_weight(shape, initializer, name="embeddings")

    def call(self, queries, keys):
        queries = ops.cast(queries, "int32")
        keys = ops.cast(keys, "int32")
        distances = keys[:, None, :] - queries[:, :, None]  # [B, T, S]
        biases = ops.take(self.embeddings, self._bucket_of(distances), axis=0)  # [B, T, S, H]
        biases = ops.transpose(biases, (0, 3, 1, 2))  # [B, H, T, S]
        return ops.cast(biases, self.compute_dtype)

    def compute_output_shape(self, queries_shape, keys_shape=None):
        keys = (keys_shape or queries_shape)[1]
        return (queries_shape[0], self.num_heads, queries_shape[1], keys)

    def _bucket_of(self, distances):
        """The bucket of each distance, key minus query: int [B, T, S]."""
        if self.bidirectional:
            num_buckets = self.num_buckets // 2  # of each direction
            first_bucket = num_buckets * ops.cast(distances > 0, "int32")
        else:
            num_buckets = self.num_buckets
            first_bucket = 0
            distances = ops.minimum(distances, 0)
        distances = ops.abs(distances)
        max_exact = num_buckets // 2  # smaller distances have a bucket each
        ratio = ops.cast(ops.maximum(distances, max_exact), "float32") / max_exact
        logarithm = ops.log(ratio) / math.log(self.max_distance / max_exact)  # 1 at max_distance
        large = max_exact + ops.cast(logarithm * (num_buckets - max_exact), "int32")
        large = ops.minimum(large, num_buckets - 1)
        return first_bucket + ops.where(distances < max_exact, distances, large)


@keras.saving.register_keras_serializable("zoo")
class RelativePositionTable(ConfigMixin, keras.layers.Layer):
    """A learned bias on attention scores for each head and each distance of two patches of a grid.

    A distance is one in rows and one in columns. Tokens before the patches, such as a class token,
    have three biases for each head: on patches, of patches on them, and on each other. For another
    grid the biases are interpolated linearly, at distances that grow geometrically from 1: those of
    neighbors stay. Source: Bao et al. 2021, "BEiT", section 2.3 and its code, as in timm.

    Args:
        num_heads: H.
        shape: (rows, columns) of the grid.
        num_prefix_tokens: tokens before the patches.

    Inputs:
        rows: numbers of the rows of a grid, 0 to R - 1: int [B, R]; B may be 1.
        columns: numbers of its columns, 0 to C - 1: int [B, C].

    Output: [B, H, T, T] with T = num_prefix_tokens + R * C, to be added to the scores.
    """

    def __init__(self, num_heads, shape, num_prefix_tokens=0, **kwargs):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.shape = shape
        self.num_prefix_tokens = num_prefix_tokens

    def build(self, rows_shape=None, columns_shape=None):
        rows, columns = self.shape
        of_prefix = 3 if self.num_prefix_tokens else 0
        shape = ((2 * rows - 1) * (2 * columns - 1) + of_prefix, self.num_heads)
        self.embeddings = self.add_weight(shape, "zeros", name="embeddings")

    def call(self, rows, columns):
        grid = (ops.shape(rows)[1], ops.shape(columns)[1])
        is_native = all(isinstance(n, int) for n in grid) and grid == tuple(self.shape)
        table = self.embeddings if is_native else self.resized(grid)
        of_rows = rows[:, :, None] - rows[:, None] + grid[0] - 1  # [B, R, R], query minus key
        of_columns = columns[:, :, None] - columns[:, None] + grid[1] - 1  # [B, C, C]
        of_rows = of_rows[:, :, None, :, None] * (2 * grid[1] - 1)
        places = of_rows + of_columns[:, None, :, None, :]  # [B, R, C, R, C], in the table
        places = ops.reshape(places, (-1, grid[0] * grid[1], grid[0] * grid[1]))
        if self.num_prefix_tokens:
            places = self._with_prefix(places, ops.shape(table)[0] - 3)
        biases = ops.take(table, places, axis=0)  # [B, T, T, H]
        return ops.cast(ops.transpose(biases, (0, 3, 1, 2)), self.compute_dtype)

    def compute_output_shape(self, rows_shape, columns_shape):
        length = None
        if None not in (rows_shape[1], columns_shape[1]):
            length = self.num_prefix_tokens + rows_shape[1] * columns_shape[1]
        return (rows_shape[0], self.num_heads, length, length)

    def _with_prefix(self, places, first):
        """Adds the prefix tokens to the places in the table: [B, N, N] to [B, T, T]."""
        count = self.num_prefix_tokens
        places = ops.pad(places, [(0, 0), (count, 0), (count, 0)])
        is_prefix = ops.arange(ops.shape(places)[1]) < count
        places = ops.where(is_prefix, first + 1, places)  # of patches on the prefix
        of_prefix = ops.where(is_prefix, first + 2, first)  # on each other, and on patches
        return ops.where(is_prefix[:, None], of_prefix, places)

    def resized(self, grid):
        """The table for another grid."""
        (rows, columns), (new_rows, new_columns) = self.shape, grid
        is_native = ops.logical_and(ops.equal(new_rows, rows), ops.equal(new_columns, columns))
        of_rows = _distance_weights(rows, new_rows, is_native)
        of_columns = _distance_weights(columns, new_columns, is_native)
        patches = (2 * rows - 1) * (2 * columns - 1)
        learned = ops.cast(self.embeddings[:patches], "float32")
        learned = ops.reshape(learned, (2 * rows - 1, 2 * columns - 1, self.num_heads))
        resized = ops.einsum("ry,cx,yxh->rch", of_rows, of_columns, learned)
        resized = ops.reshape(ops.cast(resized, self.embeddings.dtype), (-1, self.num_heads))
        return ops.concatenate([resized, self.embeddings[patches:]], axis=0)


def _distance_weights(old, new, is_native):
    """The matrix [2 * new - 1, 2 * old - 1] that interpolates values of the distances of an axis.

    The old distances 0, 1, 2, 3, .. become 0, 1, 1 + q, 1 + q + q², .., of which the last is that
    of the new axis, if q is in [1.01, 1.5]. In a native grid q is 1.
    """
    steps = np.arange(old - 1)
    ratios = np.linspace(1.01, 1.5, 1024)
    last = np.minimum(np.sum(ratios[:, None] ** steps, axis=1), 1e30)  # distance for each q
    wanted = ops.cast(new - 1, "float32")
    ratio = 1.01 + 0.49 * ops.mean(_passed(wanted[None], last))
    ratio = ops.where(is_native, 1.0, ratio)
    distances = ops.cumsum(ratio ** ops.cast(steps, "float32"))
    distances = ops.concatenate([-ops.flip(distances), ops.zeros(1), distances])  # [2 * old - 1]
    passed = _passed(ops.cast(ops.arange(1 - new, new), "float32"), distances)
    # Each passed step replaces the value before it by the one after it.
    after = ops.pad(passed, [(0, 0), (1, 0)], constant_values=1.0)
    return after - ops.pad(passed, [(0, 0), (0, 1)])


def _passed(x, points):
    """The share of each step between increasing points [n] that x [m] has passed: [m, n - 1]."""
    points = ops.cast(points, "float32")
    return ops.clip((x[:, None] - points[:-1]) / (points[1:] - points[:-1]), 0.0, 1.0)


def grid_bias(row_layer, column_layer, grid):
    """Returns the bias of patches by their distance in rows and in columns: [1, H, N, N].

    Args:
        row_layer, column_layer: `RelativePositions`, whose biases are added.
        grid: (rows, columns); N is their product.
    """
    rows, columns = grid
    of_rows = ops.arange(rows, dtype="int32")[None]
    of_rows = row_layer(of_rows, of_rows)  # [1, H, rows, rows]
    of_columns = ops.arange(columns, dtype="int32")[None]
    of_columns = column_layer(of_columns, of_columns)  # [1, H, columns, columns]
    # [1, H, rows, columns, rows, columns], each patch with each patch
    bias = of_rows[:, :, :, None, :, None] + of_columns[:, :, None, :, None, :]
    patches = rows * columns
    return ops.reshape(bias, (1, row_layer.num_heads, patches, patches))
