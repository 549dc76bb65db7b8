"""The cache of incremental decoding.

The K hypotheses of a sentence share one buffer for keys and values. Each step writes K slots to it,
one for each hypothesis. A hypothesis is a path through these slots: when it continues another one,
its path is copied, but no key or value is moved. After three steps of K = 2 hypotheses, of which
the second continued the first in step 1::

    step                      0     1     2
    buffer index          0  1  2  3  4  5       step · K + slot
    slots of hypothesis 0     0     0     0      attends to 0, 2, 4
    slots of hypothesis 1     0     1     1      attends to 0, 3, 5

Axes: B sentences, K hypotheses of a sentence, T target tokens, S source tokens, H heads.
"""

from typing import Any, NamedTuple

from keras import ops


class KeyValue(NamedTuple):
    """Heads to attend to: `key` [B, H, S, D] and `value` [B, H, S, value_dim]."""

    key: Any
    value: Any

    def write(self, key, value, position):
        """The buffer with `key` and `value` written to it, from index `position` on."""
        start = (0, 0, position, 0)
        return KeyValue(
            ops.slice_update(self.key, start, key), ops.slice_update(self.value, start, value)
        )

    def for_hypotheses(self, count):
        """The buffer with `count` slots for each position, of which the first is filled."""
        batch, heads, length, _ = ops.shape(self.key)
        padding = [(0, 0), (0, 0), (0, 0), (0, count - 1), (0, 0)]
        key = ops.pad(self.key[:, :, :, None], padding)  # [B, H, S, count, D]
        value = ops.pad(self.value[:, :, :, None], padding)
        shape = (batch, heads, length * count)
        return KeyValue(
            ops.reshape(key, (*shape, key.shape[-1])), ops.reshape(value, (*shape, value.shape[-1]))
        )

    def reorder(self, parents):
        """The same buffer: `Cache.slots` is reordered instead."""
        return self


class DecoderCache(NamedTuple):
    """What a decoder block keeps from one step to the next.

    Fields:
        self_attention: `KeyValue`, the buffer of the target tokens, or `zoo.layers.ssru.SSRUState`.
        memory: `KeyValue` of the memory; () without one, as the state of a loop cannot hold None.
    """

    self_attention: Any
    memory: KeyValue | tuple


class Cache(NamedTuple):
    """The cache of a model. See `zoo.models.Transformer.start`.

    Fields:
        position: int32 [], number of target tokens so far.
        slots: int32 [B, K, T], the slot in which each hypothesis finds its token of each step.
        blocks: `DecoderCache` of each decoder block, with T·K slots.
        memory_mask: bool [B, 1, 1, S], or () without a memory.
    """

    position: Any
    slots: Any
    blocks: tuple[DecoderCache, ...]
    memory_mask: Any

    @classmethod
    def create(cls, position, shape, blocks, memory_mask=()):
        """The cache before the first step.

        Args:
            position: number of target tokens that `blocks` hold.
            shape: (B, K, T).
            blocks: `DecoderCache` of each block for one hypothesis.
            memory_mask: see `Cache`.
        """
        _, hypotheses, _ = shape
        blocks = [
            block._replace(self_attention=block.self_attention.for_hypotheses(hypotheses))
            for block in blocks
        ]
        position = ops.full((), position, "int32")
        return cls(position, ops.zeros(shape, "int32"), tuple(blocks), memory_mask)

    def begin_step(self):
        """The cache in which hypothesis k uses slot k of this step."""
        _, hypotheses, length = ops.shape(self.slots)
        own = ops.arange(hypotheses, dtype="int32")[:, None]  # [K, 1]
        is_new = ops.arange(length, dtype="int32") == self.position  # [T]
        return self._replace(slots=ops.where(is_new, own, self.slots))

    def step_arguments(self, bias=None, rotation=None):
        """Arguments of `zoo.layers.TransformerDecoder.step` for K new tokens.

        Args:
            bias: of one token at this position, [1, H, 1, T], the same for all hypotheses.
            rotation: of one token at this position, [1, 1, 1, D].
        """
        batch, hypotheses, length = ops.shape(self.slots)
        slots = ops.arange(hypotheses, dtype="int32")
        is_used = self.slots[..., None] == slots  # [B, K hypotheses, T, K slots]
        is_written = ops.arange(length, dtype="int32") <= self.position  # [T]
        mask = ops.logical_and(is_used, is_written[:, None])
        return {
            "position": self.position * hypotheses,  # index in the buffer of this step's first slot
            "mask": ops.reshape(mask, (batch, 1, hypotheses, length * hypotheses)),
            "memory_mask": self.memory_mask,
            "bias": None if bias is None else ops.repeat(bias, hypotheses, axis=-1),
            "rotation": rotation,
        }

    def end_step(self, blocks):
        """The cache for the next step, with the caches that the blocks returned in this one."""
        return self._replace(position=self.position + 1, blocks=tuple(blocks))

    def reorder(self, parents):
        """The cache in which hypothesis k continues hypothesis ``parents[b, k]``; int [B, K]."""
        blocks = [
            block._replace(self_attention=block.self_attention.reorder(parents))
            for block in self.blocks
        ]
        return self._replace(slots=take_rows(self.slots, parents), blocks=tuple(blocks))


def take_rows(x, indices):
    """The rows of each matrix of `x` [B, N, T] at the `indices` [B, K]: [B, K, T]."""
    batch, count, length = ops.shape(x)
    first = count * ops.arange(batch, dtype="int32")[:, None]
    rows = ops.reshape(x, (batch * count, length))
    return ops.take(rows, first + ops.cast(indices, "int32"), axis=0)
