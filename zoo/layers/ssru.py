"""The Simpler Simple Recurrent Unit (SSRU), which replaces the self-attention of a decoder.

Source: Kim et al. 2019, "From Research to Production and Back: Ludicrously Fast Neural Machine
Translation", section 3.1.

Axes: B batch, N sequences (one for each sentence, or its chunks), T tokens, K hypotheses of a
sentence, E model width.
"""

from typing import Any, NamedTuple

import keras
from keras import ops

from zoo import kernels
from zoo.dtypes import at_least_float32
from zoo.layers.cache import take_rows
from zoo.layers.chunks import join_chunks, split_into_chunks
from zoo.layers.config import SameLengthLayer, own_initializer
from zoo.layers.dense import Dense
from zoo.layers.masks import attention_mask, key_mask

CHUNK_SIZE = 32


class SSRUState(NamedTuple):
    """The cell state of each hypothesis: `cell`, float32 [B, K, E]."""

    cell: Any

    def for_hypotheses(self, count):
        """The state of `count` hypotheses, all equal to the first."""
        return SSRUState(ops.repeat(self.cell, count, axis=1))

    def reorder(self, parents):
        """The state in which hypothesis k continues hypothesis ``parents[b, k]``; int [B, K]."""
        return SSRUState(take_rows(self.cell, parents))


