"""The cache of decoding: keys and values from one step to the next.

The K hypotheses of a sentence share one buffer for keys and values, in which each step writes K
slots, one for each hypothesis. A hypothesis is a path through these slots: when it continues
another one, its path is copied, and no key or value is moved. Copying these instead costs 6 to 25 %
of a beam search's time on two CPU cores (base model, 4 beams, 32 to 128 tokens, batch 8 and 32).

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

    def follow(self, parents):
        """The same buffer: hypotheses are paths through it, see `Cache.follow`."""
        return self

    def with_slots(self, count):
        """The buffer with `count` slots for each position, of which the first is filled."""
        batch, heads, length, _ = ops.shape(self.key)
        padding = [(0, 0), (0, 0), (0, 0), (0, count - 1), (0, 0)]
        key = ops.pad(self.key[:, :, :, None], padding)  # [B, H, S, count, D]
        value = ops.pad(self.value[:, :, :, None], padding)
        shape = (batch, heads, length * count)
        return KeyValue(
            ops.reshape(key, (*shape, key.shape[-1])), ops.reshape(value, (*shape, value.shape[-1]))
        )


class DecoderCache(NamedTuple):
    """A decoder block's keys and values: of target tokens, in a buffer, and of the memory.

    With an SSRU, `target` is a `zoo.layers.ssru.State`. Without a memory, `memory` is ().
    """

    target: Any
    memory: KeyValue | tuple


class Cache(NamedTuple):
    """The cache of a model. See `zoo.models.Transformer.start`.

    Fields:
        position: int32 [], number of target tokens so far.
        paths: int32 [B, K, T], for each token of each hypothesis, which of the K slots of its step
            it was written to.
        blocks: `DecoderCache` of each decoder block, with T·K slots.
        memory_mask: bool [B, 1, 1, S], or () without a memory.
    """

    position: Any
    paths: Any
    blocks: tuple[DecoderCache, ...]
    memory_mask: Any

    @classmethod
    def first(cls, position, shape, blocks, memory_mask=()):
        """The cache of the first step, with no path yet.

        `shape` is (B, K, T), `blocks` the `DecoderCache` of each block for one hypothesis.
        """
        blocks = [block._replace(target=block.target.with_slots(shape[1])) for block in blocks]
        position = ops.full((), position, "int32")
        return cls(position, ops.zeros(shape, "int32"), tuple(blocks), memory_mask)

    def open_slots(self):
        """The cache in which hypothesis k writes to slot k of this step."""
        _, hypotheses, length = ops.shape(self.paths)
        own = ops.arange(hypotheses, dtype="int32")[:, None]  # [K, 1]
        is_new = ops.arange(length) == self.position  # [T]
        return self._replace(paths=ops.where(is_new, own, self.paths))

    def step_arguments(self, bias=None, rotation=None):
        """Arguments of `zoo.layers.TransformerDecoder.step` for K new tokens.

        Args:
            bias: of one token at this position, [1, H, 1, T], the same for all hypotheses.
            rotation: of one token at this position, [1, 1, 1, D].
        """
        batch, hypotheses, length = ops.shape(self.paths)
        on_path = self.paths[..., None] == ops.arange(hypotheses, dtype="int32")  # [B, K, T, K]
        is_written = ops.arange(length) <= self.position  # [T]
        mask = ops.logical_and(on_path, is_written[:, None])
        return {
            "position": self.position * hypotheses,  # the first of the K slots of this step
            "mask": ops.reshape(mask, (batch, 1, hypotheses, length * hypotheses)),
            "memory_mask": self.memory_mask,
            "bias": None if bias is None else ops.repeat(bias, hypotheses, axis=-1),
            "rotation": rotation,
        }

    def next(self, blocks):
        """The cache of the next step, with the blocks' caches after this one."""
        return self._replace(position=self.position + 1, blocks=tuple(blocks))

    def follow(self, parents):
        """The cache in which hypothesis k continues hypothesis ``parents[b, k]``; int [B, K]."""
        blocks = [block._replace(target=block.target.follow(parents)) for block in self.blocks]
        return self._replace(paths=take_rows(self.paths, parents), blocks=tuple(blocks))


def take_rows(x, indices):
    """The rows of each matrix of `x` [B, N, T] at the `indices` [B, K]: [B, K, T]."""
    batch, count, length = ops.shape(x)
    first = count * ops.arange(batch, dtype="int32")[:, None]
    rows = ops.reshape(x, (batch * count, length))
    return ops.take(rows, first + ops.cast(indices, "int32"), axis=0)