@keras.saving.register_keras_serializable("zoo")
class SSRU(SameLengthLayer):
    """A recurrent layer whose cell is a weighted mean of its inputs up to each position.

    With the forget gate f_t = sigmoid(W_f x_t + b_f), the cell c_t = f_t · c_{t-1} + (1 - f_t) ·
    W x_t and c_0 = 0, the output is relu(c_t). The matrix products do not depend on earlier
    positions. In training, a parallel scan computes the cells, or a loop on CPUs. In decoding, each
    step takes the same time and needs no keys and values of earlier positions.
    Source: Kim et al. 2019, section 3.1.

    Args:
        embed_dim: E, width of the output.
        kernel_initializer: initializer of both matrices.

    `call`, `create_cache` and `step` take the arguments of `zoo.layers.MultiHeadSelfAttention`, so
    that it can replace one in a decoder.

    Inputs:
        x: [B, T, any width].
        mask: bool [B, T] or [B, 1, 1, T], True for real tokens. Padding leaves the cell unchanged.
        bias, rotation: None.

    Output: [B, T, E]; each position depends on itself and earlier ones only.

    Raises:
        ValueError: when called, if the mask depends on the query, or `bias` or `rotation` is given.
    """

    def __init__(self, embed_dim, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(**kwargs)
        self.embed_dim = embed_dim
        self.kernel_initializer = kernel_initializer
        self.input_spec = keras.layers.InputSpec(ndim=3)
        self.forget_gate = self._dense("forget_gate", use_bias=True)
        self.candidate = self._dense("candidate", use_bias=False)

    def _dense(self, name, use_bias):
        return Dense(
            self.embed_dim,
            use_bias=use_bias,
            kernel_initializer=own_initializer(self.kernel_initializer),
            dtype=self.dtype_policy,
            name=name,
        )

    def build(self, input_shape):
        self.forget_gate.build(input_shape)
        self.candidate.build(input_shape)

    def call(self, x, mask=None, bias=None, rotation=None):
        if bias is not None or rotation is not None:
            raise ValueError("An SSRU has no attention scores for a `bias` or `rotation`.")
        forget, new = self._gates(x)
        mask = attention_mask(mask, keys=x)
        if mask is not None:
            real = key_mask(mask, "an SSRU")[:, 0]  # [B, T, 1]
            forget = ops.where(real, forget, 1.0)
            new = ops.where(real, new, 0.0)
        cells = linear_recurrence(forget[:, None], new[:, None])[:, 0]  # [B, T, E]
        return ops.cast(ops.relu(cells), self.compute_dtype)

    def create_cache(self, batch_size, length):
        """Returns the first `SSRUState`, zeros; it does not depend on the `length`."""
        return SSRUState(ops.zeros((batch_size, 1, self.embed_dim), "float32"))

    def step(self, x, cache, position, mask, bias=None, rotation=None):
        """Computes one new token of each hypothesis.

        Args:
            x: [B, K, any width].
            cache: `SSRUState`.
            position, mask, bias, rotation: not used.

        Returns:
            (outputs [B, K, E], the next `SSRUState`).
        """
        forget, new = self._gates(x)
        cell = forget * ops.cast(cache.cell, forget.dtype) + new
        outputs = ops.cast(ops.relu(cell), self.compute_dtype)
        return outputs, SSRUState(ops.cast(cell, cache.cell.dtype))

    def _gates(self, x):
        """f_t and (1 - f_t) · W x_t, [B, T, E] each, in float32 or wider."""
        forget = ops.sigmoid(at_least_float32(self.forget_gate(x)))
        return forget, (1.0 - forget) * at_least_float32(self.candidate(x))


@kernels.accelerated_by(kernels.linear_recurrence)
def linear_recurrence(factor, added, levels=4):
    """c_t = factor_t · c_{t-1} + added_t with c_0 = 0, for all t at once: [B, N, T, E].

    A parallel scan: first within chunks, then over the last cells of all chunks, which form a
    recurrence of the same kind (Blelloch 1990, "Prefix Sums and Their Applications", section 1.4).
    The depth of the recursion is fixed, as the length may be unknown when a graph is built.

    Args:
        factor, added: [B, N, T, E], N sequences.
        levels: depth of the recursion. T is at most `CHUNK_SIZE` to this power, a million by
            default.
    """
    length = ops.shape(added)[2]
    if levels == 1 or (isinstance(length, int) and length <= CHUNK_SIZE):
        _, cells = _scan(factor, added)
        return cells
    batch, count, _, width = ops.shape(added)
    factor = split_into_chunks(factor, CHUNK_SIZE)
    added = split_into_chunks(added, CHUNK_SIZE)
    parts = ops.shape(added)[2]
    rows = (batch, count * parts, CHUNK_SIZE, width)
    factor = ops.reshape(factor, rows)
    added = ops.reshape(added, rows)
    # The padding by zeros comes after all tokens, so that it changes none of them.
    decay, cells = _scan(factor, added)  # decay: the product of the factors since the chunk began
    # The last cells of the chunks are a recurrence of the same kind.
    ends = (batch, count, parts, width)
    chunk_factor = ops.reshape(decay[:, :, -1], ends)
    chunk_added = ops.reshape(cells[:, :, -1], ends)
    last_cells = linear_recurrence(chunk_factor, chunk_added, levels - 1)
    # Each chunk continues the last cell of the chunk before.
    before = ops.pad(last_cells[:, :, :-1], [(0, 0), (0, 0), (1, 0), (0, 0)])
    before = ops.reshape(before, (batch, count * parts, 1, width))
    cells = cells + decay * before
    return join_chunks(ops.reshape(cells, (batch, count, parts, CHUNK_SIZE, width)), length)


def _scan(factor, added):
    """The recurrence over at most `CHUNK_SIZE` tokens (Hillis and Steele 1986).

    After the round with `back`, c_t = factor_t · c_{t - 2·back} + added_t, which is 2 · back tokens
    in one step.

    Returns:
        (the product of the factors up to each token, the cells), both [B, N, T, E].
    """
    length = ops.shape(added)[2]
    back = 1  # then 2, 4, ...
    while back < CHUNK_SIZE:
        padding = [(0, 0), (0, 0), (back, 0), (0, 0)]
        added = added + factor * ops.pad(added, padding)[:, :, :length]
        factor = factor * ops.pad(factor, padding, constant_values=1.0)[:, :, :length]
        back *= 2
    return factor, added
